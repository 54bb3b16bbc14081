#include "runtime/plan.h"

#include "autograd/liveness.h"
#include "autograd/support/error.h"
#include "autograd/text.h"
#include "autograd/verify.h"
#include "runtime/lifetimes.h"

#include <unordered_map>

namespace tandem {
namespace {

constexpr std::string_view graph_mark = "=== graph\n", partition_mark = "=== partition\n", program_mark = "=== program\n";

std::vector<std::vector<StorageId>> program_releases(const Graph& graph, const Program& program) {
  std::unordered_map<NodeId, std::size_t> index;
  for (std::size_t i = 0; i < graph.nodes.size(); i++) index[graph.nodes[i].id] = i;
  std::vector<std::size_t> order;
  for (const auto& c : program.calls) {
    const auto found = index.find(c.node);
    if (found == index.end()) throw Error("program: expected a node of the graph, found n" + std::to_string(c.node));
    order.push_back(found->second);
  }
  return releases(graph, order);
}

}  // namespace

Plan plan_with(const Graph& captured, const PlanSwitches& switches, std::vector<PassRecord>* records) {
  if (records) records->clear();
  Plan plan;
  plan.graph = run_passes(captured, switches.passes, records);
  plan.partition = partition(plan.graph, switches.partition);
  if (auto fault = validate(plan.graph, plan.partition); !fault.empty()) throw InternalError("partition: " + fault);
  plan.program = generate(plan.graph, plan.partition);
  plan.releases = program_releases(plan.graph, plan.program);
  return plan;
}

Plan make_plan(const Graph& captured, const PlanSwitches& switches, std::vector<PassRecord>* records) {
  auto plan = plan_with(captured, switches, records);
  if (!switches.passes.cse || peak_of(memory_over_step(plan)) <= peak_of(memory_over_step(captured))) return plan;
  // A merged value lives from its first use to its last: never at the price of a higher peak than eager's order has.
  auto without = switches;
  without.passes.cse = false;
  return plan_with(captured, without, records);
}

std::string print(const Plan& plan) {
  return std::string(graph_mark) + print(plan.graph) + std::string(partition_mark) + print(plan.partition) + std::string(program_mark) +
         print(plan.program);
}

Plan parse_plan(std::string_view text) {
  const auto partition_at = text.find(partition_mark), program_at = text.find(program_mark);
  if (text.substr(0, graph_mark.size()) != graph_mark || partition_at == text.npos || program_at == text.npos || program_at < partition_at)
    throw Error("text line 1: expected the sections '=== graph', '=== partition' and '=== program', found another text");
  Plan plan;
  plan.graph = parse_graph(text.substr(graph_mark.size(), partition_at - graph_mark.size()));
  if (auto fault = verify(plan.graph); !fault.empty()) throw Error("plan: expected a sound graph, found " + fault);
  const auto partition_text = partition_at + partition_mark.size();
  plan.partition = parse_partition(text.substr(partition_text, program_at - partition_text));
  if (auto fault = validate(plan.graph, plan.partition); !fault.empty()) throw Error("plan: expected a sound partition, found " + fault);
  plan.program = parse_program(text.substr(program_at + program_mark.size()));
  plan.releases = program_releases(plan.graph, plan.program);
  return plan;
}

}  // namespace tandem
