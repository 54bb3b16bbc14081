#include "codegen/c_text.h"

#include "autograd/support/error.h"

#include <fmt/format.h>

#include <cmath>

namespace tandem {
namespace {

using Is = Instruction::Kind;

/// A call of the prelude's function or of the compiler's: "exp" gives exp_f(v0) or __builtin_exp(v0).
std::string call(const char* name, bool own, bool single, const std::string& arguments) {
  if (single && own) return fmt::format("{}_f({})", name, arguments);
  return fmt::format("__builtin_{}{}({})", name, single ? "f" : "", arguments);
}

}  // namespace

const char* c_type(c10::ScalarType t) {
  switch (t) {
    case c10::ScalarType::Float: return "float";
    case c10::ScalarType::Double: return "double";
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte: return "unsigned char";
    case c10::ScalarType::Char: return "signed char";
    case c10::ScalarType::Short: return "short";
    case c10::ScalarType::Int: return "int";
    case c10::ScalarType::Long: return "long";
    default: throw InternalError(fmt::format("a kernel has memory of the dtype {}", c10::toString(t)));
  }
}

std::string c_number(double value, c10::ScalarType compute) {
  const bool single = compute == c10::ScalarType::Float;
  if (single) value = static_cast<double>(static_cast<float>(value));
  const char* sign = std::signbit(value) ? "-" : "";
  if (std::isnan(value)) return fmt::format("({}__builtin_nan{}(\"\"))", sign, single ? "f" : "");
  if (std::isinf(value)) return fmt::format("({}__builtin_inf{}())", sign, single ? "f" : "");
  const bool whole = std::abs(value) < 1e6 && std::trunc(value) == value;
  const std::string digits = whole ? fmt::format("{:.1f}", std::abs(value)) : fmt::format("{:a}", std::abs(value));
  const std::string text = fmt::format("{}{}{}", sign, digits, single ? "f" : "");
  return *sign ? "(" + text + ")" : text;
}

bool is_library_call(Term t) { return t == Term::log1p || t == Term::expm1 || t == Term::sin || t == Term::cos || t == Term::pow; }

std::string c_element(const std::string& value, c10::ScalarType to) {
  if (to == c10::ScalarType::Bool) return fmt::format("(unsigned char)({} != 0)", value);
  const bool narrow = to == c10::ScalarType::Byte || to == c10::ScalarType::Char || to == c10::ScalarType::Short;
  return fmt::format("({}){}{}", c_type(to), narrow ? "(int)" : "", value);
}

std::string c_value(const Instruction& n, c10::ScalarType compute) {
  const bool single = compute == c10::ScalarType::Float;
  const std::string a = fmt::format("v{}", n.a), b = fmt::format("v{}", n.b), c = fmt::format("v{}", n.c);
  if (n.kind == Is::convert) return fmt::format("({}){}", c_type(compute), c_element(a, n.dtype));
  auto infix = [&](const char* sign) { return fmt::format("{} {} {}", a, sign, b); };
  auto truth = [&](const std::string& condition) {
    return fmt::format("{} ? {} : {}", condition, c_number(1, compute), c_number(0, compute));
  };
  switch (n.term) {
    case Term::neg: return "-" + a;
    case Term::abs: return call("fabs", false, single, a);
    case Term::exp: return call("exp", true, single, a);
    case Term::log: return call("log", true, single, a);
    case Term::tanh: return call("tanh", true, single, a);
    case Term::erf: return call("erf", true, single, a);
    case Term::log1p:
    case Term::expm1:
    case Term::sin:
    case Term::cos:
    case Term::sqrt:
    case Term::floor:
    case Term::ceil:
    case Term::trunc:
    case Term::rint: return call(name_of(n.term), false, single, a);
    case Term::pow: return call("pow", false, single, a + ", " + b);
    case Term::fma: return fmt::format("FMA{}({}, {}, {})", single ? "_F" : "", a, b, c);
    case Term::is_nan: return truth(fmt::format("{0} != {0}", a));
    case Term::logical_not: return truth(a + " == 0");
    case Term::add: return infix("+");
    case Term::sub: return infix("-");
    case Term::mul: return infix("*");
    case Term::div: return infix("/");
    case Term::minimum: return fmt::format("({0} < {1}) | ({0} != {0}) ? {0} : {1}", a, b);
    case Term::maximum: return fmt::format("({0} > {1}) | ({0} != {0}) ? {0} : {1}", a, b);
    case Term::lt: return truth(infix("<"));
    case Term::le: return truth(infix("<="));
    case Term::gt: return truth(infix(">"));
    case Term::ge: return truth(infix(">="));
    case Term::eq: return truth(infix("=="));
    case Term::ne: return truth(infix("!="));
    case Term::logical_and: return truth(fmt::format("({} != 0) & ({} != 0)", a, b));
    case Term::logical_or: return truth(fmt::format("({} != 0) | ({} != 0)", a, b));
    case Term::select: return fmt::format("{} != 0 ? {} : {}", a, b, c);
    default: throw InternalError(fmt::format("{} is no arithmetic", name_of(n.term)));
  }
}

}  // namespace tandem
