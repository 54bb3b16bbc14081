// Parts of a graph that run one after another: a forward and its backwards, or what lies between two host reads.
#pragma once

#include "autograd/graph.h"

#include <vector>

namespace tandem {

/// One part, as a graph of its own. Storages, values and nodes keep their numbers; versions start anew. What an earlier part made and this one names
/// has the role `carried`.
struct Segment {
  /// `loss`, `grad_norm`, `outputs` and `gradients` have the places that they have in the whole graph, -1 where another part makes the value. After
  /// the outputs of the whole come the `alive` values, then one value on each storage of `hands_on`.
  Graph graph;
  std::vector<StorageId> takes;     // storages of role carried, ascending
  std::vector<StorageId> hands_on;  // storages that this part makes and a later one names, ascending
};

/// Divides the nodes at the positions `at` (ascending, each the first node of a part). A value that nobody makes (an input that is an output)
/// belongs to the last part. `alive`: further values that the caller reads at the end of the part that makes them. Nothing is folded afterwards: what
/// runs once may be needed in another part. Each part holds by verify() where the whole does.
std::vector<Segment> cut(const Graph& graph, const std::vector<std::size_t>& at, const std::vector<ValueId>& alive = {});

}  // namespace tandem
