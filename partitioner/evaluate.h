// What a partition costs: the memory and the modelled time of a step. The one judge of all candidates.
#pragma once

#include "partitioner/partition.h"

#include <vector>

namespace tandem {

/// Per storage when it takes memory, in steps. A step is one group that runs, or several kernel groups that are joined; views are no step, they
/// touch nothing.
struct Lifetimes {
  std::vector<std::int32_t> first, last;  // per storage; -1: never, or not made anew in each step
  std::vector<char> absent;               // per storage: made and used up inside one kernel, so it has no memory
  std::vector<std::int32_t> step;         // per group; -1 where it touches nothing
  std::int32_t steps = 0;
};
Lifetimes lifetimes(const Graph&, const std::vector<Group>&);

/// Bytes of internal storages that are alive in each step; what outlives the step is in it, folded values are not.
std::vector<std::int64_t> live_bytes(const Graph&, const Lifetimes&);

struct Figures {
  std::int64_t peak_bytes = 0;
  double seconds = 0;
  bool operator==(const Figures&) const = default;
};
Figures evaluate(const Graph&, const std::vector<Group>&);

/// The nodes of each group.
std::vector<std::vector<const Node*>> members_of(const Graph&, const std::vector<Group>&);

}  // namespace tandem
