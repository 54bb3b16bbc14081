// The part of validate() that looks at what runs again.
#pragma once

#include "partitioner/partition.h"

#include <string>

namespace tandem {

/// Empty when each copy computes what its original computes, in memory that copies made; otherwise one sentence. That operands are at their version
/// when the copy runs is for validate() to see.
std::string wrong_copy(const Graph&, const Partition&);

}  // namespace tandem
