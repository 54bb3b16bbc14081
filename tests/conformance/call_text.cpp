#include "tests/conformance/call_text.h"

#include "autograd/text.h"
#include "tests/conformance/call.h"

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/List.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_as_complex.h>

#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace tandem::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::array<double, 14> edges = {nan, inf, -inf, 0.0, -0.0, 1e-41, -1e-41, 3e38, -1.5, 0.5, 3.0, -3.0, 100.0, -100.0};

[[noreturn]] void fail(std::string_view token, const std::string& why) {
  throw std::runtime_error("sample: token '" + std::string(token) + "' " + why);
}

/// Numbers of about N(0, 1.5), the same on every machine.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  double unit() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<double>(state_ >> 11) * 0x1p-53;
  }
  double normal() { return (unit() + unit() + unit() + unit() - 2) * 2.6; }

 private:
  std::uint64_t state_;
};

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  int depth = 0;
  bool quoted = false;
  std::size_t from = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : by;
    if (c == '"') quoted = !quoted;
    depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (quoted || depth > 0 || c != by) continue;
    if (i > from) parts.push_back(text.substr(from, i - from));
    from = i + 1;
  }
  return parts;
}

std::vector<std::int64_t> integers(std::string_view list) {
  std::vector<std::int64_t> out;
  for (auto part : split(list.substr(1, list.size() - 2), ',')) out.push_back(std::stoll(std::string(part)));
  return out;
}

class Parser {
 public:
  Parser(const Setting& setting, Values before) : setting_(setting), before_(std::move(before)) {}

  c10::IValue parse(std::string_view token, const c10::Type& type) {
    if (auto optional = type.cast<c10::OptionalType>()) return token == "none" ? c10::IValue() : parse(token, *optional->getElementType());
    if (token.front() == '$') return before_.at(std::stoul(std::string(token.substr(1))));
    if (token == "none") return c10::IValue();
    switch (type.kind()) {
      case c10::TypeKind::TensorType: return is_number(token) ? wrapped(token) : c10::IValue(tensor(token));
      case c10::TypeKind::ListType: return list(token, *type.castRaw<c10::ListType>()->getElementType());
      case c10::TypeKind::BoolType: return token == "true";
      case c10::TypeKind::StringType: return std::string(token.substr(1, token.size() - 2));
      case c10::TypeKind::FloatType: return std::stod(std::string(token));
      case c10::TypeKind::DeviceObjType: return c10::Device(c10::DeviceType::CPU);
      default: return number(token);
    }
  }

 private:
  static bool is_number(std::string_view t) {
    return std::isdigit(static_cast<unsigned char>(t.front())) || t.front() == '-' || t == "nan" || t == "inf" || t == "true" ||
           t == "false";
  }

  c10::IValue number(std::string_view t) const {
    if (t == "true" || t == "false") return t == "true";
    if (t == "dtype") return static_cast<std::int64_t>(setting_.dtype);
    c10::ScalarType dtype;
    if (!is_number(t) && parse_dtype(t, dtype)) return static_cast<std::int64_t>(dtype);
    if (!is_number(t)) fail(t, "is no number");
    const std::string text(t);
    if (text.find_first_of(".enif") != text.npos) return std::stod(text);
    return static_cast<std::int64_t>(std::stoll(text));
  }

  c10::IValue wrapped(std::string_view t) const {
    at::Tensor made = c10::scalar_to_tensor(number(t).toScalar());
    made.unsafeGetTensorImpl()->set_wrapped_number(true);
    return made;
  }

  c10::IValue list(std::string_view t, const c10::Type& element) {
    const auto inner = t.substr(1, t.size() - 2);
    if (element.kind() == c10::TypeKind::TensorType) {
      c10::List<at::Tensor> out;
      for (auto part : split(inner, ' ')) out.push_back(tensor(part));
      return out;
    }
    if (element.kind() == c10::TypeKind::OptionalType) {
      c10::List<std::optional<at::Tensor>> out;
      for (auto part : split(inner, ' ')) out.push_back(part == "none" ? std::nullopt : std::optional(tensor(part)));
      return out;
    }
    if (element.kind() == c10::TypeKind::BoolType) {
      c10::List<bool> out;
      for (auto part : split(inner, ',')) out.push_back(part == "true");
      return out;
    }
    return integers(t);
  }

  at::Tensor tensor(std::string_view t) {
    const auto open = t.find('['), close = t.find(']');
    if (open == t.npos || close == t.npos) fail(t, "is no tensor");
    std::string_view what = t.substr(0, open), layout = t.substr(close + 1);
    auto dtype = setting_.dtype;
    if (const auto colon = what.find(':'); colon != what.npos) {
      if (!parse_dtype(what.substr(colon + 1), dtype)) fail(t, "has no dtype");
      what = what.substr(0, colon);
    }
    auto sizes = integers(t.substr(open, close - open + 1));
    const char lies = layout.empty() ? (setting_.swapped ? '\'' : ' ') : layout.front();
    return laid_out(what, dtype, sizes, lies);
  }

  at::Tensor laid_out(std::string_view what, c10::ScalarType dtype, std::vector<std::int64_t> sizes, char lies) {
    const std::size_t dims = sizes.size();
    if (lies == '\'' && dims >= 2) {
      std::swap(sizes[dims - 1], sizes[dims - 2]);
      return filled(what, dtype, sizes).transpose(-1, -2);
    }
    if (lies == '*' && dims >= 1) {
      auto row = sizes;
      row[0] = 1;
      return filled(what, dtype, row).expand(sizes);
    }
    if (lies == '/' && dims >= 1) {
      auto wide = sizes;
      wide.back() = 2 * wide.back() + 1;
      return filled(what, dtype, wide).slice(static_cast<std::int64_t>(dims) - 1, 1, std::nullopt, 2);
    }
    return filled(what, dtype, sizes);
  }

  at::Tensor filled(std::string_view what, c10::ScalarType dtype, const std::vector<std::int64_t>& sizes) {
    if (what == "c") {
      auto parts = sizes;
      parts.push_back(2);
      return at::view_as_complex(filled("x", dtype == at::kDouble ? dtype : at::kFloat, parts));
    }
    at::Tensor t = at::empty(sizes, at::kDouble);
    double* p = t.mutable_data_ptr<double>();
    Numbers numbers(++count_);
    const std::int64_t n = t.numel(), row = sizes.empty() ? 1 : std::max<std::int64_t>(sizes.back(), 1);
    for (std::int64_t e = 0; e < n; ++e) p[e] = value(what, numbers, e, n, row);
    if (what == "m") return t.to(at::kBool);
    if (what.front() == 'i') return t.to(at::kLong);
    return t.to(dtype);
  }

  /// Edges of a tensor with at least 14 * 14 elements: all of them meet all of the tensor before. Of a smaller one: one in each row.
  double value(std::string_view what, Numbers& numbers, std::int64_t e, std::int64_t n, std::int64_t row) const {
    const double normal = numbers.normal(), unit = numbers.unit();
    double x = normal;
    if (setting_.fill == Fill::edges) {
      std::int64_t step = 1;
      for (std::int64_t k = 1; k < count_; ++k) step *= 14;
      if (row == 14 && n >= 14 * step)
        x = edges[static_cast<std::size_t>(e / step % 14)];
      else if (e % row == e / row % row)
        x = edges[static_cast<std::size_t>((e / row + count_) % 14)];
    }
    switch (what.front()) {
      case 'x': return x;
      case 'p': return std::fabs(x) + (x == normal ? 0.25 : 0);
      case 'f': return 1000 + x;
      case 't': return x * 1e-20;
      case 'h': return x * 1e18;
      case 'k': return 0.7;
      case 'u': return unit;
      case 'm': return unit < 0.5;
      case 'w': return std::floor(unit * 7) - 3;
      case 'i': return std::floor(unit * std::stod(std::string(what.substr(1))));
      default: fail(what, "is no kind of tensor");
    }
  }

  Setting setting_;
  Values before_;
  std::int64_t count_ = 0;
};

Values parse(const c10::FunctionSchema& schema, std::string_view text, const Setting& setting, Values before) {
  Parser parser(setting, std::move(before));
  const auto tokens = split(text, ' ');
  const auto& arguments = schema.arguments();
  if (tokens.size() > arguments.size()) throw std::runtime_error("sample: too many tokens for " + schema.name() + ": " + std::string(text));
  Values out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (i < tokens.size())
      out.push_back(parser.parse(tokens[i], *arguments[i].real_type()));
    else if (arguments[i].default_value())
      out.push_back(*arguments[i].default_value());
    else
      throw std::runtime_error("sample: no token for " + schema.name() + " " + arguments[i].name());
  }
  return out;
}

}  // namespace

std::vector<c10::IValue> parse_call(const c10::FunctionSchema& schema, std::string_view text, const Setting& setting) {
  const auto arrow = text.find(" => ");
  if (arrow == text.npos) return parse(schema, text, setting, {});
  const auto space = text.find(' ');
  const auto before = handle_of(text.substr(0, space));
  return parse(schema, text.substr(arrow + 4), setting,
               call(before, parse(before.schema(), text.substr(space + 1, arrow - space - 1), setting, {})));
}

}  // namespace tandem::test
