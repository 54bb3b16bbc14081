#include "partitioner/recompute.h"

#include <algorithm>
#include <compare>
#include <unordered_map>
#include <utility>

namespace tandem {
namespace {

class Builder {
 public:
  Builder(const Graph& g, const Activations& a, const Choice& choice)
      : g_(g), a_(a), choice_(choice), anchor_(a.units.size(), g.update_begin()) {}

  Recomputation run() && {
    find_anchors();
    Graph& out = out_.graph;
    out = g_;
    const std::vector<Copy> copies = order();
    if (copies.empty()) return std::move(out_);
    out.made_by = "recompute";
    out.nodes.clear();
    for (const Node& n : g_.nodes) next_id_ = std::max(next_id_, n.id + 1);
    auto copy = copies.begin();
    for (std::size_t i = 0; i <= g_.nodes.size(); ++i) {
      for (; copy != copies.end() && copy->before == i; ++copy) add_copy(*copy);
      if (i == g_.nodes.size()) break;
      out.nodes.push_back(g_.nodes[i]);
      if (g_.nodes[i].side == Side::forward || g_.nodes[i].folded) continue;
      for (auto* list : {&out.nodes.back().args, &out.nodes.back().results}) redirect(*list, -1);
      redirect(out.nodes.back().writes, -1);
    }
    return std::move(out_);
  }

 private:
  struct Copy {
    std::size_t before = 0, node = 0;  // positions in Graph::nodes: it runs right before the one, and is made from the other
    std::int32_t unit = -1;
    auto operator<=>(const Copy&) const = default;
  };

  std::int32_t unit_again(StorageId s) const { return a_.unit_of[s] >= 0 && choice_[a_.unit_of[s]] ? a_.unit_of[s] : -1; }

  /// Whether a node of the unit (-1: none, a node of the backward) that names the storage means the copy's memory.
  bool is_redirected(StorageId s, std::int32_t unit) const {
    const std::int32_t made_by = unit_again(s);
    return made_by >= 0 && (made_by == unit || !a_.kept[s]);
  }

  /// A unit runs again before the first node that reads it, and before units that read it; those are met first when going backwards but for
  /// units that read each other, hence the repetition.
  void find_anchors() {
    for (std::size_t i = g_.nodes.size(); i-- > 0;) {
      if (g_.nodes[i].side == Side::forward) continue;
      auto lower = [&](ValueId v) {
        const StorageId s = g_.values[v].storage;
        if (is_redirected(s, -1)) anchor_[a_.unit_of[s]] = std::min(anchor_[a_.unit_of[s]], i);
      };
      for_each_value(g_.nodes[i].args, lower);
      for_each_value(g_.nodes[i].results, lower);
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t u = a_.units.size(); u-- > 0;) {
        if (!choice_[u]) continue;
        for (StorageId s : a_.units[u].reads) {
          const std::int32_t needed = unit_again(s);
          if (needed < 0 || anchor_[needed] <= anchor_[u]) continue;
          anchor_[needed] = anchor_[u];
          changed = true;
        }
      }
    }
  }

  /// What was in order stays in order: a copy reads at the version that its original reads.
  std::vector<Copy> order() const {
    std::vector<Copy> copies;
    for (std::size_t u = 0; u < a_.units.size(); ++u)
      if (choice_[u])
        for (std::size_t i : a_.units[u].nodes) copies.push_back({anchor_[u], i, static_cast<std::int32_t>(u)});
    std::sort(copies.begin(), copies.end());
    return copies;
  }

  void add_copy(const Copy& copy) {
    Node n = g_.nodes[copy.node];
    out_.nodes.push_back({n.id, next_id_});
    n.id = next_id_++;
    n.side = Side::backward;
    n.created.clear();
    redirect(n.args, copy.unit);
    redirect(n.results, copy.unit);
    redirect(n.writes, copy.unit);
    out_.graph.nodes.push_back(std::move(n));
  }

  void redirect(std::vector<Argument>& list, std::int32_t unit) {
    for (Argument& a : list)
      for (ValueId& v : a.values)
        if (v >= 0 && is_redirected(g_.values[v].storage, unit)) v = copy_of_value(v);
  }

  void redirect(std::vector<StorageId>& writes, std::int32_t unit) {
    for (StorageId& s : writes)
      if (is_redirected(s, unit)) s = copy_of_storage(s);
    std::sort(writes.begin(), writes.end());
  }

  StorageId copy_of_storage(StorageId s) {
    const auto [at, made] = storages_.emplace(s, static_cast<StorageId>(out_.graph.storages.size()));
    if (made) out_.graph.storages.push_back(Storage(g_.storages[s]));
    return at->second;
  }

  ValueId copy_of_value(ValueId v) {
    const auto [at, made] = values_.emplace(v, static_cast<ValueId>(out_.graph.values.size()));
    if (made) {
      Value copy = g_.values[v];
      copy.storage = copy_of_storage(copy.storage);
      out_.graph.values.push_back(std::move(copy));
    }
    return at->second;
  }

  const Graph& g_;
  const Activations& a_;
  const Choice& choice_;
  std::vector<std::size_t> anchor_;  // per unit: the node before which it runs again
  NodeId next_id_ = 0;
  std::unordered_map<StorageId, StorageId> storages_;
  std::unordered_map<ValueId, ValueId> values_;
  Recomputation out_;
};

}  // namespace

Recomputation run_again(const Graph& g, const Activations& a, const Choice& choice) { return Builder(g, a, choice).run(); }

}  // namespace tandem
