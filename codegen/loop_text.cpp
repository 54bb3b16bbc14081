// Text form of a Loop:
//   tandem loop 1
//   compute float32
//   sizes [256, 1024] row 1          (a flat loop: sizes [*] row 1)
//   scalars 1
//   p0 float32 read [1024, 1]
//   p1 float32 read written [1024, 1]
//   v0 = load p0
//   v1 = scalar s0
//   v2 = number 0.5
//   v3 = mul v0 v2
//   v4 = sum v3
//   v5 = total sum v3 over [1, 0]
//   v6 = convert float32 v3
//   v7 = store p1 v6
#include "autograd/cursor.h"
#include "autograd/support/error.h"
#include "autograd/text.h"
#include "codegen/loop.h"

#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <iterator>

namespace tandem {
namespace {

using Is = Instruction::Kind;

constexpr Term reductions[] = {Term::row_sum, Term::row_max, Term::row_min};

std::string float_text(double d) {
  const char* sign = std::signbit(d) ? "-" : "";
  if (std::isinf(d)) return fmt::format("{}inf", sign);
  if (std::isnan(d)) {
    const auto payload = std::bit_cast<std::uint64_t>(d) & 0x000fffffffffffff;
    return payload == 0x0008000000000000 ? fmt::format("{}nan", sign) : fmt::format("{}nan(0x{:013x})", sign, payload);
  }
  std::string text = fmt::format("{}", d);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

class Parser : Cursor {
 public:
  using Cursor::Cursor;

  Loop run() && {
    expect("tandem loop 1");
    expect("\n");
    expect("compute ");
    loop_.compute = dtype();
    expect("\n");
    expect("sizes ");
    if (accept("[*]"))
      loop_.sizes = {any_size};
    else
      loop_.sizes = integers();
    expect(" row ");
    loop_.row = integer<std::int32_t>();
    expect("\n");
    expect("scalars ");
    loop_.scalars = integer<std::int32_t>();
    expect("\n");
    while (accept("p")) parameter();
    while (!done()) instruction();
    return std::move(loop_);
  }

 private:
  template <class List>
  void number_in_order(const List& list) {
    const std::size_t from = at();
    if (integer<std::int64_t>() != static_cast<std::int64_t>(list.size())) fail_at(from, fmt::format("the number {}", list.size()));
  }

  c10::ScalarType dtype() {
    const std::size_t from = at();
    c10::ScalarType t;
    if (!parse_dtype(word(is_name), t)) fail_at(from, "a dtype");
    return t;
  }

  void parameter() {
    LoopParameter p;
    number_in_order(loop_.parameters);
    expect(" ");
    p.dtype = dtype();
    p.read = accept(" read");
    p.written = accept(" written");
    expect(" ");
    p.strides = integers();
    expect("\n");
    loop_.parameters.push_back(std::move(p));
  }

  std::int32_t numbered(std::string_view sigil) {
    expect(sigil);
    return integer<std::int32_t>();
  }

  void instruction() {
    expect("v");
    number_in_order(loop_.code);
    expect(" = ");
    Instruction n;
    const std::size_t from = at();
    const std::string_view name = word(is_name);
    if (name == "load") {
      n.kind = Is::load;
      n.index = numbered(" p");
    } else if (name == "scalar") {
      n.kind = Is::scalar;
      n.index = numbered(" s");
    } else if (name == "number") {
      expect(" ");
      n.value = floating();
    } else if (name == "convert") {
      n.kind = Is::convert;
      expect(" ");
      n.dtype = dtype();
      n.a = numbered(" v");
    } else if (name == "store") {
      n.kind = Is::store;
      n.index = numbered(" p");
      n.a = numbered(" v");
    } else if (name == "total") {
      total(n);
    } else {
      step(n, name, from);
    }
    expect("\n");
    loop_.code.push_back(std::move(n));
  }

  void step(Instruction& n, std::string_view name, std::size_t from) {
    n.kind = Is::step;
    for (Term t = Term::operand; t <= Term::arbitrary; t = static_cast<Term>(static_cast<int>(t) + 1)) {
      if (name != name_of(t) || operands_of(t) < 0) continue;
      n.term = t;
      n.a = numbered(" v");
      if (operands_of(t) > 1) n.b = numbered(" v");
      if (operands_of(t) > 2) n.c = numbered(" v");
      return;
    }
    fail_at(from, "an instruction");
  }

  void total(Instruction& n) {
    n.kind = Is::total;
    expect(" ");
    const std::size_t from = at();
    const std::string_view name = word(is_name);
    for (Term t : reductions)
      if (name == name_of(t)) n.term = t;
    if (n.term == Term::number) fail_at(from, "sum, max or min");
    n.a = numbered(" v");
    expect(" over [");
    elements("]", [&] {
      const bool yes = accept("1");
      if (!yes && !accept("0")) fail("0 or 1");
      n.over.push_back(yes);
    });
  }

  Loop loop_;
};

std::string instruction_text(const Instruction& n) {
  switch (n.kind) {
    case Is::load: return fmt::format("load p{}", n.index);
    case Is::scalar: return fmt::format("scalar s{}", n.index);
    case Is::number: return fmt::format("number {}", float_text(n.value));
    case Is::convert: return fmt::format("convert {} v{}", dtype_name(n.dtype), n.a);
    case Is::store: return fmt::format("store p{} v{}", n.index, n.a);
    case Is::total: {
      std::vector<int> marks(n.over.begin(), n.over.end());
      return fmt::format("total {} v{} over [{}]", name_of(n.term), n.a, fmt::join(marks, ", "));
    }
    case Is::step: {
      std::string out = fmt::format("{} v{}", name_of(n.term), n.a);
      if (n.b >= 0) out += fmt::format(" v{}", n.b);
      if (n.c >= 0) out += fmt::format(" v{}", n.c);
      return out;
    }
  }
  return "unknown";
}

}  // namespace

std::string print(const Loop& loop) {
  std::string out = "tandem loop 1\n";
  auto to = std::back_inserter(out);
  fmt::format_to(to, "compute {}\nsizes [", dtype_name(loop.compute));
  if (loop.flat())
    out += '*';
  else
    fmt::format_to(to, "{}", fmt::join(loop.sizes, ", "));
  fmt::format_to(to, "] row {}\nscalars {}\n", loop.row, loop.scalars);
  for (std::size_t p = 0; p < loop.parameters.size(); ++p) {
    const LoopParameter& q = loop.parameters[p];
    fmt::format_to(to, "p{} {}{}{} [{}]\n", p, dtype_name(q.dtype), q.read ? " read" : "", q.written ? " written" : "",
                   fmt::join(q.strides, ", "));
  }
  for (std::size_t i = 0; i < loop.code.size(); ++i) fmt::format_to(to, "v{} = {}\n", i, instruction_text(loop.code[i]));
  return out;
}

Loop parse_loop(std::string_view text) {
  Loop loop = Parser(text).run();
  expect_printed_form(text, print(loop));
  if (const std::string wrong = fault_of(loop); !wrong.empty()) throw Error(fmt::format("text of a loop: {}", wrong));
  return loop;
}

}  // namespace tandem
