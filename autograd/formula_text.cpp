#include "autograd/formula_text.h"

#include "autograd/support/error.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <limits>
#include <map>
#include <optional>

namespace tandem {
namespace {

struct Function {
  Term term;
  int operands;
};

const std::map<std::string_view, Function>& functions() {
  static const std::map<std::string_view, Function> table = {
      {"abs", {Term::abs, 1}},         {"exp", {Term::exp, 1}},         {"log", {Term::log, 1}},      {"log1p", {Term::log1p, 1}},
      {"expm1", {Term::expm1, 1}},     {"sin", {Term::sin, 1}},         {"cos", {Term::cos, 1}},      {"tanh", {Term::tanh, 1}},
      {"sqrt", {Term::sqrt, 1}},       {"erf", {Term::erf, 1}},         {"floor", {Term::floor, 1}},  {"ceil", {Term::ceil, 1}},
      {"trunc", {Term::trunc, 1}},     {"rint", {Term::rint, 1}},       {"isnan", {Term::is_nan, 1}}, {"pow", {Term::pow, 2}},
      {"minimum", {Term::minimum, 2}}, {"maximum", {Term::maximum, 2}}, {"fma", {Term::fma, 3}},      {"matmul", {Term::matmul, 2}},
      {"sum", {Term::row_sum, 1}},     {"max", {Term::row_max, 1}},     {"min", {Term::row_min, 1}},  {"colsum", {Term::column_sum, 1}},
  };
  return table;
}

struct Operator {
  std::string_view sign;
  Term term;
};

/// From the loosest to the tightest binding.
const std::vector<std::vector<Operator>>& operators() {
  static const std::vector<std::vector<Operator>> levels = {
      {{"||", Term::logical_or}},           {{"&&", Term::logical_and}},
      {{"==", Term::eq}, {"!=", Term::ne}}, {{"<=", Term::le}, {">=", Term::ge}, {"<", Term::lt}, {">", Term::gt}},
      {{"+", Term::add}, {"-", Term::sub}}, {{"*", Term::mul}, {"/", Term::div}},
  };
  return levels;
}

class Parser {
 public:
  Parser(std::string_view text, const std::vector<Parameter>& parameters) : text_(text), parameters_(parameters) {}

  FormulaText run() && {
    while (statement()) {
    }
    do {
      skip();
      out_.results.push_back(take("_") ? -1 : expression());
    } while (take("|"));
    skip();
    if (at_ < text_.size()) fail("an operator or the end");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    const auto found = at_ < text_.size() ? fmt::format("'{}'", text_.substr(at_, 12)) : std::string("the end");
    throw Error(fmt::format("formula column {}: expected {}, found {}", at_ + 1, expected, found));
  }

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool take(std::string_view sign) {
    skip();
    if (text_.substr(at_, sign.size()) != sign) return false;
    at_ += sign.size();
    return true;
  }

  void need(std::string_view sign) {
    if (!take(sign)) fail(fmt::format("'{}'", sign));
  }

  std::string_view word() {
    skip();
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  std::int32_t add(Expression e) {
    out_.expressions.push_back(std::move(e));
    return static_cast<std::int32_t>(out_.expressions.size() - 1);
  }
  std::int32_t apply(Term term, std::int32_t a, std::int32_t b = -1, std::int32_t c = -1) {
    return add({Expression::Kind::apply, term, a, b, c, -1, 0, {}});
  }
  std::int32_t number(double value) { return add({Expression::Kind::number, Term::number, -1, -1, -1, -1, value, {}}); }

  /// `name = expression;`, or nothing is taken.
  bool statement() {
    const std::size_t begin = at_;
    const std::string_view name = word();
    skip();
    const bool is = !name.empty() && text_.substr(at_, 1) == "=" && text_.substr(at_, 2) != "==";
    if (!is) return at_ = begin, false;
    ++at_;
    const std::int32_t value = expression();
    need(";");
    names_[name] = value;
    return true;
  }

  std::int32_t expression() {
    const std::int32_t condition = binary(0);
    if (!take("?")) return condition;
    const std::int32_t then = expression();
    need(":");
    const std::int32_t otherwise = expression();
    return add({Expression::Kind::choose, Term::select, condition, then, otherwise, -1, 0, {}});
  }

  std::optional<Term> take_operator(const std::vector<Operator>& level) {
    skip();
    for (const Operator& o : level) {
      if (o.sign == "|" || text_.substr(at_, o.sign.size()) != o.sign) continue;
      at_ += o.sign.size();
      return o.term;
    }
    return std::nullopt;
  }

  std::int32_t binary(std::size_t level) {
    if (level == operators().size()) return unary();
    std::int32_t left = binary(level + 1);
    while (const auto term = take_operator(operators()[level])) {
      const std::int32_t right = binary(level + 1);
      left = apply(*term, left, right);
    }
    return left;
  }

  std::int32_t unary() {
    if (take("-")) return apply(Term::neg, unary());
    if (take("!")) return apply(Term::logical_not, unary());
    return primary();
  }

  std::int32_t primary() {
    skip();
    const char next = at_ < text_.size() ? text_[at_] : '\0';
    if (std::isdigit(static_cast<unsigned char>(next))) return literal();
    if (next == '"') return quoted_text();
    if (take("(")) {
      const std::int32_t inner = expression();
      need(")");
      return inner;
    }
    const std::size_t begin = at_;
    const std::string_view name = word();
    if (name.empty()) fail("a number, a name or '('");
    return take("(") ? call(name, begin) : named(name, begin);
  }

  std::int32_t literal() {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail("a number");
    at_ = static_cast<std::size_t>(end - text_.data());
    return number(value);
  }

  std::int32_t quoted_text() {
    const std::size_t end = text_.find('"', ++at_);
    if (end == std::string_view::npos) fail("'\"'");
    const std::string inner(text_.substr(at_, end - at_));
    at_ = end + 1;
    return add({Expression::Kind::text, Term::number, -1, -1, -1, -1, 0, inner});
  }

  std::int32_t argument(std::string_view name, std::size_t begin) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i].name == name) return static_cast<std::int32_t>(i);
    at_ = begin;
    fail("an argument of the op or an earlier name");
  }

  std::int32_t named(std::string_view name, std::size_t begin) {
    if (auto found = names_.find(name); found != names_.end()) return found->second;
    if (name == "inf") return number(std::numeric_limits<double>::infinity());
    if (name == "count") return apply(Term::count, -1);
    if (name == "arbitrary") return apply(Term::arbitrary, -1);
    if (name == "refuse") return add({Expression::Kind::refuse, Term::number, -1, -1, -1, -1, 0, {}});
    return add({Expression::Kind::argument, Term::argument, -1, -1, -1, argument(name, begin), 0, {}});
  }

  std::int32_t call(std::string_view name, std::size_t begin) {
    if (name == "numel") {
      const std::size_t inner = at_;
      const std::int32_t index = argument(word(), inner);
      need(")");
      return add({Expression::Kind::elements, Term::number, -1, -1, -1, index, 0, {}});
    }
    const auto found = functions().find(name);
    if (found == functions().end()) {
      at_ = begin;
      fail("a function");
    }
    std::int32_t of[3] = {-1, -1, -1};
    for (int i = 0; i < found->second.operands; ++i) {
      if (i > 0) need(",");
      of[i] = expression();
    }
    need(")");
    return apply(found->second.term, of[0], of[1], of[2]);
  }

  std::string_view text_;
  const std::vector<Parameter>& parameters_;
  std::map<std::string_view, std::int32_t> names_;
  std::size_t at_ = 0;
  FormulaText out_;
};

}  // namespace

FormulaText parse_formula(std::string_view text, const std::vector<Parameter>& parameters) { return Parser(text, parameters).run(); }

}  // namespace tandem
