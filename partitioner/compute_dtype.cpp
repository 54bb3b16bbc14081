// ATen's type promotion: operands with dims decide before 0-dim ones, those before plain numbers, and within a rank the wider kind wins.
#include "partitioner/compute_dtype.h"

#include "autograd/text.h"

#include <c10/core/DefaultDtype.h>
#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

using c10::ScalarType;

bool is_real(ScalarType t) { return t == ScalarType::Float || t == ScalarType::Double; }

bool is_known(ScalarType t) { return is_real(t) || t == ScalarType::Bool || c10::isIntegralType(t, /*includeBool=*/false); }

/// Kinds: bool, integer, floating.
int kind_of(ScalarType t) { return t == ScalarType::Bool ? 0 : c10::isIntegralType(t, false) ? 1 : 2; }

class Promotion {
 public:
  void tensor(const Value& v) { join(v.sizes.empty() ? zero_dim_ : with_dims_, v.dtype); }

  void number(const Constant& c) {
    if (std::holds_alternative<bool>(c)) return join(number_, ScalarType::Bool);
    const bool whole = std::holds_alternative<std::int64_t>(c);
    join(number_, whole ? ScalarType::Long : c10::get_default_dtype_as_scalartype());
  }

  /// Undefined when there was no tensor: a number alone takes the dtype of what it fills.
  ScalarType result() const {
    const ScalarType tensors = combine(with_dims_, zero_dim_);
    return tensors == ScalarType::Undefined ? tensors : combine(tensors, number_);
  }

 private:
  static void join(ScalarType& into, ScalarType t) { into = into == ScalarType::Undefined ? t : c10::promoteTypes(into, t); }
  static ScalarType combine(ScalarType higher, ScalarType lower) {
    if (higher == ScalarType::Undefined) return lower;
    if (lower == ScalarType::Undefined || kind_of(higher) >= kind_of(lower)) return higher;
    return lower;
  }

  ScalarType with_dims_ = ScalarType::Undefined, zero_dim_ = ScalarType::Undefined, number_ = ScalarType::Undefined;
};

/// Per step, whether its number counts, not just its truth.
std::vector<char> used_as_number(const Formula& f) {
  std::vector<char> used(f.steps.size(), false);
  const auto use = [&](std::int32_t step) {
    if (step >= 0) used[static_cast<std::size_t>(step)] = true;
  };
  for (const Step& s : f.steps) {
    if (s.term == Term::logical_not || s.term == Term::logical_and || s.term == Term::logical_or) continue;
    if (s.term != Term::select) use(s.a);
    use(s.b);
    use(s.c);
  }
  for (std::int32_t r : f.results) use(r);
  return used;
}

ScalarType promoted(const Graph& g, const Node& n, const Formula& f) {
  Promotion p;
  const std::vector<char> used = used_as_number(f);
  for (std::size_t i = 0; i < f.steps.size(); ++i) {
    const Step& s = f.steps[i];
    if (!used[i]) continue;
    if (s.term == Term::operand) p.tensor(g.values[static_cast<std::size_t>(f.operands[static_cast<std::size_t>(s.index)])]);
    if (s.term == Term::argument) p.number(n.args[static_cast<std::size_t>(s.index)].constant);
  }
  return p.result();
}

/// Where eager computes in whole numbers: a dtype that holds them all, or Undefined.
ScalarType wide_enough(ScalarType whole) {
  if (whole == ScalarType::Int) return ScalarType::Double;
  const bool small = whole == ScalarType::Bool || whole == ScalarType::Byte || whole == ScalarType::Char || whole == ScalarType::Short;
  return small ? ScalarType::Float : ScalarType::Undefined;
}

ScalarType first_result(const Graph& g, const Node& n, const Formula& f) {
  for (std::size_t k = 0; k < f.results.size(); ++k)
    if (f.results[k] >= 0) return g.values[static_cast<std::size_t>(n.results[k].values[0])].dtype;
  return ScalarType::Undefined;
}

/// Undefined when no generated loop gives what eager gives.
ScalarType choose(const Graph& g, const Node& n, const Formula& f) {
  const ScalarType result = first_result(g, n, f);
  const bool reduces = std::any_of(f.steps.begin(), f.steps.end(), [](const Step& s) { return is_reduction(s.term); });
  if (reduces) return is_real(result) ? result : ScalarType::Undefined;
  const ScalarType operands = promoted(g, n, f);
  if (is_real(operands)) return operands;
  if (is_real(result)) return result;
  if (operands == ScalarType::Undefined) return ScalarType::Float;
  return wide_enough(operands);
}

}  // namespace

std::optional<ScalarType> compute_dtype(const Graph& g, const Node& n, const Formula& f, std::string* why) {
  const auto refuse = [&](std::string reason) {
    if (why) *why = std::move(reason);
    return std::nullopt;
  };
  const auto dtype_of = [&](ValueId v) { return g.values[static_cast<std::size_t>(v)].dtype; };
  for (ValueId v : f.operands)
    if (!is_known(dtype_of(v))) return refuse(fmt::format("{} reads %{} of dtype {}", describe(n), v, dtype_name(dtype_of(v))));
  for (std::size_t k = 0; k < f.results.size(); ++k) {
    if (f.results[k] < 0) continue;
    const ScalarType t = dtype_of(n.results[k].values[0]);
    if (!is_real(t) && t != ScalarType::Bool) return refuse(fmt::format("{} makes a {}", describe(n), dtype_name(t)));
  }
  const ScalarType compute = choose(g, n, f);
  if (compute == ScalarType::Undefined)
    return refuse(fmt::format("{} computes in whole numbers of 64 bits or reduces to bools", describe(n)));
  return compute;
}

}  // namespace tandem
