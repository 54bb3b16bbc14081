// Polynomials are minimax fits in the weight of the result's relative error, rounded to float one coefficient after the other.
#include "codegen/prelude.h"

namespace tandem {

std::string_view c_prelude() {
  return R"(#define INLINE static inline __attribute__((always_inline))
#ifdef __FMA__
#define FMA_F(a, b, c) __builtin_fmaf(a, b, c)
#define FMA(a, b, c) __builtin_fma(a, b, c)
#else
#define FMA_F(a, b, c) ((a) * (b) + (c))
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

/* Elements that are summed up in float before their sum goes to a double: 16 for each lane of a vector. */
#ifdef __AVX512F__
#define BLOCK 256
#else
#define BLOCK 128
#endif

/* hi + lo is the sum so far: what the addition of x loses is exact and goes to lo. */
#define ADD_WIDE(hi, lo, x) \
  { const double x_ = (x), h_ = (hi), t_ = h_ + x_, z_ = t_ - h_; (lo) += (h_ - (t_ - z_)) + (x_ - z_); (hi) = t_; }
INLINE double wide_sum(double hi, double lo) { return lo - lo == 0 ? hi + lo : hi; } /* of infinities lo is NaN */

#define max_of(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define min_of(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))

INLINE int bits_f(float x) { int i; __builtin_memcpy(&i, &x, 4); return i; }
INLINE float float_f(int i) { float x; __builtin_memcpy(&x, &i, 4); return x; }
INLINE long bits(double x) { long i; __builtin_memcpy(&i, &x, 8); return i; }
INLINE double float_of(long i) { double x; __builtin_memcpy(&x, &i, 8); return x; }

/* Integers in the order of the floats, so that the maximum is one of integers; NaN beats all. */
#define MAX_KEY_FIRST_F (-0x7fffffff - 1)
#define MIN_KEY_FIRST_F 0x7fffffff
#define MAX_KEY_FIRST (-0x7fffffffffffffff - 1)
#define MIN_KEY_FIRST 0x7fffffffffffffff
INLINE int key_f(int i) { return i ^ ((i >> 31) & 0x7fffffff); }
INLINE long key(long i) { return i ^ ((i >> 63) & 0x7fffffffffffffff); }
INLINE int max_key_f(float x) { return x == x ? key_f(bits_f(x)) : 0x7fffffff; }
INLINE int min_key_f(float x) { return x == x ? key_f(bits_f(x)) : -0x7fffffff - 1; }
INLINE long max_key(double x) { return x == x ? key(bits(x)) : 0x7fffffffffffffff; }
INLINE long min_key(double x) { return x == x ? key(bits(x)) : -0x7fffffffffffffff - 1; }
INLINE float key_value_f(int i) { return float_f(key_f(i)); }
INLINE double key_value(long i) { return float_of(key(i)); }

/* 2^n e^f with x = n ln2 + f, e^f = 1 + f (1 + f P(f)). n stands in the low bits of x / ln2 + 1.5 * 2^23. */
INLINE float exp_reduced_f(float x, int* n) {
  const float shifted = FMA_F(x, 1.44269504f, 12582912.0f), j = shifted - 12582912.0f;
  *n = bits_f(shifted) - 0x4b400000;
  const float f = FMA_F(j, -1.42860677e-6f, FMA_F(j, -0.693145752f, x));
  float p = 1.38189073e-3f;
  p = FMA_F(p, f, 8.36870074e-3f);
  p = FMA_F(p, f, 4.16682884e-2f);
  p = FMA_F(p, f, 0.166665211f);
  p = FMA_F(p, f, 0.49999994f);
  return FMA_F(FMA_F(p, f, 1.0f), f, 1.0f);
}
/* Scaled in two steps: either alone may be out of range. */
INLINE float exp_f(float a) {
  float x = a < -104.0f ? -104.0f : a;
  x = x > 89.0f ? 89.0f : x;
  int n;
  const float r = exp_reduced_f(x, &n);
  const int h = n >> 1;
  return r * float_f((int)((unsigned)(h + 127) << 23)) * float_f((int)((unsigned)(n - h + 127) << 23));
}
/* For -87 <= x <= 88. */
INLINE float exp_small_f(float x) {
  int n;
  const float r = exp_reduced_f(x, &n);
  return r * float_f((int)((unsigned)(n + 127) << 23));
}

/* x = 2^e (1 + z) with 2/3 <= 1 + z < 4/3: e ln2 + z - z^2 / 2 + z^3 P(z). */
INLINE float log_f(float a) {
  const int tiny = a < 1.17549435e-38f;
  const float x = tiny ? a * 8388608.0f : a;
  const int e = (int)((unsigned)bits_f(x) - 0x3f2aaaabu & 0xff800000u);
  const float n = (float)(e >> 23) - (tiny ? 23.0f : 0.0f);
  const float z = float_f((int)((unsigned)bits_f(x) - (unsigned)e)) - 1.0f, s = z * z;
  float p = 0.119498029f;
  p = FMA_F(p, z, -0.128333718f);
  p = FMA_F(p, z, 0.107717216f);
  p = FMA_F(p, z, -0.121986285f);
  p = FMA_F(p, z, 0.143025428f);
  p = FMA_F(p, z, -0.16679357f);
  p = FMA_F(p, z, 0.199996859f);
  p = FMA_F(p, z, -0.249998256f);
  p = FMA_F(p, z, 0.333333343f);
  const float r = FMA_F(p, s * z, -0.5f * s);
  const float y = FMA_F(n, 0.693145752f, z + FMA_F(n, 1.42860677e-6f, r));
  const float other = a < 0.0f ? __builtin_nanf("") : a == 0.0f ? -__builtin_inff() : a;
  return ((a > 0.0f) & (a < __builtin_inff())) ? y : other;
}

/* x + x^3 P(x^2) near zero, else 1 - 2 / (e^2x + 1). */
INLINE float tanh_f(float a) {
  const float t = __builtin_fabsf(a), s = a * a;
  float p = 2.0111741e-3f;
  p = FMA_F(p, s, -8.02885182e-3f);
  p = FMA_F(p, s, 2.16388181e-2f);
  p = FMA_F(p, s, -5.39351553e-2f);
  p = FMA_F(p, s, 0.13333112f);
  p = FMA_F(p, s, -0.333333284f);
  const float near = FMA_F(p * s, t, t);
  const float far = 1.0f - 2.0f / (exp_small_f(2.0f * (t > 10.0f ? 10.0f : t)) + 1.0f);
  return __builtin_copysignf(t > 0.65f ? far : near, a);
}

/* x + x P(x^2) near zero, else 1 - e^-(t + t Q(t)), for erfc(t) falls like that. */
INLINE float erf_f(float a) {
  const float t = __builtin_fabsf(a), s = a * a;
  float p = 8.00138369e-5f;
  p = FMA_F(p, s, -8.05057702e-4f);
  p = FMA_F(p, s, 5.19244885e-3f);
  p = FMA_F(p, s, -2.68557388e-2f);
  p = FMA_F(p, s, 0.112836257f);
  p = FMA_F(p, s, -0.376126289f);
  p = FMA_F(p, s, 0.128379166f);
  const float near = FMA_F(p, t, t);
  const float u = t > 4.0f ? 4.0f : t;
  float q = 1.1521860e-5f;
  q = FMA_F(q, u, -3.25649657e-4f);
  q = FMA_F(q, u, 3.65375844e-3f);
  q = FMA_F(q, u, -2.37853508e-2f);
  q = FMA_F(q, u, 0.106263168f);
  q = FMA_F(q, u, 0.635135889f);
  q = FMA_F(q, u, 0.12865217f);
  const float g = FMA_F(q, u, u), e = exp_small_f(-g);
  const float far = 1.0f - FMA_F(-e, FMA_F(q, u, u - g), e); /* g was rounded: e^-(g + d) = e^-g - d e^-g */
  return __builtin_copysignf(t > 0.927734375f ? far : near, a);
}
)";
}

}  // namespace tandem
