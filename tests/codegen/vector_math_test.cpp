// The prelude's functions of float against double precision: errors in units in the last place over a sample of all floats, and special values.
#include "codegen/jit/jit.h"
#include "codegen/prelude.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace tandem {
namespace {

struct Function {
  const char* name;
  double (*exact)(double);
  double ulp;  // largest error seen over all floats, rounded up
};

double exact_exp(double x) { return std::exp(x); }
double exact_log(double x) { return std::log(x); }
double exact_tanh(double x) { return std::tanh(x); }
double exact_erf(double x) { return std::erf(x); }

constexpr Function functions[] = {{"exp", exact_exp, 0.90}, {"log", exact_log, 0.82}, {"tanh", exact_tanh, 1.33}, {"erf", exact_erf, 0.97}};

class VectorMath : public testing::TestWithParam<Function> {
 protected:
  std::vector<float> apply(const std::vector<float>& x, const jit::Target& target) {
    std::string text(c_prelude());
    text += "void f(float* restrict y, const float* restrict x, long n) {\n#pragma omp simd\n  for (long i = 0; i < n; ++i) y[i] = ";
    text += std::string(GetParam().name) + "_f(x[i]);\n}\n";
    const auto module = jit::compile(text, {jit::Compiler::automatic, target, "", ""});
    std::vector<float> y(x.size());
    reinterpret_cast<void (*)(float*, const float*, long)>(module->find("f"))(y.data(), x.data(), static_cast<long>(x.size()));
    return y;
  }
};

const jit::Target targets[] = {{"haswell", 256}, {}};

/// Distance in units in the last place of the exact value; infinite where one is NaN, infinite or zero and the other is not alike.
double ulps(float got, double exact) {
  const double wrong = std::numeric_limits<double>::infinity();
  const auto rounded = static_cast<float>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : wrong;
  if (std::isinf(rounded)) return got == rounded ? 0 : wrong;
  if (!std::isfinite(got)) return wrong;
  if (exact == 0) return got == 0 && std::signbit(got) == std::signbit(exact) ? 0 : wrong;
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(static_cast<double>(got) - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST_P(VectorMath, IsExactToAboutAUnit) {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4099)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (const auto& target : targets) {
    const auto y = apply(x, target);
    double largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double u = ulps(y[i], GetParam().exact(x[i]));
      ASSERT_TRUE(std::isfinite(u)) << GetParam().name << "(" << x[i] << ") = " << y[i];
      largest = std::max(largest, u);
    }
    EXPECT_LE(largest, GetParam().ulp) << GetParam().name << " " << target.cpu;
  }
}

TEST_P(VectorMath, SpecialValuesAreRight) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{
      0.0f,          -0.0f,          inf,  -inf,  nan,       -nan,     1e-45f,      -1e-45f, 1.17549435e-38f, -1.17549435e-38f,
      3.4028235e38f, -3.4028235e38f, 1.0f, -1.0f, 88.72284f, 88.7229f, -103.97208f, -104.0f, -87.33655f,      0.65f,
      0.927734375f,  0.92773443f,    4.0f, 9.0f,  10.0f};
  for (const auto& target : targets) {
    const auto y = apply(x, target);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_LE(ulps(y[i], GetParam().exact(x[i])), GetParam().ulp) << GetParam().name << "(" << x[i] << ") = " << y[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, VectorMath, testing::ValuesIn(functions),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem
