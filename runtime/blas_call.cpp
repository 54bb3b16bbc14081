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
  if (!is_plain_matrix(result) || result.dtype != g.values[p.a].dtype) return false;
  const bool one_column = is_one_column(result);
  if (!one_column && (result.strides[1] != 1 || (result.sizes[0] > 1 && result.strides[0] < result.sizes[1]))) return false;
  for (ValueId v : {p.a, p.b})
    if (!is_plain_matrix(g.values[v]) || g.values[v].dtype != result.dtype || matrix_of(g, v, one_column).leading <= 0) return false;
  if (p.addend < 0) return true;
  const auto& c = g.values[p.addend];
  if (c.dtype != result.dtype || c.sizes.size() > 2 || c.conj || c.neg || c.zero) return false;
  for (std::size_t i = 0; i < c.sizes.size(); i++)
    if (const auto size = c.sizes[c.sizes.size() - 1 - i]; size != 1 && size != result.sizes[1 - i]) return false;
  return true;
}

/// Row by row memory is column by column memory of the transposed matrix, so LibTorch lets BLAS compute the transposed product; but not where the result
/// is one column. Of two descriptions of the same memory (one row, one column) it decides which bits come out, so the choice is LibTorch's.
BlasCall::Matrix BlasCall::matrix_of(const Graph& g, ValueId id, bool by_columns) {
  const auto& v = g.values[id];
  Matrix m{v.storage, v.offset * std::int64_t(c10::elementSize(v.dtype)), v.sizes[0], v.sizes[1], v.strides[0], v.strides[1], 'N', 0};
  const auto [lines, length] = by_columns ? std::pair(m.columns, m.rows) : std::pair(m.rows, m.columns);
  const auto [between_lines, along] = by_columns ? std::pair(m.column_stride, m.row_stride) : std::pair(m.row_stride, m.column_stride);
  std::int64_t leading = 0;
  if (along == 1 && between_lines >= std::max<std::int64_t>(1, length)) {
    leading = between_lines;
  } else if (between_lines == 1 && along >= std::max<std::int64_t>(1, lines)) {
    m.transposed = 'T';
    leading = along;
  } else if ((m.columns == 1 || m.column_stride == 1) && (m.rows == 1 || m.row_stride == m.columns)) {
    // LibTorch multiplies a contiguous copy of it, which looks the same.
    m.transposed = by_columns ? 'T' : 'N';
    leading = m.columns;
  }
  m.leading = leading < std::numeric_limits<int>::max() ? int(leading) : 0;
  return m;
}

bool BlasCall::is_one_column(const Value& result) { return result.sizes[1] == 1 && result.strides[0] == 1; }

BlasCall::BlasCall(const Graph& g, const Node& n) {
  Parts p;
  if (!split(g, n, p)) throw InternalError(describe(n) + " is no matrix product");
  const ValueId result = n.results[0].values[0];
  one_column_ = is_one_column(g.values[result]);
  a_ = matrix_of(g, p.a, one_column_);
  b_ = matrix_of(g, p.b, one_column_);
  result_ = matrix_of(g, result, one_column_);
  if (result_.rows == 1 || one_column_) result_.leading = int(one_column_ ? result_.rows : result_.columns);
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
  const Matrix &first = one_column_ ? a_ : b_, &second = one_column_ ? b_ : a_;
  const int &m = one_column_ ? rows : columns, &n = one_column_ ? columns : rows;
  if constexpr (std::is_same_v<T, float>)
    sgemm()(&first.transposed, &second.transposed, &m, &n, &inner, &alpha, at(first), &first.leading, at(second), &second.leading, &beta,
            at(result_), &result_.leading);
  else
    dgemm()(&first.transposed, &second.transposed, &m, &n, &inner, &alpha, at(first), &first.leading, at(second), &second.leading, &beta,
            at(result_), &result_.leading);
}

void BlasCall::run(Slots& slots, const std::vector<double>& scalars) const {
  auto number = [&](const Factor& f) { return f.scalar >= 0 ? scalars[std::size_t(f.scalar)] : f.value; };
  is_double_ ? run_as<double>(slots, number(alpha_), number(beta_)) : run_as<float>(slots, number(alpha_), number(beta_));
}

}  // namespace tandem
