// The graph in which chosen units run again on the backward's side.
#pragma once

#include "partitioner/activations.h"
#include "partitioner/partition.h"

namespace tandem {

struct Recomputation {
  Graph graph;
  std::vector<Recomputed> nodes;  // ascending by `as`
};

/// Each node of a chosen unit gets a copy of side backward on storages of its own, right before the first node that reads what the unit makes.
/// Nodes of the backward and the update, and other copies, then read, and view, that memory. Values of a storage that is kept anyway stay where they are.
Recomputation run_again(const Graph&, const Activations&, const Choice&);

}  // namespace tandem
