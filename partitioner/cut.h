// The cheapest set of activations to save, for a given price of memory.
#pragma once

#include "partitioner/activations.h"

namespace tandem {

/// Minimises seconds of units that run again + seconds_per_byte * bytes of the storages that are saved, exactly: one minimum cut. `seconds`
/// per unit. Where saving and running again cost the same, the unit runs again. Only units that somebody needs are chosen.
Choice cheapest(const Graph&, const Activations&, const std::vector<double>& seconds, double seconds_per_byte);

/// The choice without units whose results nobody would read.
Choice needed_only(const Activations&, const Choice&);

/// Storages that cross from the forward to the backward's side under the choice and are not kept anyway, ascending.
std::vector<StorageId> saved_under(const Activations&, const Choice&);

}  // namespace tandem
