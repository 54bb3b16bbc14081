// Where each storage of a step lies: the arena with its offsets, and what cannot lie there.
#pragma once

#include "codegen/program.h"
#include "runtime/packing.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

enum class Home : std::uint8_t {
  outside,  // exists before the step, or is made once at activation
  none,     // lives inside a kernel only
  arena,    // at a planned offset
  own,      // allocated before the call that makes it, given back after its last use
  op,       // as own, but the op itself allocates it: it has no way to write into given memory
  escapes,  // handed to the caller: a buffer of its own, used again when the caller has let go of it
};

/// From which call of the program through which a storage is in use, both included.
struct Block {
  StorageId storage = -1;  // -1: workspace of the kernels of call `first`
  std::int32_t first = 0, last = 0;
  std::int64_t bytes = 0, offset = 0;
  bool operator==(const Block&) const = default;
};

struct Memory {
  std::vector<Home> homes;    // per storage
  std::vector<Block> blocks;  // those in the arena, by storage, then the workspaces by call
  std::int64_t arena_bytes = 0;
  std::int64_t peak_bytes = 0;  // the arena, in use all step, and the most that lives beside it
  bool blas = true;             // matrix products in given memory are calls of BLAS
  bool operator==(const Memory&) const = default;
};

struct MemorySwitches {
  bool arena = true;
  bool blas = true;  // matrix products by BLAS, which write into given memory
};

/// Lifetimes, homes, offsets. `limit`: bytes that the step may need at most where that can be had: storages leave the arena, largest first, while
/// what lives beside the arena at other times makes the sum higher.
Memory plan_memory(const Graph& graph, const Program& program, const MemorySwitches& switches, std::int64_t limit);

/// Which internal storages each call touches, and when each is touched first and last (-1: never). Values inside a kernel are not touched.
struct StorageUses {
  std::vector<std::vector<StorageId>> of_call;
  std::vector<std::int32_t> first, last;  // a gradient is held until the update begins
};
StorageUses storage_uses(const Graph& graph, const Program& program);

/// Of the partial sums of the call's launches, each launch aligned.
std::int64_t workspace_bytes(const Program& program, const Call& call);

/// Per call: storages of homes own and op whose last use it is.
std::vector<std::vector<StorageId>> releases(const Graph& graph, const Program& program, const Memory& memory);

/// Bytes alive in each call: blocks of the arena by their lifetimes, and the rest.
std::vector<double> live_bytes(const Graph& graph, const Program& program, const Memory& memory);

/// Empty when sound, otherwise one sentence: everything a call reads or writes is where it can be, blocks cover every use, and do not overlap.
/// Knows nothing of plan_memory().
std::string validate(const Graph& graph, const Program& program, const Memory& memory);

/// Whether a library call of the node can write into given memory: by BLAS, an out= overload, or because nothing needs to run.
bool writes_given_memory(const Graph& graph, const Node& node, const MemorySwitches& switches);

std::string print(const Memory&);
Memory parse_memory(std::string_view text);  // throws Error "text line L: expected X, found Y"

const char* name_of(Home);

}  // namespace tandem
