#include "codegen/program.h"

#include "autograd/cursor.h"
#include "autograd/support/error.h"
#include "autograd/text.h"

#include <fmt/ranges.h>

#include <iterator>

namespace tandem {
namespace {

Call::Kind kind_of(Group::Kind kind) {
  switch (kind) {
    case Group::Kind::library: return Call::Kind::library;
    case Group::Kind::view: return Call::Kind::view;
    case Group::Kind::once: return Call::Kind::once;
  }
  throw InternalError(fmt::format("a group has the unknown kind {}", static_cast<int>(kind)));
}

/// Reads
///   tandem program 1
///   kernel k0 "add_relu" "void add_relu(...) {...}"
///   view n0
///   library n1
///   kernel n2 k0(%4, %5)
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
    if (c.kind == Call::Kind::kernel) operands(c, kernels);
    expect("\n");
    return c;
  }

  Call::Kind kind() {
    for (Call::Kind k : {Call::Kind::library, Call::Kind::view, Call::Kind::once, Call::Kind::kernel})
      if (accept(name_of(k))) return k;
    fail("library, view, once or kernel");
  }

  void operands(Call& c, std::size_t kernels) {
    expect(" k");
    const std::size_t from = at();
    c.kernel = integer<std::int32_t>();
    if (c.kernel < 0 || c.kernel >= static_cast<std::int64_t>(kernels)) fail_at(from, "the number of a kernel that is declared above");
    expect("(");
    elements(")", [&] {
      expect("%");
      c.operands.push_back(integer<ValueId>());
    });
  }
};

}  // namespace

Program generate(const Graph& graph, const Partition& partition) {
  if (std::string broken = validate(graph, partition); !broken.empty())
    throw InternalError(fmt::format("the partition does not hold: {}", broken));
  Program program;
  program.calls.reserve(graph.nodes.size());
  for (const Group& group : partition.groups)
    for (NodeId node : group.nodes) {
      Call& call = program.calls.emplace_back();
      call.kind = kind_of(group.kind);
      call.node = node;
    }
  return program;
}

std::string print(const Program& p) {
  std::string out = "tandem program 1\n";
  auto to = std::back_inserter(out);
  for (std::size_t k = 0; k < p.kernels.size(); ++k)
    fmt::format_to(to, "kernel k{} {} {}\n", k, quoted(p.kernels[k].name), quoted(p.kernels[k].source));
  for (const Call& c : p.calls) {
    fmt::format_to(to, "{} n{}", name_of(c.kind), c.node);
    if (c.kind == Call::Kind::kernel)
      fmt::format_to(to, " k{}({}{})", c.kernel, c.operands.empty() ? "" : "%", fmt::join(c.operands, ", %"));
    out += '\n';
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
