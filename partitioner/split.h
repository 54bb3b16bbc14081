// Kernels against memory: a kernel runs where its last node stands, so what its first nodes read is kept until then.
#pragma once

#include "partitioner/partition.h"

#include <vector>

namespace tandem {

/// Splits kernels that hold memory at the peak, and takes apart what is joined there, until the peak is within the bound or nothing is left to split.
/// The groups are put in order anew. The result may still be above the bound.
std::vector<Group> split_to_fit(const Graph&, std::vector<Group>, std::int64_t peak_bound, const PartitionSwitches&);

}  // namespace tandem
