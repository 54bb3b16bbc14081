// Everything that is needed to run a step: the graph after the passes, the partition, the program, and where each storage lies.
#pragma once

#include "autograd/pass.h"
#include "codegen/program.h"
#include "partitioner/partition.h"
#include "runtime/memory.h"

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct PlanSwitches {
  PassSwitches passes;
  PartitionSwitches partition;
  MemorySwitches memory;
};

struct Plan {
  Graph graph;  // recomputed nodes are nodes of their own
  Partition partition;
  Program program;
  Memory memory;
};

/// Passes, partition, program, memory; each result is validated. Throws InternalError when one is not sound.
Plan make_plan(const Graph& captured, const PlanSwitches& switches, std::vector<PassRecord>* records = nullptr);

/// How the nodes of a plan map to its calls.
struct CallIndex {
  std::vector<std::vector<std::size_t>> nodes;  // per call: indices of the graph's nodes that it covers, in order
  std::size_t update_begin = 0;                 // the first call of the update side; calls.size() when there is none
};
CallIndex index_calls(const Plan& plan);

/// "node 12 aten::mm (backward)", or for a kernel "kernel k3 (mul.Tensor add.Tensor, nodes 12 to 15, backward)".
std::string describe_call(const Plan& plan, std::size_t call);

/// The plan's parts as text; parse_plan(print(p)) prints the same. Throws Error "text line L: ...".
std::string print(const Plan& plan);
Plan parse_plan(std::string_view text);

}  // namespace tandem
