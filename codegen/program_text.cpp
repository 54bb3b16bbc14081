// Text form of a Program:
//   tandem program 1
//   kernel k0 "k0" unit 1024 partial 8192 "tandem loop 1\n..." "void k0(...) {...}"
//   view n0
//   library n1
//   kernel n5
//     k0(%4, %5) units 256 chunks 16 scalars $0 $2 nodes n3 n5
#include "autograd/cursor.h"
#include "autograd/text.h"
#include "codegen/program.h"

#include <iterator>

namespace tandem {
namespace {

class Parser : Cursor {
 public:
  using Cursor::Cursor;

  Program run() && {
    Program p;
    expect("tandem program 1");
    expect("\n");
    while (accept("kernel k")) p.kernels.push_back(kernel(p.kernels.size()));
    while (!done()) p.calls.push_back(call(p.kernels.size()));
    return p;
  }

 private:
  Kernel kernel(std::size_t number) {
    Kernel k;
    const std::size_t from = at();
    if (integer<std::int64_t>() != static_cast<std::int64_t>(number)) fail_at(from, fmt::format("the number {}", number));
    expect(" ");
    k.name = string();
    expect(" unit ");
    k.unit_elements = integer<std::int64_t>();
    expect(" partial ");
    k.partial_bytes = integer<std::int64_t>();
    expect(" ");
    k.loop = string();
    expect(" ");
    k.source = string();
    expect("\n");
    return k;
  }

  Call call(std::size_t kernels) {
    Call c;
    c.kind = kind();
    expect(" n");
    c.node = integer<NodeId>();
    expect("\n");
    if (c.kind != Call::Kind::kernel) return c;
    while (accept("  k")) c.launches.push_back(launch(kernels));
    return c;
  }

  Call::Kind kind() {
    for (Call::Kind k : {Call::Kind::library, Call::Kind::view, Call::Kind::once, Call::Kind::kernel})
      if (accept(name_of(k))) return k;
    fail("library, view, once or kernel");
  }

  Launch launch(std::size_t kernels) {
    Launch l;
    const std::size_t from = at();
    l.kernel = integer<std::int32_t>();
    if (l.kernel < 0 || l.kernel >= static_cast<std::int64_t>(kernels)) fail_at(from, "the number of a kernel that is declared above");
    expect("(");
    elements(")", [&] {
      expect("%");
      l.operands.push_back(integer<ValueId>());
    });
    expect(" units ");
    l.units = integer<std::int64_t>();
    expect(" chunks ");
    l.chunks = integer<std::int64_t>();
    expect(" scalars");
    while (accept(" $")) l.scalars.push_back(integer<std::int32_t>());
    expect(" nodes");
    while (accept(" n")) l.nodes.push_back(integer<NodeId>());
    expect("\n");
    return l;
  }
};

template <class Id>
std::string list_text(const char* before, const std::vector<Id>& ids) {
  std::string out;
  for (Id id : ids) fmt::format_to(std::back_inserter(out), "{}{}", before, id);
  return out;
}

}  // namespace

std::string print(const Program& p) {
  std::string out = "tandem program 1\n";
  auto to = std::back_inserter(out);
  for (std::size_t k = 0; k < p.kernels.size(); ++k) {
    const Kernel& kernel = p.kernels[k];
    fmt::format_to(to, "kernel k{} {} unit {} partial {} {} {}\n", k, in_quotes(kernel.name), kernel.unit_elements, kernel.partial_bytes,
                   in_quotes(kernel.loop), in_quotes(kernel.source));
  }
  for (const Call& c : p.calls) {
    fmt::format_to(to, "{} n{}\n", name_of(c.kind), c.node);
    for (const Launch& l : c.launches) {
      const std::string operands = list_text(", %", l.operands);
      fmt::format_to(to, "  k{}({}) units {} chunks {} scalars{} nodes{}\n", l.kernel, operands.empty() ? "" : operands.substr(2), l.units,
                     l.chunks, list_text(" $", l.scalars), list_text(" n", l.nodes));
    }
  }
  return out;
}

Program parse_program(std::string_view text) {
  Program p = Parser(text).run();
  expect_printed_form(text, print(p));
  return p;
}

const char* name_of(Call::Kind kind) {
  switch (kind) {
    case Call::Kind::library: return "library";
    case Call::Kind::view: return "view";
    case Call::Kind::once: return "once";
    case Call::Kind::kernel: return "kernel";
  }
  return "unknown";
}

}  // namespace tandem
