#include "tests/conformance/judge.h"

#include "runtime/outcome.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tandem::test {
namespace {

/// Bits of the mantissa, the leading one included, and the smallest number.
struct Format {
  double unit, smallest;
};

Format format_of(c10::ScalarType t) {
  if (t == at::kDouble) return {0x1p-52, 0x1p-1074};
  return {0x1p-23, 0x1p-149};
}

std::vector<double> numbers_of(const at::Tensor& t) {
  const at::Tensor packed = t.to(at::kDouble).contiguous();
  const double* p = packed.const_data_ptr<double>();
  return {p, p + packed.numel()};
}

bool same(double a, double b) { return (a != a && b != b) || (a == b && std::signbit(a) == std::signbit(b)); }

double error_of(double found, double reference) {
  if (found == reference || !std::isfinite(found) || !std::isfinite(reference)) return 0;
  return std::fabs(found - reference);
}

/// What sums may be off by: some rounding errors of the largest result, or of the largest number where results are too few to show eager's own errors.
double summed_error(const Judged& j, const std::vector<double>& reference, double unit) {
  if (j.magnitude <= 0) return 0;
  double largest = 0;
  for (double x : reference)
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  if (reference.size() < 8) largest = std::max(largest, j.magnitude);
  return std::min(4 * j.own.absolute, 1e-3 * j.magnitude) + 8 * unit * largest;
}

std::string sentence(std::size_t at, double eager, double ours, double reference) {
  return fmt::format("element {}: expected {:.17g} as eager, found {:.17g}; in float64 it is {:.17g}", at, eager, ours, reference);
}

}  // namespace

std::string difference(const Judged& j, Rule rule) {
  if (j.eager.defined() != j.ours.defined()) return j.ours.defined() ? "expected no tensor" : "expected a tensor, found none";
  if (!j.eager.defined()) return "";
  if (j.eager.scalar_type() != j.ours.scalar_type() || j.eager.sizes() != j.ours.sizes() || j.eager.strides() != j.ours.strides())
    return fmt::format("expected {} {} {}, found {} {} {}", c10::toString(j.eager.scalar_type()), j.eager.sizes(), j.eager.strides(),
                       c10::toString(j.ours.scalar_type()), j.ours.sizes(), j.ours.strides());
  if (bit_equal(j.eager, j.ours)) return "";
  if (j.eager.is_complex() || rule == Rule::bits)
    return fmt::format("differs in its bits: eager {}, ours {}", numbers_of(j.eager), numbers_of(j.ours));
  const auto eager = numbers_of(j.eager), ours = numbers_of(j.ours);
  const auto other = j.other.defined() && j.other.sizes() == j.eager.sizes() ? numbers_of(j.other) : eager;
  const auto reference = j.reference.defined() ? numbers_of(j.reference) : eager;
  const auto [unit, smallest] = format_of(j.single ? at::kFloat : j.eager.scalar_type());
  const double summed = summed_error(j, reference, unit);
  for (std::size_t i = 0; i < eager.size(); ++i) {
    if (same(eager[i], ours[i]) || same(other[i], ours[i])) continue;
    const bool signs = eager[i] == 0 && ours[i] == 0;  // of zero
    if (rule == Rule::numbers || signs) return sentence(i, eager[i], ours[i], reference[i]);
    if (!std::isfinite(eager[i]) || !std::isfinite(ours[i])) {
      // Where eager's float32 leaves its own float64 (it overflows on the way), the better number is no fault, nor is another overflow.
      const bool leaves = j.reference.defined() && !same(eager[i], reference[i]) && !std::isfinite(eager[i]);
      const bool better = !std::isfinite(ours[i]) || error_of(ours[i], reference[i]) <= 1e-4 * std::fabs(reference[i]);
      if (!leaves || !better) return sentence(i, eager[i], ours[i], reference[i]);
      continue;
    }
    const double size = std::fabs(reference[i]);
    const double relative = (std::min(2 * j.own.relative, 1e-3) + 4 * unit) * size;
    const double allowed = std::max({relative, summed, 2 * error_of(eager[i], reference[i]) + 4 * unit * size}) + 2 * smallest;
    if (!(error_of(ours[i], reference[i]) <= allowed)) return sentence(i, eager[i], ours[i], reference[i]);
  }
  return "";
}

OwnError own_error(const at::Tensor& eager, const at::Tensor& reference) {
  OwnError own;
  const auto found = numbers_of(eager), exact = numbers_of(reference);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double e = error_of(found[i], exact[i]);
    own.absolute = std::max(own.absolute, e);
    if (std::fabs(exact[i]) > 1e-30) own.relative = std::max(own.relative, e / std::fabs(exact[i]));
  }
  return own;
}

}  // namespace tandem::test
