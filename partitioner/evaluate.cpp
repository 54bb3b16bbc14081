#include "partitioner/evaluate.h"

#include "autograd/liveness.h"
#include "partitioner/cost.h"

#include <algorithm>
#include <unordered_map>

namespace tandem {
namespace {

bool touches_nothing(const Group& group) { return group.kind == Group::Kind::view || group.kind == Group::Kind::once; }

Lifetimes lifetimes(const Graph& g, const std::vector<Group>& groups, const std::vector<std::vector<const Node*>>& members) {
  Lifetimes t;
  t.first.assign(g.storages.size(), -1);
  t.last.assign(g.storages.size(), -1);
  std::vector<std::int32_t> only(g.storages.size(), -1);  // the group that touches it; -2: several do
  std::vector<char> folded(g.storages.size(), false);
  std::int32_t boundary = -1;  // the last step before the update
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].kind == Group::Kind::once)
      for (const Node* n : members[i]) for_each_value(n->results, [&](ValueId v) { folded[g.values[v].storage] = true; });
    t.step.push_back(-1);
    if (touches_nothing(groups[i])) continue;
    if (!groups[i].joined || t.steps == 0) ++t.steps;
    t.step.back() = t.steps - 1;
    if (groups[i].side != Side::update) boundary = t.steps - 1;
    auto touch = [&](StorageId s) {
      if (t.first[s] < 0) t.first[s] = t.steps - 1;
      t.last[s] = t.steps - 1;
      const auto group = static_cast<std::int32_t>(i);
      only[s] = only[s] == -1 || only[s] == group ? group : -2;
    };
    for (const Node* n : members[i]) {
      for (const auto* list : {&n->args, &n->results}) for_each_value(*list, [&](ValueId v) { touch(g.values[v].storage); });
      for (StorageId s : n->writes) touch(s);
    }
  }
  t.absent.assign(g.storages.size(), false);
  const std::vector<char> escapes = escaping(g);
  std::vector<char> looked_at = escapes;
  for (const Gradient& gradient : g.gradients) {  // a check looks at them when the update begins
    if (gradient.before < 0) continue;
    const StorageId s = g.values[gradient.before].storage;
    looked_at[s] = true;
    if (t.first[s] >= 0) t.last[s] = std::max(t.last[s], boundary);
  }
  for (std::size_t s = 0; s < g.storages.size(); ++s) {
    if (g.storages[s].role != Role::internal || folded[s]) t.first[s] = t.last[s] = -1;
    if (t.first[s] < 0) continue;
    if (escapes[s]) t.last[s] = t.steps - 1;
    t.absent[s] = only[s] >= 0 && groups[only[s]].kind == Group::Kind::kernel && !looked_at[s];
  }
  return t;
}

}  // namespace

std::vector<std::vector<const Node*>> members_of(const Graph& g, const std::vector<Group>& groups) {
  std::unordered_map<NodeId, const Node*> by_id;
  by_id.reserve(g.nodes.size());
  for (const Node& n : g.nodes) by_id.emplace(n.id, &n);
  std::vector<std::vector<const Node*>> out(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (NodeId id : groups[i].nodes) out[i].push_back(by_id.at(id));
  return out;
}

Lifetimes lifetimes(const Graph& g, const std::vector<Group>& groups) { return lifetimes(g, groups, members_of(g, groups)); }

std::vector<std::int64_t> live_bytes(const Graph& g, const Lifetimes& t) {
  std::vector<std::int64_t> live(static_cast<std::size_t>(t.steps) + 1, 0);
  for (std::size_t s = 0; s < g.storages.size(); ++s) {
    if (t.first[s] < 0 || t.absent[s]) continue;
    live[t.first[s]] += g.storages[s].bytes;
    live[t.last[s] + 1] -= g.storages[s].bytes;
  }
  for (std::size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
  live.pop_back();
  return live;
}

Figures evaluate(const Graph& g, const std::vector<Group>& groups) {
  const auto members = members_of(g, groups);
  const Lifetimes t = lifetimes(g, groups, members);
  Figures f;
  for (std::int64_t live : live_bytes(g, t)) f.peak_bytes = std::max(f.peak_bytes, live);
  const GroupCosts costs(g);
  for (std::size_t i = 0; i < groups.size(); ++i) f.seconds += costs.of(groups[i], members[i], t.absent).seconds();
  return f;
}

}  // namespace tandem
