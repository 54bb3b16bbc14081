#include "partitioner/partition.h"

#include "autograd/op.h"

namespace tandem {
namespace {

/// Whether the results are nothing but other geometries on the first tensor argument's memory, so that no call is needed to make them.
bool is_only_geometry(const Graph& g, const Node& n) {
  const OpRow* row = find_op(n.op);
  if (!row || row->kind != Kind::view || !n.writes.empty() || n.effects != Effects{}) return false;
  ValueId base = -1;
  for_each_value(n.args, [&](ValueId v) { base = base < 0 ? v : base; });
  bool only = base >= 0 && !n.results.empty();
  for (const Argument& a : n.results) only &= a.kind != Argument::Kind::constant;
  for_each_value(n.results, [&](ValueId v) {
    only &= base >= 0 && g.values[v].storage == g.values[base].storage && g.values[v].version == g.values[base].version;
  });
  return only;
}

Group::Kind kind_of(const Graph& g, const Node& n, const PartitionSwitches& switches) {
  if (n.folded) return Group::Kind::once;
  return switches.skip_views && is_only_geometry(g, n) ? Group::Kind::view : Group::Kind::library;
}

/// Per storage, whether a forward node makes it anew in each step.
std::vector<char> made_by_forward(const Graph& g) {
  std::vector<char> made(g.storages.size(), false), seen(g.storages.size(), false);
  for (const Node& n : g.nodes)
    for_each_value(n.results, [&](ValueId v) {
      const StorageId s = g.values[v].storage;
      if (!seen[s]) made[s] = g.storages[s].role == Role::internal && n.side == Side::forward && !n.folded;
      seen[s] = true;
    });
  return made;
}

}  // namespace

Partition partition(const Graph& g, const PartitionSwitches& switches) {
  Partition p;
  const std::vector<char> activation = made_by_forward(g);
  std::vector<char> read_later(g.storages.size(), false);
  for (const Node& n : g.nodes) {
    p.groups.push_back({kind_of(g, n, switches), n.side, {n.id}});
    if (n.side != Side::forward) for_each_value(n.args, [&](ValueId v) { read_later[g.values[v].storage] = true; });
  }
  for (std::size_t s = 0; s < g.storages.size(); ++s) {
    if (!activation[s] || !read_later[s]) continue;
    p.saved.push_back(static_cast<StorageId>(s));
    p.saved_bytes += g.storages[s].bytes;
  }
  return p;
}

}  // namespace tandem
