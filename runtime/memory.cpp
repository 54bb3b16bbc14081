#include "runtime/memory.h"

#include "autograd/formula.h"
#include "autograd/liveness.h"
#include "autograd/node_call.h"
#include "autograd/support/error.h"
#include "runtime/blas_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
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
    auto best = with_arena_below(std::numeric_limits<std::int64_t>::max());
    limit += alignment * std::int64_t(best.blocks.size());  // rounding is no reason to give the arena up
    if (best.peak_bytes <= limit) return best;
    // What lives beside the arena has its peak at another time than the arena's load: let the largest storages come and go one by one.
    std::vector<std::int64_t> sizes;
    for (std::size_t s = 0; s < g_.storages.size(); s++)
      if (homes_[s] == Home::arena) sizes.push_back(g_.storages[s].bytes);
    std::sort(sizes.rbegin(), sizes.rend());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    constexpr std::size_t tries = 24;
    for (std::size_t i = 0; i < sizes.size() && best.peak_bytes > limit; i += 1 + sizes.size() / tries) {
      auto other = with_arena_below(sizes[i]);
      if (other.peak_bytes < best.peak_bytes) best = std::move(other);
    }
    if (best.peak_bytes <= limit) return best;
    auto none = with_arena_below(0);
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
          homes_[s] = !given && !exists_before(node, s) ? Home::op : escapes_[s] ? Home::escapes : switches_.arena ? Home::arena : Home::own;
    }
    for (const auto& n : g_.nodes)
      for (StorageId s : n.writes)
        if (homes_[s] != Home::outside && homes_[s] != Home::none && resizes(g_, n, s)) homes_[s] = Home::op;
  }

  /// An in-place op on memory whose contents do not matter (empty_like before a random fill) is the first to touch it.
  bool exists_before(const Node& n, StorageId s) const {
    bool argument = false;
    for_each_value(n.args, [&](ValueId v) { argument |= g_.values[v].storage == s; });
    return argument;
  }

  /// Storages of `bytes` or more live beside the arena.
  Memory with_arena_below(std::int64_t bytes) {
    Memory m;
    m.homes = homes_;
    std::vector<Interval> intervals;
    for (std::size_t s = 0; s < homes_.size(); s++) {
      if (homes_[s] != Home::arena) continue;
      if (g_.storages[s].bytes >= bytes) {
        m.homes[s] = Home::own;
        continue;
      }
      m.blocks.push_back({StorageId(s), uses_.first[s], uses_.last[s], g_.storages[s].bytes, 0});
    }
    for (std::size_t k = 0; k < p_.calls.size(); k++)
      if (const auto need = workspace_bytes(p_, p_.calls[k])) m.blocks.push_back({-1, std::int32_t(k), std::int32_t(k), need, 0});
    for (const auto& b : m.blocks) intervals.push_back({b.first, b.last, b.bytes});
    const auto packing = pack(intervals);
    for (std::size_t i = 0; i < m.blocks.size(); i++) m.blocks[i].offset = packing.offsets[i];
    m.arena_bytes = packing.bytes;
    m.peak_bytes = m.arena_bytes + highest_beside(m);
    return m;
  }

  std::int64_t highest_beside(const Memory& m) const {
    std::vector<std::int64_t> change(p_.calls.size() + 1, 0);
    for (std::size_t s = 0; s < m.homes.size(); s++) {
      if (m.homes[s] != Home::own && m.homes[s] != Home::op && m.homes[s] != Home::escapes) continue;
      if (uses_.first[s] < 0) continue;
      change[uses_.first[s]] += g_.storages[s].bytes;
      if (!escapes_[s]) change[uses_.last[s] + 1] -= g_.storages[s].bytes;
    }
    std::int64_t live = 0, highest = 0;
    for (auto c : change) highest = std::max(highest, live += c);
    return highest;
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
    for (const auto& launch : call.launches)
      for (ValueId v : launch.operands) use(v);
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
