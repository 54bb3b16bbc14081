#include "tests/conformance/samples.h"

#include "tests/conformance/call_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace tandem::test {
namespace {

using c10::ScalarType;
using Shape = std::vector<std::string>;  // per tensor argument, e.g. "[4,37]'"; the last stands for the rest

const std::vector<Shape> base = {{"[4,37]"}};
const std::vector<Shape> small = {{"[]"},  {"[0]"}, {"[3,0]"}, {"[1]"},  {"[1,1]"},  {"[7]"},
                                  {"[8]"}, {"[9]"}, {"[17]"},  {"[33]"}, {"[2,3,5]"}};
const std::vector<Shape> lying = {{"[6,19]'"},         {"[6,19]", "[6,19]'"}, {"[6,19]'", "[6,19]"},
                                  {"[5,9]", "[5,9]*"}, {"[5,9]*", "[5,9]"},   {"[5,9]/"}};
const std::vector<Shape> broadcast = {{"[3,5,7]", "[5,1]", "[7]"}, {"[7]", "[5,1]", "[3,5,7]"}, {"[3,4]", "[]"}, {"[]", "[3]"}};
const std::vector<Shape> long_rows = {{"[3,3000]"}, {"[1000,3]"}, {"[2,40000]"}};
const std::vector<Shape> meeting = {{"[14,14]"}, {"[14,14,14]"}};  // every edge meets every other
const Shape row_each = {"[16,13]"};                                // one edge in each row

/// Tokens for one argument; the first is the usual one.
std::vector<std::string> tokens_for(const c10::Argument& a) {
  const std::string name = a.name();
  auto type = a.type();
  const bool optional = type->kind() == c10::TypeKind::OptionalType;
  if (optional) type = type->castRaw<c10::OptionalType>()->getElementType();
  std::vector<std::string> tokens;
  const auto real = a.real_type()->str();
  if (real.find("Layout") != real.npos || real.find("Device") != real.npos || real.find("Generator") != real.npos || name == "pin_memory")
    return {"none"};
  if (name == "memory_format") return {"none", "1", "0"};
  if (name == "dtype") return {"none", "float64", "float32"};
  if (name == "input_dtype") return {"dtype"};
  if (name == "reduction") return {"1", "0", "2"};
  switch (type->kind()) {
    case c10::TypeKind::NumberType:
      tokens = optional ? Shape{"-0.5", "0.7", "2", "1", "0", "inf", "-inf", "nan", "none"}
                        : Shape{"0.3", "-2", "0", "1", "2", "3", "0.5", "-0.5", "-1", "inf", "-inf", "nan"};
      if (a.default_value() && !optional) tokens.insert(tokens.begin(), fmt::format("{}", a.default_value()->toScalar().toDouble()));
      break;
    case c10::TypeKind::IntType: tokens = {"-1", "0", "1"}; break;
    case c10::TypeKind::FloatType: tokens = {"0.7", "0.0", "1.0"}; break;
    case c10::TypeKind::BoolType: tokens = {"false", "true"}; break;
    case c10::TypeKind::StringType: tokens = {"\"none\"", "\"tanh\""}; break;
    case c10::TypeKind::ListType: tokens = {"[-1]", "[0]", "[0,1]", "[]"}; break;
    default: return {};
  }
  if (optional && tokens.back() != "none") tokens.push_back("none");
  return tokens;
}

/// A text per shape and alternative. `letter`: of the first kind of tensor that the op takes.
class Generator {
 public:
  explicit Generator(const c10::FunctionSchema& schema) : schema_(schema) {
    for (const auto& a : schema.arguments()) {
      const auto type = a.type()->str();
      tensor_.push_back(type.rfind("Tensor", 0) == 0 ? Is::tensor : type.rfind("Optional[Tensor]", 0) == 0 ? Is::maybe_tensor : Is::other);
      tokens_.push_back(tensor_.back() == Is::other ? tokens_for(a) : std::vector<std::string>{});
    }
  }

  std::size_t tensors() const { return static_cast<std::size_t>(std::count(tensor_.begin(), tensor_.end(), Is::tensor)); }
  bool complete() const {
    for (std::size_t i = 0; i < tensor_.size(); ++i)
      if (tensor_[i] == Is::other && tokens_[i].empty()) return false;
    return true;
  }

  /// The usual tokens for the n-th shape of a list, so that the alternatives come round.
  std::string text(const Shape& shape, const std::string& letters, std::size_t n) const {
    return made(
        shape, letters, [&](std::size_t i) { return tokens_[i][n % tokens_[i].size()]; }, n % 3 == 2);
  }

  /// Each alternative of each argument while the others have their usual token.
  std::vector<std::string> alternatives(const Shape& shape, const std::string& letters) const {
    std::set<std::string> texts;
    for (std::size_t k = 0; k < tokens_.size(); ++k)
      for (std::size_t alternative = 0; alternative < std::max<std::size_t>(tokens_[k].size(), 1); ++alternative)
        texts.insert(made(
            shape, letters, [&](std::size_t i) { return tokens_[i][i == k ? alternative : 0]; }, false));
    texts.insert(made(
        shape, letters, [&](std::size_t i) { return tokens_[i][0]; }, true));
    return {texts.begin(), texts.end()};
  }

 private:
  enum class Is { tensor, maybe_tensor, other };

  template <class F>
  std::string made(const Shape& shape, const std::string& letters, F&& token, bool with_optional) const {
    std::vector<std::string> out;
    std::size_t tensor = 0;
    for (std::size_t i = 0; i < tensor_.size(); ++i) {
      if (tensor_[i] == Is::other) {
        out.push_back(token(i));
      } else if (tensor_[i] == Is::maybe_tensor && !with_optional) {
        out.push_back("none");
      } else {
        const std::string& name = schema_.arguments()[i].name();
        const bool mask = name == "mask" || name == "condition";
        const std::string letter = mask ? "m" : letters.substr(std::min(tensor, letters.size() - 1), 1);
        out.push_back(letter + shape[std::min(tensor, shape.size() - 1)]);
        ++tensor;
      }
    }
    return fmt::format("{}", fmt::join(out, " "));
  }

  const c10::FunctionSchema& schema_;
  std::vector<Is> tensor_;
  std::vector<std::vector<std::string>> tokens_;  // per argument that is no tensor
};

class Collector {
 public:
  explicit Collector(const OpRow& row) : row_(row), op_(handle_of(row.name)) {}

  /// Whether the op takes the call.
  bool add(const std::string& text, const Setting& setting, bool plain = false) {
    const std::string about = fmt::format("{}({}) {}{}{}", row_.name, text, c10::toString(setting.dtype),
                                          setting.fill == Fill::edges ? ", edges" : "", setting.swapped ? ", swapped" : "");
    if (!seen_.insert(about).second) return true;
    Values arguments, tried;
    try {
      arguments = parse_call(op_.schema(), text, setting);
      tried = with_tensors(arguments, copy_of);
      call(op_, tried);
    } catch (const std::exception&) {
      return false;
    }
    const auto before = tensors_in(arguments), after = tensors_in(tried);
    for (std::size_t i = 0; i < before.size(); ++i)
      if (before[i].defined() && before[i].sizes() != after[i].sizes()) return false;  // an out= argument of another size
    samples_.push_back({std::move(arguments), about, plain});
    return true;
  }

  void own(const std::vector<std::string>& texts) {
    for (const auto& text : texts) {
      if (!add(text, {}, text == texts.front()))
        throw std::runtime_error(fmt::format("{} does not take its own sample: {}", row_.name, text));
      add(text, {.swapped = true});
      add(text, {.fill = Fill::edges});
      add(text, {.dtype = ScalarType::Double});
      add(text, {.dtype = ScalarType::Double, .fill = Fill::edges});
      add(text, {.dtype = ScalarType::BFloat16});
      add(text, {.dtype = ScalarType::Long});
    }
  }

  void generate() {
    const Generator g(op_.schema());
    if (!g.complete()) return;
    const bool floats = !g.tensors() || add(g.text(base[0], "x", 0), {}, true);
    if (floats) {
      for (const auto& text : g.alternatives(base[0], "x")) add(text, {});
      for (const char* letters : {"p", "u"}) each(g, base, letters, {});
      for (const auto* shapes : {&small, &lying}) each(g, *shapes, "x", {});
      if (g.tensors() > 1 && row_.kind != Kind::softmax) each(g, broadcast, "x", {});
      if (row_.kind == Kind::reduction || row_.kind == Kind::softmax) {
        each(g, long_rows, "x", {});
        for (const char* letters : {"f", "t", "h", "k"}) each(g, {row_each, {"[9,3000]"}, {"[2,40000]"}}, letters, {});
        for (const auto& text : g.alternatives(row_each, "x")) add(text, {.fill = Fill::edges});
        add(g.text(row_each, "x", 0), {.dtype = ScalarType::Double, .fill = Fill::edges});
      }
      for (const auto& text : g.alternatives(meeting[g.tensors() > 2], "x")) add(text, {.fill = Fill::edges});
      if (g.tensors() > 1) mixed(g);
      for (const auto dtype : {ScalarType::Double, ScalarType::BFloat16}) {
        for (const auto* shapes : {&base, &lying}) each(g, *shapes, "x", {.dtype = dtype});
        add(g.text(meeting[g.tensors() > 2], "x", 0), {.dtype = dtype, .fill = Fill::edges});
        add(g.text({"[9]"}, "p", 0), {.dtype = dtype});
      }
    }
    for (const auto dtype : {ScalarType::Long, ScalarType::Int})
      for (const auto& shape : {base[0], small[1], small[8]})
        if (!is_backward()) add(g.text(shape, "w", 0), {.dtype = dtype});
    for (const auto* shapes : {&base, &small, &lying}) each(g, *shapes, "m", {});
    if (row_.kind != Kind::softmax) each(g, broadcast, "m", {});
  }

  std::vector<Sample> take() { return std::move(samples_); }

 private:
  void each(const Generator& g, const std::vector<Shape>& shapes, const std::string& letters, const Setting& setting) {
    for (std::size_t n = 0; n < shapes.size(); ++n) add(g.text(shapes[n], letters, n), setting);
  }

  /// Nothing calls a backward with whole numbers; LibTorch itself divides by zero in some.
  bool is_backward() const { return op_.schema().arguments().front().name().rfind("grad", 0) == 0; }

  /// Operands of different dtypes.
  void mixed(const Generator& g) {
    for (const std::string other : {":float64[4,7]", ":float64[]", ":bfloat16[4,7]", ":int64[4,7]", ":bool[4,7]"}) {
      if (is_backward() && other[1] != 'f' && other[2] != 'f') continue;
      add(g.text({"[4,7]", other}, "xw", 0), {});
      add(g.text({other, "[4,7]"}, "wx", 0), {});
    }
  }

  const OpRow& row_;
  c10::OperatorHandle op_;
  std::set<std::string> seen_;
  std::vector<Sample> samples_;
};

}  // namespace

std::vector<Sample> samples_of(const OpRow& row) {
  Collector c(row);
  const auto texts = own_texts(row.name);
  texts.empty() ? c.generate() : c.own(texts);
  return c.take();
}

}  // namespace tandem::test
