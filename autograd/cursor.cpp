#include "autograd/cursor.h"

#include "autograd/support/error.h"
#include "autograd/text.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace tandem {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_printable(char c) { return c >= ' ' && c <= '~'; }

std::ptrdiff_t line_of(std::string_view before) { return 1 + std::count(before.begin(), before.end(), '\n'); }

std::string_view line_at(std::string_view text, std::size_t from) { return text.substr(from, text.find('\n', from) - from); }

}  // namespace

void Cursor::fail_at(std::size_t where, std::string_view expected) const {
  std::string_view rest = text_.substr(where);
  std::string_view word = rest.substr(0, std::min<std::size_t>(rest.find('\n'), 24));
  std::string found = rest.empty() ? "end of text" : word.empty() ? "end of line" : in_quotes(word);
  throw Error(fmt::format("text line {}: expected {}, found {}", line_of(text_.substr(0, where)), expected, found));
}

void Cursor::expect(std::string_view literal) {
  if (accept(literal)) return;
  if (literal == "\n") fail("end of line");
  fail(in_quotes(literal));
}

double Cursor::nan_payload(bool negative) {
  std::uint64_t bits = 0x0008000000000000;
  if (accept("(0x")) {
    std::size_t from = at_;
    bits = integer<std::uint64_t>(16);
    if (bits == 0 || bits >> 52 != 0) fail_at(from, "the 52 bits of a nan");
    expect(")");
  }
  return std::bit_cast<double>(bits | 0x7ff0000000000000 | (negative ? std::uint64_t{1} << 63 : 0));
}

Constant Cursor::number() {
  std::size_t from = at_;
  bool negative = accept("-");
  if (accept("inf")) return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  if (accept("nan")) return nan_payload(negative);
  if (!is_digit(peek())) fail_at(from, "a constant or a tensor");
  std::string_view rest = word([](char c) { return is_digit(c) || c == '.' || c == 'e' || c == '-' || c == '+'; });
  if (rest.find_first_of(".e") == std::string_view::npos) {
    at_ = from;
    return integer<std::int64_t>();
  }
  double value = 0;
  auto [end, error] = std::from_chars(text_.data() + from, rest.data() + rest.size(), value);
  if (error != std::errc() || end != rest.data() + rest.size()) fail_at(from, "a floating number of 64 bits");
  return value;
}

double Cursor::floating() {
  std::size_t from = at_;
  Constant c = number();
  if (auto* d = std::get_if<double>(&c)) return *d;
  fail_at(from, "a floating number");
}

char Cursor::escape() {
  if (accept("n")) return '\n';
  if (accept("\"")) return '"';
  if (accept("\\")) return '\\';
  if (!accept("x")) fail("an escape n, x, \\ or \"");
  std::string_view digits = text_.substr(at_, 2);
  unsigned byte = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
  if (error != std::errc() || digits.size() != 2 || end != digits.data() + 2) fail("two hexadecimal digits");
  at_ += 2;
  return static_cast<char>(byte);
}

std::string Cursor::string() {
  if (!accept("\"")) fail("a quoted string");
  std::string out;
  while (!accept("\"")) {
    if (accept("\\")) {
      out += escape();
      continue;
    }
    if (!is_printable(peek())) fail("a printable character or a closing quote");
    out += text_[at_++];
  }
  return out;
}

c10::Device Cursor::device() {
  std::size_t from = at_;
  std::string_view name = word([](char c) { return c >= 'a' && c <= 'z'; });
  for (std::int8_t i = 0; i < static_cast<std::int8_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES); ++i) {
    auto type = static_cast<c10::DeviceType>(i);
    if (c10::DeviceTypeName(type, /*lower_case=*/true) != name) continue;
    if (!accept(":")) return c10::Device(type);
    auto index = integer<std::int16_t>();
    if (index < 0 || index > (type == c10::DeviceType::CPU ? 0 : 127)) break;
    return c10::Device(type, static_cast<c10::DeviceIndex>(index));
  }
  fail_at(from, "a device");
}

std::vector<std::int64_t> Cursor::integers() {
  std::vector<std::int64_t> list;
  expect("[");
  elements("]", [&] { list.push_back(integer<std::int64_t>()); });
  return list;
}

Constant Cursor::list() {
  std::size_t from = at_;
  expect("[");
  if (peek() == 't' || peek() == 'f') {
    std::vector<bool> bools;
    elements("]", [&] {
      bool yes = accept("true");
      if (!yes && !accept("false")) fail("true or false");
      bools.push_back(yes);
    });
    return bools;
  }
  bool whole = std::holds_alternative<std::int64_t>(number());  // the first element says of what type all are
  at_ = from;
  if (whole) return integers();
  expect("[");
  std::vector<double> floats;
  elements("]", [&] { floats.push_back(floating()); });
  return floats;
}

Constant Cursor::constant() {
  if (accept("none")) return None{};
  if (accept("true")) return true;
  if (accept("false")) return false;
  if (accept("int[]")) return std::vector<std::int64_t>{};
  if (accept("float[]")) return std::vector<double>{};
  if (accept("bool[]")) return std::vector<bool>{};
  if (peek() == '[') return list();
  if (peek() == '"') return string();
  if (accept("device(")) {
    c10::Device d = device();
    expect(")");
    return d;
  }
  if (accept("complex(")) {
    double real = floating();
    expect(", ");
    double imag = floating();
    expect(")");
    return c10::complex<double>(real, imag);
  }
  return number();
}

void expect_printed_form(std::string_view text, std::string_view printed) {
  if (text == printed) return;
  auto differs = std::mismatch(text.begin(), text.end(), printed.begin(), printed.end()).first - text.begin();
  std::string_view common = text.substr(0, static_cast<std::size_t>(differs));
  std::size_t from = common.rfind('\n') + 1;  // npos + 1 is 0: the first line
  throw Error(fmt::format("text line {}: expected `{}`, found `{}`", line_of(common), line_at(printed, from), line_at(text, from)));
}

}  // namespace tandem
