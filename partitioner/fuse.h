// Fusion groups: which nodes become one generated loop nest, and the order in which groups run.
#pragma once

#include "partitioner/partition.h"

#include <vector>

namespace tandem {

/// Every node of the graph in exactly one group, in an order of execution that keeps all dependencies: reads of a version before its overwriting,
/// library calls in recorded order, the stretches of each side as recorded. A kernel group holds, in recorded order, at most 64 nodes of one stretch
/// with at most 24 operands outside, whose nests
///   - fit one common space (see nests_of) and have the same compute dtype,
///   - have row reductions over the same innermost dims, whose results other members may read;
///   - have other reductions (over outer or all dims), whose results no member reads;
///   - touch each storage that a member makes or writes in one geometry only, so that an element is read and written in the same turn of the loop.
/// Merged are makers with their readers, and readers of an operand that is half of what one of them moves, unless something that is no member would
/// have to run in between. A lone node that is a loop is a kernel too: a kernel writes into planned memory.
/// Joined are kernels that could all run when the first of them does; on the update side they are brought together for that.
std::vector<Group> fuse(const Graph&, const PartitionSwitches&);

/// One group per node in the graph's order: as eager runs, and what fuse() gives without the switch `fuse`.
std::vector<Group> unfused(const Graph&, const PartitionSwitches&);

/// Whether nothing needs to run for the node: its results are other geometries on its operand's memory.
bool is_only_geometry(const Graph&, const Node&);

}  // namespace tandem
