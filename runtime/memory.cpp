#include "runtime/memory.h"

#include "autograd/formula.h"
#include "autograd/liveness.h"
#include "autograd/node_call.h"
#include "autograd/support/error.h"
#include "runtime/blas_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <unordered_map>

namespace tandem {
namespace {

/// Whether a written result has another geometry than every argument on its storage: the op resizes it, which planned memory cannot follow.
bool resizes(const Graph& g, const Node& n, StorageId s) {
  bool resized = false;
  for_each_value(n.results, [&](ValueId r) {
    if (g.values[r].storage != s) return;
    bool same = false;
    for_each_value(n.args, [&](ValueId a) {
      auto before = g.values[a];
      before.version = g.values[r].version;
      same |= before == g.values[r];
    });
    resized |= !same;
  });
  return resized;
}

class Planner {
 public:
  Planner(const Graph& g, const Program& p, const MemorySwitches& switches)
      : g_(g), p_(p), switches_(switches), uses_(storage_uses(g, p)), escapes_(escaping(g)) {}

  Memory run(std::int64_t limit) {
    find_homes();
    auto best = placed(homes_);
    limit += alignment * std::int64_t(best.blocks.size());  // rounding is no reason to give the arena up
    if (best.peak_bytes <= limit) return best;
    // The arena's load and what lives beside it have their peaks at different times, and the arena is held all step. What is alive at the arena's
    // peak may come and go beside it for nothing, as long as the other peak is not passed.
    auto homes = homes_;
    for (int tries = 0; tries < 3 && best.peak_bytes > limit; tries++) {
      move_peak(homes, best.peak_bytes - limit);
      auto other = placed(homes);
      if (other.peak_bytes >= best.peak_bytes) break;
      best = std::move(other);
    }
    if (best.peak_bytes <= limit) return best;
    for (auto& home : homes)
      if (home == Home::arena) home = Home::own;
    auto none = placed(homes);
    return none.peak_bytes < best.peak_bytes ? none : best;
  }

 private:
  void find_homes() {
    homes_.assign(g_.storages.size(), Home::none);
    for (std::size_t s = 0; s < homes_.size(); s++)
      if (g_.storages[s].role != Role::internal) homes_[s] = Home::outside;
    for (const auto& n : g_.nodes)
      if (n.folded) for_each_value(n.results, [&](ValueId v) { homes_[g_.values[v].storage] = Home::outside; });
    std::unordered_map<NodeId, const Node*> node_at;
    for (const auto& n : g_.nodes) node_at[n.id] = &n;
    for (std::size_t k = 0; k < p_.calls.size(); k++) {
      const auto& call = p_.calls[k];
      const auto& node = *node_at.at(call.node);
      const bool given = call.kind == Call::Kind::kernel || writes_given_memory(g_, node, switches_);
      for (StorageId s : uses_.of_call[k])
        if (homes_[s] == Home::none)
          homes_[s] = !given && !exists_before(node, s) ? Home::op
                      : escapes_[s]                     ? Home::escapes
                      : switches_.arena                 ? Home::arena
                                                        : Home::own;
    }
    for (const auto& n : g_.nodes)
      for (StorageId s : n.writes)
        if (homes_[s] == Home::arena && resizes(g_, n, s)) homes_[s] = Home::own;
  }

  /// An in-place op on memory whose contents do not matter (empty_like before a random fill) is the first to touch it.
  bool exists_before(const Node& n, StorageId s) const {
    bool argument = false;
    for_each_value(n.args, [&](ValueId v) { argument |= g_.values[v].storage == s; });
    return argument;
  }

  Memory placed(const std::vector<Home>& homes) const {
    Memory m;
    m.blas = switches_.blas;
    m.homes = homes;
    std::vector<Interval> intervals;
    for (std::size_t s = 0; s < homes.size(); s++)
      if (homes[s] == Home::arena) m.blocks.push_back({StorageId(s), uses_.first[s], uses_.last[s], g_.storages[s].bytes, 0});
    for (std::size_t k = 0; k < p_.calls.size(); k++)
      if (const auto need = workspace_bytes(p_, p_.calls[k])) m.blocks.push_back({-1, std::int32_t(k), std::int32_t(k), need, 0});
    for (const auto& b : m.blocks) intervals.push_back({b.first, b.last, b.bytes});
    const auto packing = pack(intervals);
    for (std::size_t i = 0; i < m.blocks.size(); i++) m.blocks[i].offset = packing.offsets[i];
    m.arena_bytes = packing.bytes;
    m.peak_bytes = m.arena_bytes + highest(beside(homes));
    return m;
  }

  using Load = std::vector<std::int64_t>;  // bytes per call
  static std::int64_t highest(const Load& load) { return load.empty() ? 0 : *std::max_element(load.begin(), load.end()); }

  void add(Load& load, std::size_t s, std::int64_t bytes) const {
    const auto last = escapes_[s] ? std::int32_t(load.size()) - 1 : uses_.last[s];
    for (auto k = uses_.first[s]; k >= 0 && k <= last; k++) load[std::size_t(k)] += bytes;
  }
  Load load_of(const std::vector<Home>& homes, std::initializer_list<Home> which) const {
    Load load(p_.calls.size(), 0);
    for (std::size_t s = 0; s < homes.size(); s++)
      if (std::find(which.begin(), which.end(), homes[s]) != which.end()) add(load, s, g_.storages[s].bytes);
    return load;
  }
  Load beside(const std::vector<Home>& homes) const { return load_of(homes, {Home::own, Home::op, Home::escapes}); }

  /// Takes `bytes` off the arena's peak, largest storages first, where the peak beside it allows.
  void move_peak(std::vector<Home>& homes, std::int64_t bytes) const {
    auto inside = load_of(homes, {Home::arena}), outside = beside(homes);
    const auto bound = highest(outside), goal = highest(inside) - bytes;
    std::vector<std::size_t> order;
    for (std::size_t s = 0; s < homes.size(); s++)
      if (homes[s] == Home::arena) order.push_back(s);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return g_.storages[a].bytes > g_.storages[b].bytes; });
    const auto fits = [&](std::size_t s) {
      const auto size = g_.storages[s].bytes;
      return std::all_of(outside.begin() + uses_.first[s], outside.begin() + uses_.last[s] + 1,
                         [&](std::int64_t o) { return o + size <= bound; });
    };
    while (highest(inside) > goal) {
      const auto peak = std::int32_t(std::max_element(inside.begin(), inside.end()) - inside.begin());
      const auto found = std::find_if(order.begin(), order.end(), [&](std::size_t s) {
        return homes[s] == Home::arena && uses_.first[s] <= peak && peak <= uses_.last[s] && fits(s);
      });
      if (found == order.end()) return;
      homes[*found] = Home::own;
      add(inside, *found, -g_.storages[*found].bytes);
      add(outside, *found, g_.storages[*found].bytes);
    }
  }

  const Graph& g_;
  const Program& p_;
  const MemorySwitches& switches_;
  StorageUses uses_;
  std::vector<char> escapes_;
  std::vector<Home> homes_;
};

}  // namespace

StorageUses storage_uses(const Graph& g, const Program& p) {
  StorageUses u;
  u.of_call.resize(p.calls.size());
  u.first.assign(g.storages.size(), -1);
  u.last.assign(g.storages.size(), -1);
  std::unordered_map<NodeId, const Node*> node_at;
  for (const auto& n : g.nodes) node_at[n.id] = &n;
  const auto escapes = escaping(g);
  std::vector<char> folded(g.storages.size(), false);
  for (const auto& n : g.nodes)
    if (n.folded) for_each_value(n.results, [&](ValueId v) { folded[g.values[v].storage] = true; });
  std::int32_t boundary = -1;  // the last call before the update side
  for (std::size_t k = 0; k < p.calls.size(); k++) {
    const auto& call = p.calls[k];
    auto use = [&](ValueId v) {
      const auto s = g.values[v].storage;
      if (g.storages[s].role != Role::internal || folded[s]) return;
      auto& list = u.of_call[k];
      if (std::find(list.begin(), list.end(), s) == list.end()) list.push_back(s);
      if (u.first[s] < 0) u.first[s] = std::int32_t(k);
      u.last[s] = std::int32_t(k);
    };
    const auto found = node_at.find(call.node);
    if (found == node_at.end()) throw Error(fmt::format("program: expected a node of the graph, found n{}", call.node));
    if (call.kind == Call::Kind::library) {
      for_each_value(found->second->args, use);
      for_each_value(found->second->results, use);
    }
    for (const auto& launch : call.launches) {
      for (ValueId v : launch.operands) use(v);
      // What is handed out must exist even where its contents are arbitrary and no kernel writes it.
      for (NodeId n : launch.nodes)
        for_each_value(node_at.at(n)->results, [&](ValueId v) {
          if (escapes[g.values[v].storage]) use(v);
        });
    }
    if (found->second->side != Side::update) boundary = std::int32_t(k);
  }
  // Gradients live until the update begins, used or not: a check looks at them there, and a step that fails leaves them.
  for (const auto& gradient : g.gradients)
    if (gradient.before >= 0)
      if (const auto s = g.values[gradient.before].storage; u.last[s] >= 0) u.last[s] = std::max(u.last[s], boundary);
  return u;
}

std::int64_t workspace_bytes(const Program& p, const Call& call) {
  std::int64_t bytes = 0;
  for (const auto& l : call.launches) bytes += (p.kernels[l.kernel].partial_bytes * l.chunks + alignment - 1) / alignment * alignment;
  return bytes;
}

bool writes_given_memory(const Graph& g, const Node& n, const MemorySwitches& switches) {
  if (const auto f = formula_of(g, n); f && f->has(Term::arbitrary)) return n.effects == Effects{};
  if (switches.blas && BlasCall::can_run(g, n)) return true;
  return out_overload(g, n).has_value();
}

Memory plan_memory(const Graph& g, const Program& p, const MemorySwitches& switches, std::int64_t limit) {
  return Planner(g, p, switches).run(limit);
}

std::vector<std::vector<StorageId>> releases(const Graph& g, const Program& p, const Memory& m) {
  const auto uses = storage_uses(g, p);
  const auto escapes = escaping(g);
  std::vector<std::vector<StorageId>> out(p.calls.size());
  for (std::size_t s = 0; s < m.homes.size(); s++)
    if ((m.homes[s] == Home::own || m.homes[s] == Home::op) && !escapes[s] && uses.last[s] >= 0) out[uses.last[s]].push_back(StorageId(s));
  return out;
}

std::vector<double> live_bytes(const Graph& g, const Program& p, const Memory& m) {
  const auto uses = storage_uses(g, p);
  const auto escapes = escaping(g);
  std::vector<double> change(p.calls.size() + 1, 0), out;
  auto add = [&](std::int32_t first, std::int32_t last, std::int64_t bytes) {
    change[first] += double(bytes);
    change[last + 1] -= double(bytes);
  };
  for (const auto& b : m.blocks) add(b.first, b.last, b.bytes);
  for (std::size_t s = 0; s < m.homes.size(); s++)
    if ((m.homes[s] == Home::own || m.homes[s] == Home::op || m.homes[s] == Home::escapes) && uses.first[s] >= 0)
      add(uses.first[s], escapes[s] ? std::int32_t(p.calls.size()) - 1 : uses.last[s], g.storages[s].bytes);
  double live = 0;
  for (std::size_t k = 0; k < p.calls.size(); k++) out.push_back(live += change[k]);
  return out;
}

}  // namespace tandem
