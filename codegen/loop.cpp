#include "codegen/loop.h"

#include "autograd/text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

namespace tandem {
namespace {

using Is = Instruction::Kind;

bool is_supported(c10::ScalarType t) {
  using S = c10::ScalarType;
  return t == S::Float || t == S::Double || t == S::Bool || t == S::Byte || t == S::Char || t == S::Short || t == S::Int || t == S::Long;
}

bool is_row_reduction(Term t) { return t == Term::row_sum || t == Term::row_max || t == Term::row_min; }

/// Says what is wrong with a loop, in the order in which it is read.
class Checker {
 public:
  explicit Checker(const Loop& loop) : loop_(loop), scopes_(scopes_of(loop)) {}

  std::string run() {
    std::string wrong = shape();
    for (std::size_t p = 0; wrong.empty() && p < loop_.parameters.size(); ++p) wrong = parameter(p);
    masks_.resize(loop_.code.size());
    stored_.assign(loop_.parameters.size(), false);
    for (std::size_t i = 0; wrong.empty() && i < loop_.code.size(); ++i) {
      wrong = instruction(i);
      if (!wrong.empty()) wrong = fmt::format("v{}: {}", i, wrong);
    }
    for (std::size_t p = 0; wrong.empty() && p < stored_.size(); ++p)
      if (loop_.parameters[p].written && !stored_[p])
        wrong = fmt::format("p{}: expected a store to a parameter that is written, found none", p);
    return wrong;
  }

 private:
  std::string shape() const {
    if (loop_.compute != c10::ScalarType::Float && loop_.compute != c10::ScalarType::Double)
      return "expected to compute in float32 or float64";
    const auto dims = static_cast<std::int64_t>(loop_.sizes.size());
    if (loop_.row < 1 || loop_.row > dims) return fmt::format("expected a row of 1 to {} dims, found {}", dims, loop_.row);
    if (!loop_.flat() && std::any_of(loop_.sizes.begin(), loop_.sizes.end(), [](auto s) { return s < 1; }))
      return fmt::format("expected sizes above 0, found {}", loop_.sizes);
    return loop_.scalars < 0 ? "expected no negative number of scalars" : "";
  }

  std::string parameter(std::size_t p) const {
    const LoopParameter& q = loop_.parameters[p];
    if (!is_supported(q.dtype)) return fmt::format("p{}: expected a real dtype of at least 8 bits, found {}", p, dtype_name(q.dtype));
    if (!q.read && !q.written) return fmt::format("p{}: expected a parameter that is read or written", p);
    if (q.strides.size() != loop_.sizes.size())
      return fmt::format("p{}: expected {} strides, found {}", p, loop_.sizes.size(), q.strides.size());
    if (std::any_of(q.strides.begin(), q.strides.end(), [](auto s) { return s < 0; }))
      return fmt::format("p{}: expected no negative stride", p);
    return "";
  }

  std::string operand(std::int32_t o, std::size_t i) const {
    if (o < 0 || o >= static_cast<std::int64_t>(i)) return fmt::format("expected an earlier value, found v{}", o);
    if (loop_.code[static_cast<std::size_t>(o)].kind == Is::store) return fmt::format("expected a value, found v{}, which is a store", o);
    return "";
  }

  std::string instruction(std::size_t i) {
    const Instruction& n = loop_.code[i];
    for (std::int32_t o : {n.a, n.b, n.c})
      if (o != -1)
        if (std::string wrong = operand(o, i); !wrong.empty()) return wrong;
    switch (n.kind) {
      case Is::load: return memory(n, &LoopParameter::read, "read");
      case Is::scalar:
        if (n.index < 0 || n.index >= loop_.scalars) return fmt::format("expected one of {} scalars, found s{}", loop_.scalars, n.index);
        return "";
      case Is::number: return "";
      case Is::convert: return is_supported(n.dtype) ? carry(n, i) : "expected a real dtype of at least 8 bits";
      case Is::step: return step(n, i);
      case Is::total: return total(n, i);
      case Is::store: return store(n);
    }
    return "unknown kind";
  }

  std::string memory(const Instruction& n, bool LoopParameter::*mark, const char* what) const {
    if (n.index < 0 || n.index >= static_cast<std::int64_t>(loop_.parameters.size()))
      return fmt::format("expected a parameter, found p{}", n.index);
    return loop_.parameters[static_cast<std::size_t>(n.index)].*mark ? "" : fmt::format("expected p{} to be marked as {}", n.index, what);
  }

  std::string step(const Instruction& n, std::size_t i) {
    if (!is_row_reduction(n.term))
      return operands_of(n.term) > 0 ? carry(n, i) : fmt::format("expected arithmetic, found {}", name_of(n.term));
    if (loop_.flat()) return "expected no row reduction in a flat loop";
    return scopes_[static_cast<std::size_t>(n.a)] == Scope::finish ? "expected a row reduction of what the row knows, found one of a total"
                                                                   : "";
  }

  std::string total(const Instruction& n, std::size_t i) {
    if (n.over.size() != loop_.sizes.size()) return fmt::format("expected {} marks, found {}", loop_.sizes.size(), n.over.size());
    if (scopes_[static_cast<std::size_t>(n.a)] == Scope::finish) return "expected a total of elements, found one of a total";
    masks_[i] = n.over;
    return "";
  }

  bool is_load_over(std::int32_t o, const std::vector<bool>& mask) const {
    const Instruction& n = loop_.code[static_cast<std::size_t>(o)];
    return n.kind == Is::load && constant_over(n.index, mask);
  }

  bool constant_over(std::int32_t parameter, const std::vector<bool>& mask) const {
    const auto& strides = loop_.parameters[static_cast<std::size_t>(parameter)].strides;
    for (std::size_t d = 0; d < strides.size(); ++d)
      if (mask[d] && strides[d] != 0) return false;
    return true;
  }

  /// What is computed from totals is known per kept index, so its other operands must be, too.
  std::string carry(const Instruction& n, std::size_t i) {
    if (scopes_[i] != Scope::finish) return "";
    for (std::int32_t o : {n.a, n.b, n.c}) {
      if (o < 0 || scopes_[static_cast<std::size_t>(o)] != Scope::finish) continue;
      const auto& mask = masks_[static_cast<std::size_t>(o)];
      if (!masks_[i].empty() && masks_[i] != mask) return "expected totals over the same dims";
      masks_[i] = mask;
    }
    for (std::int32_t o : {n.a, n.b, n.c}) {
      if (o < 0) continue;
      const Scope s = scopes_[static_cast<std::size_t>(o)];
      if (s != Scope::finish && s != Scope::fixed && !is_load_over(o, masks_[i]))
        return fmt::format("expected v{} to be known beside a total", o);
    }
    return "";
  }

  std::string store(const Instruction& n) {
    if (std::string wrong = memory(n, &LoopParameter::written, "written"); !wrong.empty()) return wrong;
    const auto p = static_cast<std::size_t>(n.index);
    if (stored_[p]) return fmt::format("expected one store to p{}", p);
    stored_[p] = true;
    const auto& strides = loop_.parameters[p].strides;
    const bool row =
        std::any_of(strides.begin() + static_cast<std::ptrdiff_t>(loop_.outer()), strides.end(), [](auto s) { return s != 0; });
    const Scope s = scopes_[static_cast<std::size_t>(n.a)];
    if (s == Scope::element && !row) return fmt::format("expected strides over the row where an element is stored to p{}", p);
    if (s == Scope::finish && !constant_over(n.index, masks_[static_cast<std::size_t>(n.a)]))
      return fmt::format("expected p{} to have no strides over the dims of its total", p);
    return "";
  }

  const Loop& loop_;
  std::vector<Scope> scopes_;
  std::vector<std::vector<bool>> masks_;  // per instruction of scope finish: dims that are summed over
  std::vector<bool> stored_;
};

Scope scope_of_memory(const Loop& loop, const LoopParameter& p) {
  const auto row = p.strides.begin() + static_cast<std::ptrdiff_t>(std::min(loop.outer(), p.strides.size()));
  auto moves = [](std::int64_t s) { return s != 0; };
  if (std::any_of(row, p.strides.end(), moves)) return Scope::element;
  return std::any_of(p.strides.begin(), row, moves) ? Scope::unit : Scope::fixed;
}

}  // namespace

bool Instruction::operator==(const Instruction& o) const {
  return kind == o.kind && term == o.term && a == o.a && b == o.b && c == o.c && index == o.index && dtype == o.dtype && over == o.over &&
         std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(o.value);
}

std::int64_t Loop::row_elements() const {
  std::int64_t n = 1;
  if (!flat())
    for (std::size_t d = outer(); d < sizes.size(); ++d) n *= sizes[d];
  return n;
}

std::vector<Scope> scopes_of(const Loop& loop) {
  std::vector<Scope> scopes(loop.code.size(), Scope::fixed);
  for (std::size_t i = 0; i < loop.code.size(); ++i) {
    const Instruction& n = loop.code[i];
    for (std::int32_t o : {n.a, n.b, n.c})
      if (o >= 0 && o < static_cast<std::int64_t>(i)) scopes[i] = std::max(scopes[i], scopes[static_cast<std::size_t>(o)]);
    if (n.kind == Is::total) scopes[i] = Scope::finish;
    if (n.kind == Is::step && is_row_reduction(n.term) && scopes[i] != Scope::finish) scopes[i] = Scope::unit;
    const bool memory = n.kind == Is::load || n.kind == Is::store;
    if (memory && n.index >= 0 && n.index < static_cast<std::int64_t>(loop.parameters.size()))
      scopes[i] = std::max(scopes[i], scope_of_memory(loop, loop.parameters[static_cast<std::size_t>(n.index)]));
  }
  return scopes;
}

int operands_of(Term t) {
  switch (t) {
    case Term::neg:
    case Term::abs:
    case Term::exp:
    case Term::log:
    case Term::log1p:
    case Term::expm1:
    case Term::sin:
    case Term::cos:
    case Term::tanh:
    case Term::sqrt:
    case Term::erf:
    case Term::floor:
    case Term::ceil:
    case Term::trunc:
    case Term::rint:
    case Term::is_nan:
    case Term::logical_not:
    case Term::row_sum:
    case Term::row_max:
    case Term::row_min: return 1;
    case Term::add:
    case Term::sub:
    case Term::mul:
    case Term::div:
    case Term::pow:
    case Term::minimum:
    case Term::maximum:
    case Term::lt:
    case Term::le:
    case Term::gt:
    case Term::ge:
    case Term::eq:
    case Term::ne:
    case Term::logical_and:
    case Term::logical_or: return 2;
    case Term::fma:
    case Term::select: return 3;
    default: return -1;
  }
}

bool is_expensive(Term t) {
  switch (t) {
    case Term::exp:
    case Term::log:
    case Term::log1p:
    case Term::expm1:
    case Term::sin:
    case Term::cos:
    case Term::tanh:
    case Term::erf:
    case Term::pow: return true;
    default: return false;
  }
}

std::string fault_of(const Loop& loop) { return Checker(loop).run(); }

}  // namespace tandem
