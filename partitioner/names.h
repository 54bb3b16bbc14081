#pragma once

#include "partitioner/partition.h"

namespace tandem {

const char* name_of(Group::Kind);

}  // namespace tandem
