#include "autograd/segment.h"

#include "autograd/support/error.h"

#include <algorithm>

namespace tandem {
namespace {

class Cutter {
 public:
  Cutter(const Graph& g, const std::vector<std::size_t>& at, const std::vector<ValueId>& alive) : g_(g), alive_(alive), begins_{0} {
    begins_.insert(begins_.end(), at.begin(), at.end());
    begins_.push_back(g.nodes.size());
    if (!std::is_sorted(begins_.begin(), begins_.end())) throw InternalError("a graph is cut at positions that are not ascending");
    walk();
  }

  std::vector<Segment> run() {
    std::vector<Segment> out;
    for (std::size_t p = 0; p < parts(); ++p) out.push_back(part(p));
    return out;
  }

 private:
  std::size_t parts() const { return begins_.size() - 1; }
  StorageId storage(ValueId v) const { return g_.values[static_cast<std::size_t>(v)].storage; }
  bool internal(StorageId s) const { return g_.storages[static_cast<std::size_t>(s)].role == Role::internal; }

  /// Per part the versions at its begin and what it names; per version of a storage the part that makes it.
  void walk() {
    const std::size_t n = g_.storages.size();
    born_.assign(n, -1);
    made_by_.resize(n);
    last_named_.assign(n, -1);
    std::vector<std::int32_t> version(n, 0);
    for (std::size_t p = 0; p < parts(); ++p) {
      versions_.push_back(version);
      named_.emplace_back(n, false);
      auto name = [&](StorageId s) {
        named_[p][static_cast<std::size_t>(s)] = true;
        last_named_[static_cast<std::size_t>(s)] = static_cast<std::int32_t>(p);
      };
      for (std::size_t i = begins_[p]; i < begins_[p + 1]; ++i) {
        for_each_value(g_.nodes[i].args, [&](ValueId v) { name(storage(v)); });
        for_each_value(g_.nodes[i].results, [&](ValueId v) {
          name(storage(v));
          if (auto& born = born_[static_cast<std::size_t>(storage(v))]; born < 0) born = static_cast<std::int32_t>(p);
        });
        for (StorageId s : g_.nodes[i].writes) {
          name(s);
          ++version[static_cast<std::size_t>(s)];
          made_by_[static_cast<std::size_t>(s)].push_back(static_cast<std::int32_t>(p));
        }
      }
    }
    versions_.push_back(version);
  }

  std::size_t maker_of(ValueId v) const {
    const auto s = static_cast<std::size_t>(storage(v));
    const auto version = static_cast<std::size_t>(g_.values[static_cast<std::size_t>(v)].version);
    if (version > 0 && version <= made_by_[s].size()) return static_cast<std::size_t>(made_by_[s][version - 1]);
    return internal(storage(v)) && born_[s] >= 0 ? static_cast<std::size_t>(born_[s]) : parts() - 1;
  }

  ValueId made_in(std::size_t p, ValueId v) const { return v >= 0 && maker_of(v) == p ? v : -1; }

  Segment part(std::size_t p) {
    Segment out;
    Graph& g = out.graph;
    g = g_;
    g.nodes.assign(g_.nodes.begin() + static_cast<std::ptrdiff_t>(begins_[p]),
                   g_.nodes.begin() + static_cast<std::ptrdiff_t>(begins_[p + 1]));
    for (Node& n : g.nodes) n.folded = false;
    g.loss = made_in(p, g_.loss);
    g.grad_norm = made_in(p, g_.grad_norm);
    for (ValueId& v : g.outputs) v = made_in(p, v);
    for (Gradient& x : g.gradients) {
      x.value = made_in(p, x.value);
      x.before = made_in(p, x.before);
    }
    for (ValueId v : alive_) g.outputs.push_back(made_in(p, v));
    carry(p, out);
    for (StorageId s : out.hands_on) g.outputs.push_back(value_at_end(p, s, g));
    start_versions(p, g);
    return out;
  }

  void carry(std::size_t p, Segment& out) {
    auto named_by_end = [&](StorageId s) {
      bool named = false;
      auto see = [&](ValueId v) { named |= v >= 0 && storage(v) == s; };
      see(out.graph.loss);
      see(out.graph.grad_norm);
      for (ValueId v : out.graph.outputs) see(v);
      for (const Gradient& x : out.graph.gradients) {
        see(x.value);
        see(x.before);
      }
      return named;
    };
    for (std::size_t i = 0; i < g_.storages.size(); ++i) {
      const auto s = static_cast<StorageId>(i);
      if (!internal(s) || born_[i] < 0) continue;
      const auto born = static_cast<std::size_t>(born_[i]);
      if (born < p && (named_[p][i] || named_by_end(s))) {
        out.takes.push_back(s);
        out.graph.storages[i].role = Role::carried;
        out.graph.storages[i].index = s;
      }
      if (born == p && last_named_[i] > static_cast<std::int32_t>(p)) out.hands_on.push_back(s);
    }
  }

  /// A value on the storage at the version that the part leaves; a new one where no node returns it (a write by an op without results).
  ValueId value_at_end(std::size_t p, StorageId s, Graph& g) const {
    const auto version = versions_[p + 1][static_cast<std::size_t>(s)];
    ValueId any = -1;
    for (std::size_t v = 0; v < g_.values.size(); ++v) {
      if (g_.values[v].storage != s) continue;
      if (g_.values[v].version == version) return static_cast<ValueId>(v);
      any = static_cast<ValueId>(v);
    }
    Value value = g_.values.at(static_cast<std::size_t>(any));
    value.version = version;
    g.values.push_back(std::move(value));
    return static_cast<ValueId>(g.values.size() - 1);
  }

  /// What was there before the part begins at version 0. Earlier versions have no meaning in it; no node names them.
  void start_versions(std::size_t p, Graph& g) const {
    for (Value& v : g.values) v.version = std::max(0, v.version - versions_[p][static_cast<std::size_t>(v.storage)]);
  }

  const Graph& g_;
  const std::vector<ValueId>& alive_;
  std::vector<std::size_t> begins_;                  // per part its first node, then the end
  std::vector<std::vector<std::int32_t>> versions_;  // per part and storage when it begins, then the end
  std::vector<std::vector<char>> named_;             // per part and storage
  std::vector<std::int32_t> born_, last_named_;      // per storage: a part, or -1
  std::vector<std::vector<std::int32_t>> made_by_;   // per storage: the part that writes version 1, 2, ...
};

}  // namespace

std::vector<Segment> cut(const Graph& graph, const std::vector<std::size_t>& at, const std::vector<ValueId>& alive) {
  return Cutter(graph, at, alive).run();
}

}  // namespace tandem
