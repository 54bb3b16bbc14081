#include "runtime/chain.h"

#include "autograd/op.h"
#include "autograd/support/error.h"
#include "runtime/seams.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace tandem {

Chain::Chain(std::vector<Segment> segments, std::size_t outputs, const PlanSwitches& switches, const jit::Settings& jit) {
  std::unordered_map<StorageId, std::size_t> places;
  for (auto& segment : segments) {
    Link link;
    link.first_handed = outputs;
    for (StorageId s : segment.takes) link.takes.push_back({s, places.at(s)});
    for (StorageId s : segment.hands_on) {
      link.hands_on.push_back({s, carried_});
      places[s] = carried_++;
      carried_bytes_ += segment.graph.storages[std::size_t(s)].bytes;
    }
    link.plan = std::make_unique<Plan>(make_plan(segment.graph, switches));
    if (seams().planned) seams().planned(*link.plan);
    for (std::size_t k = 0; k < segment.hands_on.size(); k++) {
      const auto &planned = link.plan->graph, &given = segment.graph;
      const auto &p = planned.values[std::size_t(planned.outputs[outputs + k])], &g = given.values[std::size_t(given.outputs[outputs + k])];
      if (p.storage != g.storage || p.offset != g.offset)
        throw InternalError("a pass has moved memory that one part of a step hands to another");
    }
    link.executor = std::make_unique<Executor>(*link.plan, jit);
    link.bound.storages.resize(link.plan->graph.storages.size());
    links_.push_back(std::move(link));
  }
}

void Chain::run(std::size_t i, const RunInputs& outside, Held& held, const Executor::Probe& probe) {
  auto& link = links_[i];
  const auto& storages = link.plan->graph.storages;
  auto& bound = link.bound.storages;
  for (std::size_t s = 0; s < std::min(bound.size(), outside.storages.size()); s++)
    if (storages[s].role != Role::internal && storages[s].role != Role::carried) bound[s] = outside.storages[s];
  for (const auto& c : link.takes) bound[std::size_t(c.storage)] = {held[c.place], 0};
  link.bound.scalars = outside.scalars;
  struct Unpin {  // nothing of the caller's stays pinned, also when a node throws
    std::vector<Binding>& bound;
    ~Unpin() {
      for (auto& b : bound) b = {};
    }
  } unpin{bound};
  link.executor->run(link.bound, probe);
  const auto& graph = link.plan->graph;
  for (std::size_t k = 0; k < link.hands_on.size(); k++)
    held[link.hands_on[k].place] = link.executor->value(graph.outputs[link.first_handed + k]).storage();
}

const Node* Chain::failed_node(std::size_t link) const {
  const auto& executor = *links_[link].executor;
  const auto call = executor.failed_call();
  return call < 0 ? nullptr : &links_[link].plan->graph.nodes[executor.index().nodes[std::size_t(call)].front()];
}

bool Chain::failed_by_itself(std::size_t link) const {
  const auto* node = failed_node(link);
  if (!node) return true;
  const auto* row = find_op(node->op);
  return row && !may_throw(row->kind);
}

std::uint32_t Chain::bumps_before(std::size_t links, std::size_t failed, Role role, std::int32_t index, std::uint32_t by) const {
  const auto& storages = links_.front().plan->graph.storages;  // those from outside are the same in all parts
  std::uint32_t all = 0, through = 0;
  for_each_node(links, failed, [&](const Node& n, bool ran) {
    for (auto s : n.writes) {
      if (std::size_t(s) >= storages.size() || storages[std::size_t(s)].role != role || storages[std::size_t(s)].index != index) continue;
      all++;
      through += ran;
    }
  });
  return through == all ? (all ? by : 0) : std::min(by, through);  // some kernels write without moving the counter
}

void Chain::end() {
  for (auto& link : links_) link.executor->end();
}

}  // namespace tandem
