#include "runtime/blas_call.h"

#include "autograd/formula.h"
#include "autograd/support/error.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

namespace tandem {
namespace {

// The Fortran interface that every BLAS has; LibTorch brings its own inside libtorch_cpu.
template <class T>
using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*, const T*, const int*,
                      const T*, T*, const int*);
Gemm<float> sgemm() {
  static const auto found = reinterpret_cast<Gemm<float>>(dlsym(RTLD_DEFAULT, "sgemm_"));
  return found;
}
Gemm<double> dgemm() {
  static const auto found = reinterpret_cast<Gemm<double>>(dlsym(RTLD_DEFAULT, "dgemm_"));
  return found;
}

bool is_plain_matrix(const Value& v) {
  return v.sizes.size() == 2 && v.sizes[0] > 0 && v.sizes[1] > 0 && v.sizes[0] < std::numeric_limits<int>::max() &&
         v.sizes[1] < std::numeric_limits<int>::max() && !v.conj && !v.neg && !v.zero;
}

}  // namespace

/// The formula taken apart: beta * addend + alpha * matmul(a, b), as far as the parts are there.
struct BlasCall::Parts {
  ValueId a = -1, b = -1, addend = -1;
  Factor alpha, beta;
};

bool BlasCall::split(const Graph& g, const Node& n, Parts& out) {
  const auto f = formula_of(g, n);
  if (!f || f->results.size() != 1 || f->results[0] < 0) return false;
  const auto& steps = f->steps;
  auto factor = [&](const Step& s) -> std::optional<Factor> {
    if (s.term == Term::number) return Factor{s.value, -1};
    if (s.term != Term::argument) return std::nullopt;
    const auto& a = n.args[std::size_t(s.index)];
    if (a.scalar >= 0) return Factor{0, a.scalar};
    if (auto* d = std::get_if<double>(&a.constant)) return Factor{*d, -1};
    if (auto* i = std::get_if<std::int64_t>(&a.constant)) return Factor{double(*i), -1};
    return std::nullopt;
  };
  /// A product of an optional number and one term; fills number and gives the term.
  auto scaled = [&](std::int32_t at, Factor& number) -> const Step* {
    const Step* s = &steps[std::size_t(at)];
    if (s->term != Term::mul) return s;
    const auto found = factor(steps[std::size_t(s->a)]);
    if (!found) return nullptr;
    number = *found;
    return &steps[std::size_t(s->b)];
  };
  auto product = [&](std::int32_t at) {
    const Step* s = scaled(at, out.alpha);
    if (!s || s->term != Term::matmul) return false;
    const auto &a = steps[std::size_t(s->a)], &b = steps[std::size_t(s->b)];
    if (a.term != Term::operand || b.term != Term::operand) return false;
    out.a = f->operands[std::size_t(a.index)];
    out.b = f->operands[std::size_t(b.index)];
    return true;
  };
  const Step& last = steps[std::size_t(f->results[0])];
  if (last.term != Term::add) return product(f->results[0]);
  const Step* addend = scaled(last.a, out.beta);
  if (!addend || addend->term != Term::operand || !product(last.b)) return false;
  out.addend = f->operands[std::size_t(addend->index)];
  return true;
}

bool BlasCall::can_run(const Graph& g, const Node& n) {
  Parts p;
  if (n.effects != Effects{} || !n.writes.empty() || n.results.size() != 1 || n.results[0].values.size() != 1 || !split(g, n, p))
    return false;
  const auto& result = g.values[n.results[0].values[0]];
  if (g.storage_of(n.results[0].values[0]).device.type() != c10::DeviceType::CPU) return false;
  const bool is_float = result.dtype == c10::ScalarType::Float, is_double = result.dtype == c10::ScalarType::Double;
  if (!(is_float && sgemm()) && !(is_double && dgemm())) return false;
  for (ValueId v : {p.a, p.b, n.results[0].values[0]}) {
    if (!is_plain_matrix(g.values[v]) || g.values[v].dtype != result.dtype || matrix_of(g, v).leading <= 0) return false;
  }
  if (matrix_of(g, n.results[0].values[0]).transposed != 'N') return false;
  if (p.addend < 0) return true;
  const auto& c = g.values[p.addend];
  if (c.dtype != result.dtype || c.sizes.size() > 2 || c.conj || c.neg || c.zero) return false;
  for (std::size_t i = 0; i < c.sizes.size(); i++)
    if (const auto size = c.sizes[c.sizes.size() - 1 - i]; size != 1 && size != result.sizes[1 - i]) return false;
  return true;
}

/// Row by row memory is column by column memory of the transposed matrix: 'N' where rows are contiguous, 'T' where columns are.
BlasCall::Matrix BlasCall::matrix_of(const Graph& g, ValueId id) {
  const auto& v = g.values[id];
  Matrix m{v.storage, v.offset * std::int64_t(c10::elementSize(v.dtype)), v.sizes[0], v.sizes[1], v.strides[0], v.strides[1], 'N', 0};
  auto leading = [&](std::int64_t stride, std::int64_t lines, std::int64_t length) -> std::int64_t {
    const auto ld = lines == 1 ? std::max<std::int64_t>(length, 1) : stride;
    return ld >= length && ld < std::numeric_limits<int>::max() ? ld : 0;
  };
  if (m.column_stride == 1 || m.columns == 1) m.leading = int(leading(m.row_stride, m.rows, m.columns));
  if (m.leading <= 0 && (m.row_stride == 1 || m.rows == 1)) {
    m.transposed = 'T';
    m.leading = int(leading(m.column_stride, m.columns, m.rows));
  }
  return m;
}

BlasCall::BlasCall(const Graph& g, const Node& n) {
  Parts p;
  if (!split(g, n, p)) throw InternalError(describe(n) + " is no matrix product");
  a_ = matrix_of(g, p.a);
  b_ = matrix_of(g, p.b);
  result_ = matrix_of(g, n.results[0].values[0]);
  alpha_ = p.alpha;
  beta_ = p.beta;
  is_double_ = g.values[p.a].dtype == c10::ScalarType::Double;
  has_addend_ = p.addend >= 0;
  if (!has_addend_) return;
  const auto& c = g.values[p.addend];
  addend_ = {c.storage, c.offset * std::int64_t(c10::elementSize(c.dtype)), result_.rows, result_.columns, 0, 0, 'N', 1};
  const auto rank = c.sizes.size();
  if (rank >= 1 && c.sizes[rank - 1] != 1) addend_.column_stride = c.strides[rank - 1];
  if (rank == 2 && c.sizes[0] != 1) addend_.row_stride = c.strides[0];
}

template <class T>
void BlasCall::copy_addend(Slots& slots) const {
  const auto* from = reinterpret_cast<const T*>(slots.base(addend_.storage) + addend_.byte_offset);
  auto* to = reinterpret_cast<T*>(slots.base(result_.storage) + result_.byte_offset);
  for (std::int64_t r = 0; r < result_.rows; r++) {
    const T* row = from + r * addend_.row_stride;
    T* out = to + r * result_.row_stride;
    if (addend_.column_stride == 1)
      std::memcpy(out, row, std::size_t(result_.columns) * sizeof(T));
    else
      for (std::int64_t c = 0; c < result_.columns; c++) out[c] = row[c * addend_.column_stride];
  }
}

template <class T>
void BlasCall::run_as(Slots& slots, double alpha_number, double beta_number) const {
  const T alpha = T(alpha_number), beta = has_addend_ ? T(beta_number) : T(0);
  if (has_addend_ && beta != T(0)) copy_addend<T>(slots);
  auto at = [&](const Matrix& m) { return reinterpret_cast<T*>(slots.base(m.storage) + m.byte_offset); };
  const int rows = int(result_.rows), columns = int(result_.columns), inner = int(a_.columns);
  if constexpr (std::is_same_v<T, float>)
    sgemm()(&b_.transposed, &a_.transposed, &columns, &rows, &inner, &alpha, at(b_), &b_.leading, at(a_), &a_.leading, &beta, at(result_),
            &result_.leading);
  else
    dgemm()(&b_.transposed, &a_.transposed, &columns, &rows, &inner, &alpha, at(b_), &b_.leading, at(a_), &a_.leading, &beta, at(result_),
            &result_.leading);
}

void BlasCall::run(Slots& slots, const std::vector<double>& scalars) const {
  auto number = [&](const Factor& f) { return f.scalar >= 0 ? scalars[std::size_t(f.scalar)] : f.value; };
  is_double_ ? run_as<double>(slots, number(alpha_), number(beta_)) : run_as<float>(slots, number(alpha_), number(beta_));
}

}  // namespace tandem
