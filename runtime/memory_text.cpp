#include "autograd/cursor.h"
#include "runtime/memory.h"

#include <fmt/format.h>

#include <iterator>

namespace tandem {
namespace {

constexpr Home homes[] = {Home::outside, Home::none, Home::arena, Home::own, Home::op, Home::escapes};

/// Reads
///   tandem memory 1
///   arena 4096 peak 5120
///   blas off
///   home s0 arena
///   block s0 at 0 8192 in 1..4
///   block workspace at 8192 512 in 4..4
class Parser : Cursor {
 public:
  using Cursor::Cursor;

  Memory run() && {
    Memory m;
    expect("tandem memory 1\narena ");
    m.arena_bytes = integer<std::int64_t>();
    expect(" peak ");
    m.peak_bytes = integer<std::int64_t>();
    expect("\n");
    m.blas = !accept("blas off\n");
    while (accept("home s")) {
      const std::size_t from = at();
      if (integer<std::int64_t>() != std::int64_t(m.homes.size())) fail_at(from, fmt::format("the number {}", m.homes.size()));
      expect(" ");
      m.homes.push_back(home());
      expect("\n");
    }
    while (!done()) m.blocks.push_back(block());
    return m;
  }

 private:
  Home home() {
    for (Home h : homes)
      if (accept(name_of(h))) return h;
    fail("a home such as arena");
  }

  Block block() {
    Block b;
    expect("block ");
    if (!accept("workspace")) {
      expect("s");
      b.storage = integer<StorageId>();
    }
    expect(" at ");
    b.offset = integer<std::int64_t>();
    expect(" ");
    b.bytes = integer<std::int64_t>();
    expect(" in ");
    b.first = integer<std::int32_t>();
    expect("..");
    b.last = integer<std::int32_t>();
    expect("\n");
    return b;
  }
};

}  // namespace

std::string print(const Memory& m) {
  std::string out = fmt::format("tandem memory 1\narena {} peak {}\n", m.arena_bytes, m.peak_bytes);
  auto to = std::back_inserter(out);
  if (!m.blas) out += "blas off\n";
  for (std::size_t s = 0; s < m.homes.size(); ++s) fmt::format_to(to, "home s{} {}\n", s, name_of(m.homes[s]));
  for (const Block& b : m.blocks)
    fmt::format_to(to, "block {} at {} {} in {}..{}\n", b.storage < 0 ? "workspace" : fmt::format("s{}", b.storage), b.offset, b.bytes,
                   b.first, b.last);
  return out;
}

Memory parse_memory(std::string_view text) {
  Memory m = Parser(text).run();
  expect_printed_form(text, print(m));
  return m;
}

const char* name_of(Home home) {
  switch (home) {
    case Home::outside: return "outside";
    case Home::none: return "none";
    case Home::arena: return "arena";
    case Home::own: return "own";
    case Home::op: return "op";
    case Home::escapes: return "escapes";
  }
  return "unknown";
}

}  // namespace tandem
