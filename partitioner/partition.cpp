#include "partitioner/partition.h"

#include "partitioner/candidates.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

/// Internal storages that the forward makes in each step and a later side reads.
std::vector<StorageId> crossing(const Graph& g) {
  std::vector<char> known(g.storages.size(), false), made(g.storages.size(), false), read(g.storages.size(), false);
  for (const Node& n : g.nodes) {
    for_each_value(n.results, [&](ValueId v) {
      const StorageId s = g.values[v].storage;
      if (!known[s]) made[s] = g.storages[s].role == Role::internal && n.side == Side::forward && !n.folded;
      known[s] = true;
    });
    if (n.side != Side::forward) for_each_value(n.args, [&](ValueId v) { read[g.values[v].storage] = true; });
  }
  std::vector<StorageId> list;
  for (std::size_t s = 0; s < g.storages.size(); ++s)
    if (made[s] && read[s]) list.push_back(static_cast<StorageId>(s));
  return list;
}

}  // namespace

Partitioned partition(const Graph& g, const PartitionSwitches& switches) {
  const Activations activations = activations_of(g);
  std::vector<Candidate> list = candidates(g, activations, switches);
  Candidate& best = list[best_of(list, list.front().figures.peak_bytes)];
  Recomputation again = run_again(g, activations, best.choice);

  Partitioned out;
  Partition& p = out.partition;
  p.groups = std::move(best.groups);
  p.recomputed = std::move(again.nodes);
  out.graph = std::move(again.graph);
  p.saved = crossing(out.graph);
  for (StorageId s : p.saved) p.saved_bytes += out.graph.storages[s].bytes;
  for (std::size_t s = g.storages.size(); s < out.graph.storages.size(); ++s) p.recomputed_bytes += out.graph.storages[s].bytes;
  return out;
}

}  // namespace tandem
