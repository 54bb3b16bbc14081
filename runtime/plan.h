// Everything that is needed to run a step: the graph after the passes, the partition, the program, and when memory is given back.
#pragma once

#include "autograd/pass.h"
#include "codegen/program.h"
#include "partitioner/partition.h"

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct PlanSwitches {
  PassSwitches passes;
  PartitionSwitches partition;
};

struct Plan {
  Graph graph;
  Partition partition;
  Program program;
  std::vector<std::vector<StorageId>> releases;  // per call of the program: internal storages whose last use it is
};

/// Passes, partition, program, lifetimes; each result is validated. Throws InternalError when one is not sound.
Plan make_plan(const Graph& captured, const PlanSwitches& switches, std::vector<PassRecord>* records = nullptr);

/// The plan's graph, partition and program as text; parse_plan(print(p)) prints the same. Throws Error "text line L: ...".
std::string print(const Plan& plan);
Plan parse_plan(std::string_view text);

}  // namespace tandem
