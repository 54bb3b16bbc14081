#include "autograd/text.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cmath>

namespace tandem {

namespace {

constexpr std::size_t dtype_count = static_cast<std::size_t>(c10::ScalarType::Undefined);

std::array<std::string, dtype_count> make_dtype_names() {
  std::array<std::string, dtype_count> names;
  for (std::size_t i = 0; i < dtype_count; ++i) {
    names[i] = c10::toString(static_cast<c10::ScalarType>(i));
    for (char& c : names[i])
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  using S = c10::ScalarType;
  const std::pair<S, const char*> usual[] = {
      {S::Byte, "uint8"},
      {S::Char, "int8"},
      {S::Short, "int16"},
      {S::Int, "int32"},
      {S::Long, "int64"},
      {S::Half, "float16"},
      {S::Float, "float32"},
      {S::Double, "float64"},
      {S::ComplexHalf, "complex32"},
      {S::ComplexFloat, "complex64"},
      {S::ComplexDouble, "complex128"},
  };
  for (auto& [type, name] : usual) names[static_cast<std::size_t>(type)] = name;
  return names;
}

const std::array<std::string, dtype_count>& dtype_names() {
  static const auto names = make_dtype_names();
  return names;
}

std::string float_text(double d) {
  const char* sign = std::signbit(d) ? "-" : "";
  if (std::isinf(d)) return fmt::format("{}inf", sign);
  if (std::isnan(d)) {
    auto payload = std::bit_cast<std::uint64_t>(d) & 0x000fffffffffffff;
    if (payload == 0x0008000000000000) return fmt::format("{}nan", sign);
    return fmt::format("{}nan(0x{:013x})", sign, payload);
  }
  std::string text = fmt::format("{}", d);  // the shortest that reads back as the same number
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

const char* bool_text(bool b) { return b ? "true" : "false"; }

template <class List, class Show>
std::string list_text(const char* type, const List& list, Show&& show) {
  if (list.empty()) return fmt::format("{}[]", type);
  std::string out = "[";
  for (auto element : list) fmt::format_to(std::back_inserter(out), "{}{}", out.size() > 1 ? ", " : "", show(element));
  return out + "]";
}

struct ConstantText {
  std::string operator()(const None&) const { return "none"; }
  std::string operator()(bool b) const { return bool_text(b); }
  std::string operator()(std::int64_t i) const { return fmt::format("{}", i); }
  std::string operator()(double d) const { return float_text(d); }
  std::string operator()(const c10::complex<double>& z) const {
    return fmt::format("complex({}, {})", float_text(z.real()), float_text(z.imag()));
  }
  std::string operator()(const std::string& s) const { return in_quotes(s); }
  std::string operator()(const c10::Device& d) const { return fmt::format("device({})", d.str()); }
  std::string operator()(const std::vector<std::int64_t>& v) const {
    return list_text("int", v, [](std::int64_t i) { return i; });
  }
  std::string operator()(const std::vector<double>& v) const { return list_text("float", v, float_text); }
  std::string operator()(const std::vector<bool>& v) const { return list_text("bool", v, bool_text); }
};

std::string value_text(ValueId v) { return v == -1 ? "undefined" : fmt::format("%{}", v); }

std::string argument_text(const Argument& a) {
  if (a.kind == Argument::Kind::tensor && a.values.size() == 1) return value_text(a.values[0]);
  if (a.kind != Argument::Kind::constant) {
    std::string out = "{";
    for (ValueId v : a.values) fmt::format_to(std::back_inserter(out), "{}{}", out.size() > 1 ? ", " : "", value_text(v));
    return out + "}";
  }
  std::string out = a.wrapped ? "wrapped " : "";
  if (a.scalar != -1) fmt::format_to(std::back_inserter(out), "${}=", a.scalar);
  return out + std::visit(ConstantText{}, a.constant);
}

std::string arguments_text(const std::vector<Argument>& list) {
  std::string out = "(";
  for (auto& a : list) {
    if (out.size() > 1) out += ", ";
    out += argument_text(a);
  }
  return out + ")";
}

/// What is out of the ordinary about a node: "{writes s3; random}", or nothing.
std::string marks_text(const Node& n) {
  std::string out;
  auto mark = [&](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  if (!n.writes.empty()) mark(fmt::format("writes s{}", fmt::join(n.writes, " s")));
  if (n.effects.random) mark("random");
  if (n.effects.collective) mark("collective");
  if (n.effects.opaque) mark("opaque");
  if (n.effects.host_read) mark("host_read");
  if (n.folded) mark("folded");
  if (n.stream != 0) mark(fmt::format("stream {}", n.stream));
  if (n.workspace != 0) mark(fmt::format("workspace {}", n.workspace));
  if (!n.ran_for.empty()) mark("for " + in_quotes(n.ran_for));
  if (!n.created.empty()) {
    std::string made = "made";
    for (auto& name : n.created) made += " " + in_quotes(name);
    mark(made);
  }
  return out.empty() ? out : " {" + out + "}";
}

std::string op_text(const std::string& op) {
  for (char c : op)
    if (!is_op_char(c)) return in_quotes(op);
  return op.empty() ? in_quotes(op) : op;
}

/// Writes the lines. Storages, values and scalars come in the order of their ids, each no later than the first line that names it.
class Printer {
 public:
  explicit Printer(const Graph& g) : g_(g) {}

  std::string run() && {
    line("tandem graph 1");
    if (!g_.made_by.empty()) line("made_by {}", in_quotes(g_.made_by));
    for (auto& n : g_.nodes) {
      declare(n);
      line("{}", print(g_, n));
    }
    scalars_to(static_cast<std::int64_t>(g_.scalars.size()) - 1);
    values_to(static_cast<std::int64_t>(g_.values.size()) - 1);
    storages_to(static_cast<std::int64_t>(g_.storages.size()) - 1);
    if (g_.loss != -1) line("loss {}", value_text(g_.loss));
    for (ValueId v : g_.outputs) line("output {}", value_text(v));
    for (auto& x : g_.gradients)
      line("gradient {} {} {}{}", x.leaf, in_quotes(x.name), value_text(x.value), x.before == -1 ? "" : " before " + value_text(x.before));
    if (g_.grad_norm != -1) line("norm {}", value_text(g_.grad_norm));
    return std::move(out_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void declare(const Node& n) {
    for (auto* list : {&n.args, &n.results})
      for (auto& a : *list) {
        if (a.kind == Argument::Kind::constant) scalars_to(a.scalar);
        for (ValueId v : a.values) values_to(v);
      }
    for (StorageId s : n.writes) storages_to(s);
  }

  void storages_to(std::int64_t last) {
    for (; static_cast<std::int64_t>(storages_) <= last && storages_ < g_.storages.size(); ++storages_) {
      auto& s = g_.storages[storages_];
      bool plain = s.role == Role::internal && s.index == 0 && s.name.empty();
      std::string who = plain ? "" : fmt::format(" {} {}", s.index, in_quotes(s.name));
      line("storage s{} {}{} {} {}", storages_, name_of(s.role), who, s.device.str(), s.bytes);
    }
  }

  void values_to(std::int64_t last) {
    for (; static_cast<std::int64_t>(values_) <= last && values_ < g_.values.size(); ++values_) {
      auto& v = g_.values[values_];
      storages_to(v.storage);
      line("%{} = s{}@{} {} [{}] [{}] +{}{}{}{}", values_, v.storage, v.version, dtype_name(v.dtype), fmt::join(v.sizes, ", "),
           fmt::join(v.strides, ", "), v.offset, v.conj ? " conj" : "", v.neg ? " neg" : "", v.zero ? " zero" : "");
    }
  }

  void scalars_to(std::int64_t last) {
    for (; static_cast<std::int64_t>(scalars_) <= last && scalars_ < g_.scalars.size(); ++scalars_) {
      const auto& s = g_.scalars[scalars_];
      line("scalar ${} {} {}{}", scalars_, in_quotes(s.name), float_text(s.recorded), s.integral ? " integral" : "");
    }
  }

  const Graph& g_;
  std::string out_;
  std::size_t storages_ = 0, values_ = 0, scalars_ = 0;  // how many are written
};

}  // namespace

std::string print(const Graph& g) { return Printer(g).run(); }

std::string print(const Graph&, const Node& n) {
  return fmt::format("n{} {} {} = {}{}{}", n.id, name_of(n.side), arguments_text(n.results), op_text(n.op), arguments_text(n.args),
                     marks_text(n));
}

const char* dtype_name(c10::ScalarType t) {
  auto i = static_cast<std::size_t>(t);
  return i < dtype_count ? dtype_names()[i].c_str() : "undefined";
}

bool parse_dtype(std::string_view name, c10::ScalarType& out) {
  for (std::size_t i = 0; i < dtype_count; ++i)
    if (dtype_names()[i] == name) {
      out = static_cast<c10::ScalarType>(i);
      return true;
    }
  return false;
}

std::string in_quotes(std::string_view bytes) {
  std::string out = "\"";
  for (char c : bytes) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (byte < 0x20 || byte >= 0x7f)
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    else
      out += c;
  }
  return out + '"';
}

bool is_op_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':' || c == '.';
}

}  // namespace tandem
