// Knows nothing of partition(): it runs the groups on paper, with the version of each storage and the side on which its content was made.
#include "autograd/op.h"
#include "partitioner/partition.h"
#include "partitioner/validate_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace tandem {
namespace {

/// A geometry without dims of size 1 and with dims that continue each other joined, so that equal places compare equal.
std::vector<std::int64_t> place(const Value& v) {
  std::vector<std::int64_t> out{v.offset};
  for (std::size_t d = 0; d < v.sizes.size(); ++d) {
    if (v.sizes[d] == 1) continue;
    const std::size_t n = out.size();
    if (n > 1 && out[n - 1] == v.sizes[d] * v.strides[d]) {
      out[n - 2] *= v.sizes[d];
      out[n - 1] = v.strides[d];
    } else {
      out.insert(out.end(), {v.sizes[d], v.strides[d]});
    }
  }
  return out;
}

class Validator {
 public:
  Validator(const Graph& g, const Partition& p) : g_(g), p_(p), storages_(g.storages.size()) {}

  std::string run() && {
    for (std::size_t i = 0; i < g_.nodes.size(); ++i) position_.emplace(g_.nodes[i].id, i);
    runs_.resize(g_.nodes.size());
    broken_ = wrong_copy(g_, p_);
    for (std::size_t i = 0; i < p_.groups.size() && broken_.empty(); ++i) check_group(i);
    for (std::size_t i = 0; i < g_.nodes.size() && broken_.empty(); ++i)
      if (runs_[i] != 1) fail("{} is in groups, expected one, found {}", describe(g_.nodes[i]), runs_[i]);
    for (std::size_t i = 0; i < p_.groups.size() && broken_.empty(); ++i) check_joined(i);
    if (!broken_.empty()) return broken_;
    walk();
    if (broken_.empty()) check_saved();
    return broken_;
  }

 private:
  struct State {
    std::int32_t version = -1;  // -1: no memory yet
    bool activation = false;    // made by the forward in this step
  };

  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    if (broken_.empty()) broken_ = fmt::format(format, std::forward<Args>(args)...);
  }

  const Node& node(NodeId id) const { return g_.nodes[position_.at(id)]; }

  /// Runs in the recorded order: draws, talks, or is unknown.
  static bool is_bound(const Node& n) {
    const OpRow* row = find_op(n.op);
    return n.effects != Effects{} || !row || row->kind == Kind::random;
  }

  // ---- groups ----

  void check_group(std::size_t i) {
    const Group& group = p_.groups[i];
    if (group.nodes.empty()) return fail("group {} ({}) has no node", i, name_of(group.kind));
    if (group.kind == Group::Kind::library && group.nodes.size() != 1)
      return fail("group {} is one library call, expected one node, found {}", i, group.nodes.size());
    for (NodeId id : group.nodes) {
      const auto found = position_.find(id);
      if (found == position_.end()) return fail("group {} names node {}, the graph has none of that number", i, id);
      check_member(i, group, g_.nodes[found->second]);
      ++runs_[found->second];
    }
    if (group.kind == Group::Kind::kernel) check_places(i, group);
  }

  void check_member(std::size_t i, const Group& group, const Node& n) {
    if (group.side != n.side) fail("{} is in group {} of the {}", describe(n), i, name_of(group.side));
    if (n.folded != (group.kind == Group::Kind::once))
      fail("{} is{} folded, but group {} is of kind {}", describe(n), n.folded ? "" : " not", i, name_of(group.kind));
    if (group.kind == Group::Kind::view) check_view(i, n);
    if (group.kind == Group::Kind::kernel && (is_bound(n) || may_throw(find_op(n.op)->kind)))
      fail("{} is in group {} of kind kernel, but it draws random numbers, may throw, has effects or is unknown", describe(n), i);
  }

  void check_view(std::size_t i, const Node& n) {
    const OpRow* row = find_op(n.op);
    if (is_bound(n) || row->kind != Kind::view || !n.writes.empty())
      return fail("{} is in group {} of kind view, but it is more than a view", describe(n), i);
    std::set<StorageId> bases;
    for_each_value(n.args, [&](ValueId v) { bases.insert(g_.values[v].storage); });
    for_each_value(n.results, [&](ValueId v) {
      if (!bases.count(g_.values[v].storage))
        fail("{} is in group {} of kind view, but its result %{} has memory of its own", describe(n), i, v);
    });
    for (const Argument& a : n.results)
      if (a.kind == Argument::Kind::constant) fail("{} is in group {} of kind view, but it returns a number", describe(n), i);
  }

  /// A loop goes over elements: where it writes memory that existed, an element that is written must not be another element of a neighbour.
  void check_places(std::size_t i, const Group& group) {
    std::set<StorageId> written;
    for (NodeId id : group.nodes) written.insert(node(id).writes.begin(), node(id).writes.end());
    std::unordered_map<StorageId, std::vector<std::int64_t>> places;
    auto visit = [&](ValueId v) {
      const StorageId s = g_.values[v].storage;
      if (!written.count(s)) return;
      const auto [at, first] = places.emplace(s, place(g_.values[v]));
      if (!first && at->second != place(g_.values[v])) fail("group {} of kind kernel writes s{} and names it with two geometries", i, s);
    };
    for (NodeId id : group.nodes) {
      for_each_value(node(id).args, visit);
      for_each_value(node(id).results, visit);
    }
  }

  /// No storage that one group of a joined run writes or makes is named by another one of the run.
  void check_joined(std::size_t i) {
    const Group& group = p_.groups[i];
    if (!group.joined) return;
    if (i == 0 || group.kind != Group::Kind::kernel || p_.groups[i - 1].kind != Group::Kind::kernel)
      return fail("group {} ({}) is joined, but it and the group before it are not both kernels", i, name_of(group.kind));
    if (i + 1 < p_.groups.size() && p_.groups[i + 1].joined) return;  // the last one looks at all
    std::size_t first = i;
    while (p_.groups[first].joined) --first;
    std::unordered_map<StorageId, std::size_t> writer;
    auto visit = [&](std::size_t k, StorageId s) {
      const auto found = writer.find(s);
      if (found != writer.end() && found->second != k)
        fail("groups {} and {} are joined, but one writes s{} and the other names it", std::min(k, found->second),
             std::max(k, found->second), s);
    };
    for (std::size_t k = first; k <= i; ++k)
      for (NodeId id : p_.groups[k].nodes) {
        auto writes = [&](StorageId s) {
          visit(k, s);
          writer[s] = k;
        };
        for (StorageId s : node(id).writes) writes(s);
        std::set<StorageId> viewed;
        for_each_value(node(id).args, [&](ValueId v) { viewed.insert(g_.values[v].storage); });
        for_each_value(node(id).results, [&](ValueId v) {
          if (!viewed.count(g_.values[v].storage)) writes(g_.values[v].storage);
        });
      }
    for (std::size_t k = first; k <= i; ++k)
      for (NodeId id : p_.groups[k].nodes) for_each_value(node(id).args, [&](ValueId v) { visit(k, g_.values[v].storage); });
  }

  // ---- the walk ----

  /// What runs once ran at activation, before everything else.
  void walk() {
    for (std::size_t s = 0; s < storages_.size(); ++s)
      if (g_.storages[s].role != Role::internal) storages_[s].version = 0;
    for (bool once : {true, false})
      for (const Group& group : p_.groups)
        if ((group.kind == Group::Kind::once) == once)
          for (NodeId id : group.nodes) step(node(id), position_.at(id));
  }

  void step(const Node& n, std::size_t position) {
    if (is_bound(n)) {
      if (position < last_bound_) fail("{} runs after {}, in the graph it comes before", describe(n), describe(g_.nodes[last_bound_]));
      last_bound_ = position;
    }
    for_each_value(n.args, [&](ValueId v) { read(n, v); });
    for (StorageId s : n.writes) ++storages_[s].version;
    for_each_value(n.results, [&](ValueId v) {
      State& s = storages_[g_.values[v].storage];
      if (s.version >= 0) return;
      s.version = 0;
      s.activation = n.side == Side::forward && !n.folded;
    });
  }

  void read(const Node& n, ValueId id) {
    const Value& v = g_.values[id];
    const State& s = storages_[v.storage];
    if (s.version < 0) return fail("{} reads %{} before s{} is made", describe(n), id, v.storage);
    if (s.version != v.version)
      return fail("{} reads %{} at version {} of s{}, which is at version {} when its group runs", describe(n), id, v.version, v.storage,
                  s.version);
    if (n.side != Side::forward && s.activation) crossing_.insert(v.storage);
  }

  void check_saved() {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < p_.saved.size(); ++i) {
      const StorageId s = p_.saved[i];
      if (s < 0 || s >= static_cast<StorageId>(g_.storages.size()))
        return fail("saved names s{}, there are {} storages", s, g_.storages.size());
      if (i > 0 && p_.saved[i - 1] >= s) return fail("saved lists s{} after s{}, expected ascending numbers", s, p_.saved[i - 1]);
      if (!crossing_.count(s)) return fail("s{} is saved, but nothing after the forward reads what the forward made there", s);
      bytes += g_.storages[s].bytes;
    }
    for (StorageId s : crossing_)
      if (!std::binary_search(p_.saved.begin(), p_.saved.end(), s)) return fail("s{} is read after the forward, but it is not saved", s);
    if (bytes != p_.saved_bytes) fail("the saved storages have {} bytes, the partition says {}", bytes, p_.saved_bytes);
  }

  const Graph& g_;
  const Partition& p_;
  std::vector<State> storages_;
  std::unordered_map<NodeId, std::size_t> position_;  // in Graph::nodes
  std::vector<int> runs_;                             // per node: in how many groups it is
  std::set<StorageId> crossing_;
  std::size_t last_bound_ = 0;
  std::string broken_;
};

}  // namespace

std::string validate(const Graph& g, const Partition& p) { return Validator(g, p).run(); }

}  // namespace tandem
