#include "autograd/pass.h"
#include "autograd/passes/facts.h"

#include <algorithm>

namespace tandem {
namespace {

/// Goes backwards over the nodes and knows what is read at or after the current one.
class Liveness {
 public:
  explicit Liveness(const Graph& g) : g_(g), storages_(g.storages.size(), false), values_(g.values.size(), false) {
    for (std::size_t s = 0; s < g.storages.size(); ++s) storages_[s] = g.storages[s].role != Role::internal;  // these outlive the step
    read(g.loss);
    read(g.grad_norm);
    for (ValueId v : g.outputs) read(v);
    for (const Gradient& gradient : g.gradients) {
      read(gradient.value);
      read(gradient.before);
    }
  }

  bool needs(const Node& n) const {
    const bool writes_live = std::any_of(n.writes.begin(), n.writes.end(), [&](StorageId s) { return storages_[s] != 0; });
    if (writes_live) return true;
    bool needed = false;
    for_each_value(n.results, [&](ValueId v) {
      const StorageId s = g_.values[v].storage;
      // A storage has one maker, which whoever reads it at all needs; a view is needed only where that very value is read.
      needed |= reads_storage(g_, n, s) ? values_[v] != 0 : storages_[s] != 0;
    });
    return needed;
  }

  void read_arguments(const Node& n) {
    for_each_value(n.args, [&](ValueId v) { read(v); });
  }

 private:
  void read(ValueId v) {
    if (v < 0) return;
    values_[v] = true;
    storages_[g_.values[v].storage] = true;
  }

  const Graph& g_;
  std::vector<char> storages_, values_;
};

/// Whether dropping the node could be noticed though nothing reads its results.
bool acts(const Node& n) {
  if (n.effects != Effects{}) return true;
  const OpRow* row = find_op(n.op);
  if (!row || row->kind == Kind::random || may_throw(row->kind)) return true;
  return std::any_of(n.results.begin(), n.results.end(), [](const Argument& a) { return a.kind == Argument::Kind::constant; });
}

}  // namespace

Graph dce(const Graph& g) {
  Liveness live(g);
  std::vector<char> kept(g.nodes.size(), false);
  for (std::size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    if (!acts(n) && !live.needs(n)) continue;
    kept[i] = true;
    live.read_arguments(n);
  }
  Graph out = g;
  out.made_by = "dce";
  out.nodes.clear();
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    if (kept[i]) out.nodes.push_back(g.nodes[i]);
  return out;
}

}  // namespace tandem
