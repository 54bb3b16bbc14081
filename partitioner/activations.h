// What the forward leaves for the backward, in the units in which it can be made again.
//
// A unit is memory that nodes of the forward make, with all nodes that make or write it: an in-place op is of no use without what it writes on,
// so a unit runs again as a whole, on memory of its own. Views belong to no unit: a value on a storage is its geometry.
#pragma once

#include "autograd/graph.h"

#include <vector>

namespace tandem {

struct Unit {
  std::vector<std::size_t> nodes;   // in Graph::nodes, ascending
  std::vector<StorageId> storages;  // that it makes, ascending
  std::vector<StorageId> reads;     // of other units, those that are not kept anyway, ascending
  bool pinned = false;              // may not run again
};

struct Activations {
  std::vector<Unit> units;
  std::vector<std::int32_t> unit_of;  // per storage: the unit that makes it, -1 where the forward does not make it in each step
  std::vector<char> kept;             // per storage: lives on whatever is chosen, so that saving it costs nothing
  std::vector<char> wanted;           // per storage: made by a unit, and a node of the backward or the update reads it
};

/// Pinned is a unit with a node that is unknown, draws random numbers, has effects, may throw or returns a number, that writes memory from
/// before the step, or that reads what has changed when the backward ends; and a unit whose memory a later side reads in another state than
/// when the backward ends.
Activations activations_of(const Graph&);

/// Which units run again on the backward's side.
using Choice = std::vector<char>;

}  // namespace tandem
