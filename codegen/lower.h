// From a fusion group to a loop: one kernel and what it runs on.
#pragma once

#include "codegen/loop.h"
#include "partitioner/nest.h"

#include <functional>
#include <vector>

namespace tandem {

/// A node of the group as a loop nest. All members have the same sizes and compute dtype.
struct Member {
  const Node* node = nullptr;
  Nest nest;
};

/// A kernel, and how it is run for one group. What the members compute for each other alone is never stored.
struct Lowered {
  Loop loop;
  std::int64_t units = 0, chunks = 1;
  std::vector<ValueId> operands;      // per parameter
  std::vector<std::int32_t> scalars;  // per s[i] the graph's run-time scalar
};

/// Whether anybody outside the group may read the storage at this version or a later one.
using ReadOutside = std::function<bool(StorageId, std::int32_t version)>;

/// Throws InternalError when the members do not fit into one loop (see fuse.h).
Lowered lower(const Graph& graph, const std::vector<Member>& members, const ReadOutside& read_outside);

/// The dims of a loop whose instructions and parameters still have the dims of a nest.
struct Space {
  std::vector<std::int64_t> sizes;
  std::vector<bool> row;  // dims that row reductions run over; none: the kernel has no row reductions
};

/// Orders the dims by the memory that the parameters touch, those of the row last, and merges neighbours where all accesses allow. Fills sizes and row.
void collapse(Loop& loop, const Space& space);

/// In how many parts a loop with totals is run: a function of sizes alone.
std::int64_t chunks_of(const Loop& loop, std::int64_t units);

}  // namespace tandem
