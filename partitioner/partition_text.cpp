// Text form of a Partition:
//   tandem partition 1
//   saved 8 bytes s2 s5
//   recomputed 4 bytes n4 as n12
//   view forward n0
//   kernel forward n1 n2
//   joined kernel forward n3
#include "autograd/cursor.h"
#include "partitioner/partition.h"

#include <iterator>

namespace tandem {
namespace {

constexpr Group::Kind kinds[] = {Group::Kind::library, Group::Kind::view, Group::Kind::once, Group::Kind::kernel};
constexpr Side sides[] = {Side::forward, Side::backward, Side::update};

template <class Id>
std::string list_text(char sigil, const std::vector<Id>& ids) {
  std::string out;
  for (Id id : ids) fmt::format_to(std::back_inserter(out), " {}{}", sigil, id);
  return out;
}

class Parser : Cursor {
 public:
  using Cursor::Cursor;

  Partition run() && {
    Partition p;
    expect("tandem partition 1");
    expect("\n");
    expect("saved ");
    p.saved_bytes = integer<std::int64_t>();
    expect(" bytes");
    p.saved = ids(" s");
    expect("recomputed ");
    p.recomputed_bytes = integer<std::int64_t>();
    expect(" bytes");
    while (accept(" n")) p.recomputed.push_back(recomputed());
    expect("\n");
    while (!done()) p.groups.push_back(group());
    return p;
  }

 private:
  std::vector<std::int32_t> ids(std::string_view sigil) {
    std::vector<std::int32_t> list;
    while (accept(sigil)) list.push_back(integer<std::int32_t>());
    expect("\n");
    return list;
  }

  Recomputed recomputed() {
    Recomputed r;
    r.node = integer<NodeId>();
    expect(" as n");
    r.as = integer<NodeId>();
    return r;
  }

  template <class T, std::size_t N>
  T one_of(const T (&choices)[N], std::string_view what) {
    for (T choice : choices)
      if (accept(name_of(choice))) return choice;
    fail(what);
  }

  Group group() {
    Group g;
    g.joined = accept("joined ");
    g.kind = one_of(kinds, "library, view, once or kernel");
    expect(" ");
    g.side = one_of(sides, "forward, backward or update");
    g.nodes = ids(" n");
    return g;
  }
};

}  // namespace

const char* name_of(Group::Kind kind) {
  switch (kind) {
    case Group::Kind::library: return "library";
    case Group::Kind::view: return "view";
    case Group::Kind::once: return "once";
    case Group::Kind::kernel: return "kernel";
  }
  return "unknown";
}

std::string print(const Partition& p) {
  std::string out = "tandem partition 1\n";
  fmt::format_to(std::back_inserter(out), "saved {} bytes{}\n", p.saved_bytes, list_text('s', p.saved));
  fmt::format_to(std::back_inserter(out), "recomputed {} bytes", p.recomputed_bytes);
  for (const Recomputed& r : p.recomputed) fmt::format_to(std::back_inserter(out), " n{} as n{}", r.node, r.as);
  out += '\n';
  for (const Group& g : p.groups)
    fmt::format_to(std::back_inserter(out), "{}{} {}{}\n", g.joined ? "joined " : "", name_of(g.kind), name_of(g.side),
                   list_text('n', g.nodes));
  return out;
}

Partition parse_partition(std::string_view text) {
  Partition p = Parser(text).run();
  expect_printed_form(text, print(p));
  return p;
}

}  // namespace tandem
