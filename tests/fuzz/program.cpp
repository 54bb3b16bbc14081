#include "tests/fuzz/program.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace tandem::fuzz {
namespace {

using Kind = Argument::Kind;

constexpr std::pair<at::ScalarType, const char*> dtypes[] = {{at::kFloat, "float32"}, {at::kDouble, "float64"}, {at::kBFloat16, "bfloat16"},
                                                             {at::kHalf, "float16"},  {at::kLong, "int64"},     {at::kInt, "int32"},
                                                             {at::kByte, "uint8"},    {at::kBool, "bool"}};

constexpr const char* roles[] = {"parameter", "buffer", "input"};

std::string print(const Argument& a) {
  switch (a.kind) {
    case Kind::none: return "none";
    case Kind::boolean: return a.integer ? "true" : "false";
    case Kind::integer: return std::to_string(a.integer);
    case Kind::batch: return (a.integer == 1 ? "" : std::to_string(a.integer)) + "b";
    case Kind::number: {
      auto s = fmt::format("{}", a.number);
      return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
    }
    case Kind::text: return '"' + a.text + '"';
    case Kind::dtype: return std::string(":") + name_of(at::ScalarType(a.integer));
    case Kind::value: return a.text;
    case Kind::training: return "training";
    case Kind::list: {
      std::string s;
      for (const auto& item : a.items) s += (s.empty() ? "" : ", ") + print(item);
      return "[" + s + "]";
    }
  }
  return "";
}

std::string print_options(const std::map<std::string, double>& options) {
  std::string s;
  for (const auto& [name, v] : options) s += fmt::format(" {}={}", name, v);
  return s;
}

/// One line of the text, read from left to right.
class Line {
 public:
  Line(std::string_view s, int number) : s_(s), number_(number) {}

  [[noreturn]] void expected(const std::string& what) {
    const auto rest = s_.substr(std::min(at_, s_.size()));
    throw std::invalid_argument(fmt::format("line {}: expected {}, found '{}'", number_, what, rest.empty() ? "the end" : rest));
  }
  void skip_blanks() {
    while (at_ < s_.size() && s_[at_] == ' ') at_++;
  }
  bool at_end() {
    skip_blanks();
    return at_ >= s_.size();
  }
  bool take(std::string_view what) {
    skip_blanks();
    if (s_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  void need(std::string_view what) {
    if (!take(what)) expected("'" + std::string(what) + "'");
  }
  std::string word() {
    skip_blanks();
    const auto begin = at_;
    while (at_ < s_.size() && (std::isalnum(static_cast<unsigned char>(s_[at_])) || s_[at_] == '_' || s_[at_] == ':' || s_[at_] == '.'))
      at_++;
    if (begin == at_) expected("a name");
    return std::string(s_.substr(begin, at_ - begin));
  }
  std::string number_text() {
    skip_blanks();
    const auto begin = at_;
    while (at_ < s_.size() && (std::isalnum(static_cast<unsigned char>(s_[at_])) || s_[at_] == '.' || s_[at_] == '-' || s_[at_] == '+'))
      at_++;
    return std::string(s_.substr(begin, at_ - begin));
  }
  double real() {
    const auto t = number_text();
    char* end = nullptr;
    const double v = std::strtod(t.c_str(), &end);
    if (t.empty() || *end) expected("a number");
    return v;
  }
  Argument argument();
  std::vector<Argument> arguments(std::string_view close) {
    std::vector<Argument> out;
    if (take(close)) return out;
    do out.push_back(argument());
    while (take(","));
    need(close);
    return out;
  }
  std::map<std::string, double> options() {
    std::map<std::string, double> out;
    while (!at_end()) {
      auto name = word();
      need("=");
      out[name] = real();
    }
    return out;
  }

 private:
  Argument numeric();
  std::string_view s_;
  std::size_t at_ = 0;
  int number_;
};

Argument Line::numeric() {
  auto t = number_text();
  if (!t.empty() && t.back() == 'b') return batches(t == "b" ? 1 : std::atoll(t.c_str()));
  char* end = nullptr;
  const double v = std::strtod(t.c_str(), &end);
  if (t.empty() || *end) expected("an argument");
  if (t.find_first_of(".en") == std::string::npos) return whole(std::atoll(t.c_str()));
  return fuzz::real(v);
}

Argument Line::argument() {
  skip_blanks();
  const char c = at_ < s_.size() ? s_[at_] : ' ';
  if (take("[")) return list(arguments("]"));
  if (take(":")) {
    const auto name = word();
    for (const auto& [t, n] : dtypes)
      if (n == name) return type(t);
    expected("a dtype before");
  }
  if (take("\"")) {
    const auto end = s_.find('"', at_);
    if (end == std::string_view::npos) expected("a closing quote");
    auto t = in_quotes(std::string(s_.substr(at_, end - at_)));
    at_ = end + 1;
    return t;
  }
  if (std::isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '+') return numeric();
  const auto w = word();
  if (w == "b") return batches(1);
  if (w == "none") return nothing();
  if (w == "true" || w == "false") return truth(w == "true");
  if (w == "training") return {.kind = Kind::training};
  if (w == "inf" || w == "nan") return fuzz::real(w == "inf" ? HUGE_VAL : std::nan(""));
  return named(w);
}

Outside parse_outside(Line& line, int role) {
  Outside o;
  o.role = Outside::Role(role);
  o.name = line.word();
  line.need(":");
  const auto name = line.word();
  bool known = false;
  for (const auto& [type, n] : dtypes)
    if (name == n) o.dtype = type, known = true;
  if (!known) line.expected("a dtype before");
  line.need("[");
  o.sizes = line.arguments("]");
  if (line.take("below")) o.below = std::int64_t(line.real());
  o.channels_last = line.take("channels_last");
  return o;
}

std::vector<std::string> names(Line& line) {
  std::vector<std::string> out;
  while (!line.at_end()) {
    out.push_back(line.word());
    line.take(",");
  }
  return out;
}

Statement parse_statement(Line& line) {
  Statement s;
  if (!line.take("=")) {
    do s.results.push_back(line.word());
    while (line.take(","));
    line.need("=");
  }
  s.no_grad = line.take("nograd ");
  s.op = line.word();
  line.need("(");
  s.arguments = line.arguments(")");
  return s;
}

Step parse_step(Line& line) {
  Step s;
  line.need("b=");
  s.batch = std::int64_t(line.real());
  if (line.take("lr=")) s.lr = line.real();
  s.training = !line.take("eval");
  return s;
}

void parse_line(Program& p, Line& line) {
  if (line.take("program ")) return void(p.seed = std::stoull(line.number_text()));
  if (line.take("options ")) return void(p.options = line.options());
  if (line.take("optimizer ")) {
    p.optimizer = line.word();
    p.hyper = line.options();
    return;
  }
  for (int r = 0; r < 3; r++)
    if (line.take(std::string(roles[r]) + " ")) return p.outside.push_back(parse_outside(line, r));
  if (line.take("layer ")) {
    Layer l{line.word(), line.word(), {}};
    line.need("(");
    for (const auto& a : line.arguments(")")) l.arguments.push_back(a.integer);
    return p.layers.push_back(std::move(l));
  }
  if (line.take("loss ")) return void(p.losses = names(line));
  if (line.take("outputs ")) return void(p.outputs = names(line));
  if (line.take("step ")) return p.steps.push_back(parse_step(line));
  p.statements.push_back(parse_statement(line));
}

}  // namespace

Argument nothing() { return {}; }
Argument truth(bool b) { return {.kind = Kind::boolean, .integer = b}; }
Argument whole(std::int64_t i) { return {.kind = Kind::integer, .integer = i}; }
Argument batches(std::int64_t i) { return {.kind = Kind::batch, .integer = i}; }
Argument real(double d) { return {.kind = Kind::number, .number = d}; }
Argument in_quotes(std::string s) { return {.kind = Kind::text, .text = std::move(s)}; }
Argument named(std::string s) { return {.kind = Kind::value, .text = std::move(s)}; }
Argument type(at::ScalarType t) { return {.kind = Kind::dtype, .integer = std::int64_t(t)}; }
Argument list(std::vector<Argument> items) { return {.kind = Kind::list, .items = std::move(items)}; }

const char* name_of(at::ScalarType type) {
  for (const auto& [t, n] : dtypes)
    if (t == type) return n;
  throw std::invalid_argument(fmt::format("expected a dtype that programs have, found {}", c10::toString(type)));
}

std::string print(const Statement& s) {
  std::string arguments;
  for (const auto& a : s.arguments) arguments += (arguments.empty() ? "" : ", ") + print(a);
  return fmt::format("{} = {}{}({})", fmt::join(s.results, ", "), s.no_grad ? "nograd " : "", s.op, arguments);
}

std::string print(const Program& p) {
  auto s = fmt::format("program {}\n", p.seed);
  if (!p.options.empty()) s += "options" + print_options(p.options) + "\n";
  s += "optimizer " + p.optimizer + print_options(p.hyper) + "\n";
  for (const auto& o : p.outside) {
    s += fmt::format("{} {} :{} {}", roles[int(o.role)], o.name, name_of(o.dtype), print(list(o.sizes)));
    if (!at::isFloatingType(o.dtype)) s += fmt::format(" below {}", o.below);
    s += o.channels_last ? " channels_last\n" : "\n";
  }
  for (const auto& l : p.layers) s += fmt::format("layer {} {}({})\n", l.name, l.kind, fmt::join(l.arguments, ", "));
  for (const auto& t : p.statements) s += print(t) + "\n";
  s += fmt::format("loss {}\n", fmt::join(p.losses, ", "));
  if (!p.outputs.empty()) s += fmt::format("outputs {}\n", fmt::join(p.outputs, ", "));
  for (const auto& t : p.steps)
    s += fmt::format("step b={}{}{}\n", t.batch, t.lr ? fmt::format(" lr={}", *t.lr) : "", t.training ? "" : " eval");
  return s;
}

Program parse(std::string_view text) {
  Program p;
  int number = 0;
  std::istringstream lines{std::string(text)};
  for (std::string s; std::getline(lines, s);) {
    Line line(s, ++number);
    if (line.at_end() || line.take("#")) continue;
    parse_line(p, line);
    if (!line.at_end()) line.expected("the end of the line");
  }
  return p;
}

}  // namespace tandem::fuzz
