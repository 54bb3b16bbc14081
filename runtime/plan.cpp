#include "runtime/plan.h"

#include "autograd/support/error.h"
#include "autograd/text.h"
#include "autograd/verify.h"
#include "runtime/lifetimes.h"
#include "runtime/seams.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace tandem {
namespace {

constexpr std::string_view marks[] = {"=== graph\n", "=== partition\n", "=== program\n", "=== memory\n"};

void check(const std::string& stage, const std::string& fault) {
  if (!fault.empty()) throw InternalError(stage + ": " + fault);
}

Plan plan_with(const Graph& captured, const PlanSwitches& switches, std::int64_t limit, std::vector<PassRecord>* records) {
  if (records) records->clear();
  auto [graph, partition] = tandem::partition(run_passes(captured, switches.passes, records), switches.partition);
  check("graph", verify(graph));
  check("partition", validate(graph, partition));
  auto program = generate(graph, partition);
  auto memory = plan_memory(graph, program, switches.memory, limit);
  check("memory", validate(graph, program, memory));
  return {std::move(graph), std::move(partition), std::move(program), std::move(memory)};
}

/// A kernel's text may have been changed, by a test or by hand; what it is run on may not: it would write anywhere.
bool same_launches(const Program& expected, const Program& found) {
  auto alike = [](const Kernel& a, const Kernel& b) {
    return a.name == b.name && a.unit_elements == b.unit_elements && a.partial_bytes == b.partial_bytes;
  };
  return expected.calls == found.calls && expected.kernels.size() == found.kernels.size() &&
         std::equal(expected.kernels.begin(), expected.kernels.end(), found.kernels.begin(), alike);
}

}  // namespace

Plan make_plan(const Graph& captured, const PlanSwitches& switches, std::vector<PassRecord>* records) {
  const auto eager = peak_of(memory_over_step(captured));
  auto plan = plan_with(captured, switches, eager, records);
  if (switches.passes.cse && plan.memory.peak_bytes > eager) {
    // A merged value lives from its first use to its last: never at the price of a higher peak than eager's order has.
    auto without = switches;
    without.passes.cse = false;
    plan = plan_with(captured, without, eager, records);
  }
  if (seams().planned) seams().planned(plan);
  return plan;
}

CallIndex index_calls(const Plan& plan) {
  std::unordered_map<NodeId, std::size_t> at;
  for (std::size_t i = 0; i < plan.graph.nodes.size(); i++) at[plan.graph.nodes[i].id] = i;
  CallIndex index;
  const auto& calls = plan.program.calls;
  index.update_begin = calls.size();
  for (std::size_t k = 0; k < calls.size(); k++) {
    auto& nodes = index.nodes.emplace_back();
    for (const auto& launch : calls[k].launches)
      for (NodeId n : launch.nodes) nodes.push_back(at.at(n));
    if (nodes.empty()) nodes.push_back(at.at(calls[k].node));
    std::sort(nodes.begin(), nodes.end());
    if (plan.graph.nodes[nodes.front()].side == Side::update) index.update_begin = std::min(index.update_begin, k);
  }
  return index;
}

std::string describe_call(const Plan& plan, std::size_t k) {
  const auto& call = plan.program.calls[k];
  const auto& nodes = plan.graph.nodes;
  auto node = [&](NodeId id) -> const Node& {
    return *std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.id == id; });
  };
  if (call.kind != Call::Kind::kernel) return describe(node(call.node));
  constexpr std::size_t most_ops = 6;
  std::string kernels, ops;
  std::size_t covered = 0;
  NodeId first = call.node, last = call.node;
  for (const auto& launch : call.launches) {
    const auto& name = plan.program.kernels[std::size_t(launch.kernel)].name;
    if ((" " + kernels + " ").find(" " + name + " ") == std::string::npos) kernels += (kernels.empty() ? "" : " ") + name;
    for (NodeId n : launch.nodes) {
      first = std::min(first, n);
      last = std::max(last, n);
      if (covered++ >= most_ops) continue;
      const auto& op = node(n).op;
      ops += (ops.empty() ? "" : " ") + op.substr(op.find("::") + 2);
    }
  }
  if (covered > most_ops) ops += fmt::format(" and {} more", covered - most_ops);
  return fmt::format("kernel {} ({}, nodes {} to {}, {})", kernels, ops, first, last, name_of(node(call.node).side));
}

std::string print(const Plan& plan) {
  return std::string(marks[0]) + print(plan.graph) + std::string(marks[1]) + print(plan.partition) + std::string(marks[2]) +
         print(plan.program) + std::string(marks[3]) + print(plan.memory);
}

Plan parse_plan(std::string_view text) {
  std::vector<std::string_view> sections;
  if (text.substr(0, marks[0].size()) == marks[0]) {
    std::size_t from = marks[0].size();
    for (std::size_t i = 1; i < std::size(marks); i++) {
      const auto next = text.find("\n" + std::string(marks[i]), from - 1);
      if (next == text.npos) break;
      sections.push_back(text.substr(from, next + 1 - from));
      from = next + 1 + marks[i].size();
    }
    if (sections.size() + 1 == std::size(marks)) sections.push_back(text.substr(from));
  }
  if (sections.size() != std::size(marks))
    throw Error("text line 1: expected the sections '=== graph', '=== partition', '=== program' and '=== memory', found another text");
  Plan plan;
  plan.graph = parse_graph(sections[0]);
  if (auto fault = verify(plan.graph); !fault.empty()) throw Error("plan: expected a sound graph, found " + fault);
  plan.partition = parse_partition(sections[1]);
  if (auto fault = validate(plan.graph, plan.partition); !fault.empty()) throw Error("plan: expected a sound partition, found " + fault);
  plan.program = parse_program(sections[2]);
  if (!same_launches(generate(plan.graph, plan.partition), plan.program))
    throw Error("plan: expected the calls and launches that its partition gives, found others");
  plan.memory = parse_memory(sections[3]);
  if (auto fault = validate(plan.graph, plan.program, plan.memory); !fault.empty())
    throw Error("plan: expected sound memory, found " + fault);
  return plan;
}

}  // namespace tandem
