#include "partitioner/activations.h"

#include "autograd/liveness.h"
#include "autograd/op.h"

#include <algorithm>
#include <numeric>

namespace tandem {
namespace {

bool may_repeat(const Node& n) {
  const OpRow* row = find_op(n.op);
  if (!row || row->kind == Kind::random || may_throw(row->kind) || n.effects != Effects{}) return false;
  return std::none_of(n.results.begin(), n.results.end(), [](const Argument& a) { return a.kind == Argument::Kind::constant; });
}

void sort_unique(std::vector<StorageId>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g), born_(g.storages.size(), -1), version_(g.storages.size(), 0), parent_(g.storages.size()) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  Activations run() && {
    find_births();
    keep();
    join();
    number();
    for (std::size_t i = 0; i < g_.nodes.size(); ++i) look(i);
    for (Unit& u : out_.units) sort_unique(u.reads);
    return std::move(out_);
  }

 private:
  StorageId storage(ValueId v) const { return g_.values[v].storage; }

  bool makes(std::size_t node, StorageId s) const { return born_[s] == static_cast<std::int64_t>(node); }

  /// Made in each step by the forward.
  bool is_activation(StorageId s) const { return born_[s] >= 0 && g_.nodes[born_[s]].side == Side::forward && !g_.nodes[born_[s]].folded; }

  /// Births, and the version that each storage has when the backward ends.
  void find_births() {
    for (std::size_t i = 0; i < g_.nodes.size(); ++i) {
      for_each_value(g_.nodes[i].results, [&](ValueId v) {
        if (g_.storage_of(v).role == Role::internal && born_[storage(v)] < 0) born_[storage(v)] = static_cast<std::int64_t>(i);
      });
      if (g_.nodes[i].side != Side::update)
        for (StorageId s : g_.nodes[i].writes) ++version_[s];
    }
  }

  void keep() {
    out_.kept = escaping(g_);
    for (const Gradient& gradient : g_.gradients)
      if (gradient.before >= 0) out_.kept[storage(gradient.before)] = true;
    for (std::size_t s = 0; s < g_.storages.size(); ++s)
      if (!is_activation(static_cast<StorageId>(s))) out_.kept[s] = true;
  }

  StorageId root(StorageId s) {
    while (parent_[s] != s) s = parent_[s] = parent_[parent_[s]];
    return s;
  }

  /// The storages that a node makes or writes belong together.
  std::vector<StorageId> touched(std::size_t i) const {
    std::vector<StorageId> list = g_.nodes[i].writes;
    for_each_value(g_.nodes[i].results, [&](ValueId v) {
      if (makes(i, storage(v))) list.push_back(storage(v));
    });
    return list;
  }

  void join() {
    for (std::size_t i = 0; i < g_.nodes.size(); ++i) {
      if (g_.nodes[i].side != Side::forward || g_.nodes[i].folded) continue;
      const std::vector<StorageId> list = touched(i);
      for (StorageId s : list) parent_[root(s)] = root(list.front());
    }
  }

  void number() {
    out_.unit_of.assign(g_.storages.size(), -1);
    out_.wanted.assign(g_.storages.size(), false);
    std::vector<std::int32_t> unit_of_root(g_.storages.size(), -1);
    for (std::size_t i = 0; i < g_.storages.size(); ++i) {
      const StorageId s = static_cast<StorageId>(i);
      if (!is_activation(s)) continue;
      std::int32_t& unit = unit_of_root[root(s)];
      if (unit < 0) {
        unit = static_cast<std::int32_t>(out_.units.size());
        out_.units.emplace_back();
      }
      out_.unit_of[s] = unit;
      out_.units[unit].storages.push_back(s);
    }
  }

  Unit* unit_of(StorageId s) { return out_.unit_of[s] < 0 ? nullptr : &out_.units[out_.unit_of[s]]; }

  void look(std::size_t i) {
    const Node& n = g_.nodes[i];
    if (n.folded) return;
    if (n.side != Side::forward) return look_later(n);
    const std::vector<StorageId> list = touched(i);
    Unit* own = nullptr;
    for (StorageId s : list)
      if (Unit* u = unit_of(s)) own = u;
    if (!own) return;
    own->nodes.push_back(i);
    own->pinned |= !may_repeat(n);
    for (StorageId s : list) own->pinned |= unit_of(s) != own;  // writes what existed before
    for_each_value(n.args, [&](ValueId v) {
      const StorageId s = storage(v);
      if (unit_of(s) == own) return;
      own->pinned |= g_.values[v].version != version_[s];
      if (!out_.kept[s]) own->reads.push_back(s);
    });
  }

  void look_later(const Node& n) {
    for_each_value(n.args, [&](ValueId v) {
      Unit* u = unit_of(storage(v));
      if (!u) return;
      out_.wanted[storage(v)] = true;
      u->pinned |= g_.values[v].version != version_[storage(v)];
    });
  }

  const Graph& g_;
  std::vector<std::int64_t> born_;     // node that makes it, -1: none does
  std::vector<std::int32_t> version_;  // when the update begins
  std::vector<StorageId> parent_;      // union-find
  Activations out_;
};

}  // namespace

Activations activations_of(const Graph& g) { return Finder(g).run(); }

}  // namespace tandem
