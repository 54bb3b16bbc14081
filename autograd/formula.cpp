#include "autograd/formula.h"

#include "autograd/formula_text.h"
#include "autograd/op.h"
#include "autograd/support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace tandem {
namespace {

/// A row's text, parsed at most once.
struct ParsedRow {
  FormulaText text;
  std::string fault;
};

ParsedRow parse_row(const OpRow& row) {
  ParsedRow parsed;
  const auto& parameters = parameters_of(row.name);
  if (parameters.empty()) {
    parsed.fault = fmt::format("LibTorch has no op {}", row.name);
    return parsed;
  }
  try {
    parsed.text = parse_formula(row.formula, parameters);
  } catch (const Error& e) {
    parsed.fault = fmt::format("{}: {}", row.name, e.what());
  }
  return parsed;
}

const ParsedRow& parsed(const OpRow& row) {
  static std::mutex mutex;
  static std::unordered_map<const OpRow*, std::unique_ptr<const ParsedRow>> rows;
  const std::lock_guard lock(mutex);
  auto& slot = rows[&row];
  if (!slot) slot = std::make_unique<const ParsedRow>(parse_row(row));
  return *slot;
}

/// The sentence of a formula that does not hold for a node.
struct NotHere {
  std::string why;
};

/// What an expression is at resolution.
struct Resolved {
  enum class Kind : std::uint8_t { open, step, number, text };
  Kind kind = Kind::open;  // open: not resolved yet
  std::int32_t step = -1;  // kind number: -1 until it is needed as a step
  double value = 0;
  std::string_view text;
  std::int32_t argument = -1;  // kind number: that it is the value of
  bool known(double v) const { return kind == Kind::number && value == v; }
};

bool same_step(const Step& a, const Step& b) {
  return a.term == b.term && a.a == b.a && a.b == b.b && a.c == b.c && a.index == b.index &&
         std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value);
}

std::optional<double> number_in(const Constant& c) {
  if (auto* b = std::get_if<bool>(&c)) return *b ? 1.0 : 0.0;
  if (auto* i = std::get_if<std::int64_t>(&c)) return static_cast<double>(*i);
  if (auto* d = std::get_if<double>(&c)) return *d;
  return std::nullopt;
}

bool is_absent(const Argument& a) {
  if (a.kind == Argument::Kind::tensor) return a.values.empty() || a.values[0] < 0;
  return a.kind == Argument::Kind::constant && std::holds_alternative<None>(a.constant);
}

std::optional<double> compare(Term term, double a, double b) {
  switch (term) {
    case Term::lt: return a < b;
    case Term::le: return a <= b;
    case Term::gt: return a > b;
    case Term::ge: return a >= b;
    case Term::eq: return a == b;
    case Term::ne: return a != b;
    case Term::logical_and: return a != 0 && b != 0;
    case Term::logical_or: return a != 0 || b != 0;
    default: return std::nullopt;
  }
}

class Resolver {
 public:
  Resolver(const Graph& g, const Node& n, const FormulaText& text)
      : g_(g), n_(n), text_(text), parameters_(parameters_of(n.op)), resolved_(text.expressions.size()) {}

  Formula run() && {
    if (parameters_.size() != n_.args.size())
      throw NotHere{fmt::format("the op has {} arguments, the node {}", parameters_.size(), n_.args.size())};
    if (n_.results.size() != text_.results.size())
      throw NotHere{fmt::format("the formula gives {} results, the node has {}", text_.results.size(), n_.results.size())};
    for (std::size_t k = 0; k < text_.results.size(); ++k) {
      const bool wanted = text_.results[k] >= 0 && n_.results[k].kind == Argument::Kind::tensor && !is_absent(n_.results[k]);
      out_.results.push_back(wanted ? step(text_.results[k]) : -1);
    }
    return std::move(out_);
  }

 private:
  std::int32_t emit(const Step& s) {
    for (std::size_t i = out_.steps.size(); i-- > 0;)
      if (same_step(out_.steps[i], s)) return static_cast<std::int32_t>(i);
    out_.steps.push_back(s);
    return static_cast<std::int32_t>(out_.steps.size() - 1);
  }

  std::int32_t number(double value) {
    Step s;
    s.value = value;
    return emit(s);
  }

  std::int32_t emit_argument(std::int32_t index) {
    Step s;
    s.term = Term::argument;
    s.index = index;
    return emit(s);
  }

  Resolved of_step(std::int32_t step) { return {Resolved::Kind::step, step, 0, {}, -1}; }
  Resolved of_number(double value) { return {Resolved::Kind::number, -1, value, {}, -1}; }

  const Resolved& resolve(std::int32_t e) {
    Resolved& r = resolved_[static_cast<std::size_t>(e)];
    if (r.kind == Resolved::Kind::open) {
      Resolved made = make(text_.expressions[static_cast<std::size_t>(e)]);
      r = made;
    }
    return r;
  }

  std::int32_t step(std::int32_t e) {
    resolve(e);
    Resolved& r = resolved_[static_cast<std::size_t>(e)];
    if (r.kind == Resolved::Kind::text) throw NotHere{"a text is used as a number"};
    if (r.step < 0) r.step = r.argument >= 0 ? emit_argument(r.argument) : number(r.value);
    return r.step;
  }

  Resolved make(const Expression& e) {
    switch (e.kind) {
      case Expression::Kind::number: return of_number(e.value);
      case Expression::Kind::text: return {Resolved::Kind::text, -1, 0, e.text, -1};
      case Expression::Kind::argument: return argument(e.argument);
      case Expression::Kind::apply: return apply(e);
      case Expression::Kind::choose: return choose(e);
      case Expression::Kind::elements: return of_number(elements(n_.args[static_cast<std::size_t>(e.argument)]));
      case Expression::Kind::refuse: throw NotHere{"the formula does not hold for these arguments"};
    }
    return {};
  }

  double elements(const Argument& a) const {
    if (a.kind != Argument::Kind::tensor || is_absent(a)) return 1;
    double n = 1;
    for (std::int64_t size : g_.values[static_cast<std::size_t>(a.values[0])].sizes) n *= static_cast<double>(size);
    return n;
  }

  Resolved argument(std::int32_t index) {
    const Argument& a = n_.args[static_cast<std::size_t>(index)];
    if (a.kind == Argument::Kind::tensor && !is_absent(a)) return of_step(operand(a.values[0]));
    if (a.kind == Argument::Kind::constant) {
      if (auto* s = std::get_if<std::string>(&a.constant)) return {Resolved::Kind::text, -1, 0, *s, -1};
      if (const auto value = number_in(a.constant)) {
        if (a.scalar >= 0) return of_step(emit_argument(index));
        return {Resolved::Kind::number, -1, *value, {}, index};
      }
    }
    const auto& name = parameters_[static_cast<std::size_t>(index)].name;
    throw NotHere{fmt::format("argument '{}' is {}", name, is_absent(a) ? "absent" : "neither a tensor nor a number")};
  }

  std::int32_t operand(ValueId v) {
    const auto found = std::find(out_.operands.begin(), out_.operands.end(), v);
    Step s;
    s.term = Term::operand;
    s.index = static_cast<std::int32_t>(found - out_.operands.begin());
    if (found == out_.operands.end()) out_.operands.push_back(v);
    return emit(s);
  }

  /// Known conditions: an argument that may be absent is true where it is there.
  std::optional<bool> decided(std::int32_t condition) {
    const Expression& e = text_.expressions[static_cast<std::size_t>(condition)];
    if (e.kind == Expression::Kind::argument && parameters_[static_cast<std::size_t>(e.argument)].optional)
      return !is_absent(n_.args[static_cast<std::size_t>(e.argument)]);
    const Resolved& r = resolve(condition);
    if (r.kind == Resolved::Kind::number) return r.value != 0;
    return std::nullopt;
  }

  Resolved choose(const Expression& e) {
    if (const auto is = decided(e.a)) return resolve(*is ? e.b : e.c);
    return of_step(emit({Term::select, step(e.a), step(e.b), step(e.c)}));
  }

  /// Arithmetic of numbers that the text itself gives; exact, or rounded once more when the number is used.
  static std::optional<double> calculate(Term term, const Resolved& a, const Resolved& b) {
    if (a.argument >= 0 || b.argument >= 0) return std::nullopt;
    switch (term) {
      case Term::add: return a.value + b.value;
      case Term::sub: return a.value - b.value;
      case Term::mul: return a.value * b.value;
      case Term::div: return a.value / b.value;
      default: return std::nullopt;
    }
  }

  /// Whole numbers have one zero only.
  bool is_whole_zero(const Resolved& r) const {
    return r.known(0) && r.argument >= 0 && std::holds_alternative<std::int64_t>(n_.args[static_cast<std::size_t>(r.argument)].constant);
  }

  /// A value that needs no step: comparisons of what is known, the sign of a known number, a factor of one.
  std::optional<Resolved> simpler(const Expression& e) {
    if (e.a < 0) return std::nullopt;
    const Resolved a = resolve(e.a), b = e.b >= 0 ? resolve(e.b) : Resolved{};
    const bool number = a.kind == Resolved::Kind::number;
    if (a.kind == Resolved::Kind::text && b.kind == Resolved::Kind::text && (e.term == Term::eq || e.term == Term::ne))
      return of_number((a.text == b.text) == (e.term == Term::eq));
    if (e.term == Term::neg && number) return of_number(is_whole_zero(a) ? 0 : -a.value);
    if (e.term == Term::logical_not && number) return of_number(a.value == 0);
    if (number && b.kind == Resolved::Kind::number) {
      if (const auto truth = compare(e.term, a.value, b.value)) return of_number(*truth);
      if (const auto value = calculate(e.term, a, b)) return of_number(*value);
    }
    if (e.term == Term::mul && a.known(1)) return b;
    if ((e.term == Term::mul || e.term == Term::div) && b.known(1)) return a;
    if (e.term == Term::fma && (a.known(1) || b.known(1))) return of_step(emit({Term::add, step(a.known(1) ? e.b : e.a), step(e.c)}));
    return std::nullopt;
  }

  Resolved apply(const Expression& e) {
    if (auto r = simpler(e)) return *r;
    Step s;
    s.term = e.term;
    if (e.a >= 0) s.a = step(e.a);
    if (e.b >= 0) s.b = step(e.b);
    if (e.c >= 0) s.c = step(e.c);
    return of_step(emit(s));
  }

  const Graph& g_;
  const Node& n_;
  const FormulaText& text_;
  const std::vector<Parameter>& parameters_;
  std::vector<Resolved> resolved_;  // per expression
  Formula out_;
};

}  // namespace

bool Formula::has(Term term) const {
  return std::any_of(steps.begin(), steps.end(), [term](const Step& s) { return s.term == term; });
}

std::optional<Formula> formula_of(const Graph& graph, const Node& node, std::string* why) {
  const auto refuse = [&](const std::string& reason) {
    if (why) *why = fmt::format("{} has no formula: {}", describe(node), reason);
    return std::nullopt;
  };
  const OpRow* row = find_op(node.op);
  if (!row || row->formula.empty()) return refuse("the op table gives none for its op");
  const ParsedRow& text = parsed(*row);
  if (!text.fault.empty()) return refuse(text.fault);
  try {
    return Resolver(graph, node, text.text).run();
  } catch (const NotHere& n) {
    return refuse(n.why);
  }
}

std::string formula_fault(const OpRow& row) { return row.formula.empty() ? std::string() : parsed(row).fault; }

bool is_reduction(Term t) { return t == Term::row_sum || t == Term::row_max || t == Term::row_min || t == Term::column_sum; }

const char* name_of(Term t) {
  static constexpr const char* names[] = {
      "operand", "number", "argument",    "count",      "neg",     "abs",     "exp",   "log",  "log1p",  "expm1",       "sin",
      "cos",     "tanh",   "sqrt",        "erf",        "floor",   "ceil",    "trunc", "rint", "isnan",  "logical_not", "add",
      "sub",     "mul",    "div",         "pow",        "minimum", "maximum", "fma",   "lt",   "le",     "gt",          "ge",
      "eq",      "ne",     "logical_and", "logical_or", "select",  "sum",     "max",   "min",  "colsum", "matmul",      "arbitrary"};
  static_assert(std::size(names) == static_cast<std::size_t>(Term::arbitrary) + 1);
  return names[static_cast<std::size_t>(t)];
}

}  // namespace tandem
