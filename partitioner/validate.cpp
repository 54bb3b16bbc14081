// Knows nothing of partition(): it runs the groups on paper, with the version of each storage and the side on which its content was made.
#include "autograd/op.h"
#include "partitioner/names.h"
#include "partitioner/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

namespace tandem {
namespace {

class Validator {
 public:
  Validator(const Graph& g, const Partition& p) : g_(g), p_(p), storages_(g.storages.size()) {}

  std::string run() && {
    for (std::size_t i = 0; i < g_.nodes.size(); ++i) position_.emplace(g_.nodes[i].id, i);
    runs_.resize(g_.nodes.size());
    check_recomputed();
    for (std::size_t i = 0; i < p_.groups.size() && broken_.empty(); ++i) check_group(i);
    for (std::size_t i = 0; i < g_.nodes.size() && broken_.empty(); ++i) check_runs(i);
    if (!broken_.empty()) return broken_;
    walk();
    if (broken_.empty()) check_saved();
    return broken_;
  }

 private:
  struct State {
    std::int32_t version = -1;  // -1: no memory yet
    bool activation = false;    // made by the forward in this step
    bool remade = false;        // and made again on the backward's side
  };
  struct Runs {
    int forward = 0, later = 0;  // groups of the forward and of the other sides that hold the node
    bool recomputed = false;
  };

  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    if (broken_.empty()) broken_ = fmt::format(format, std::forward<Args>(args)...);
  }

  const Node* node(NodeId id) const {
    auto found = position_.find(id);
    return found == position_.end() ? nullptr : &g_.nodes[found->second];
  }

  /// Runs in the recorded order or not at all: draws, talks, writes, or is unknown.
  static bool is_bound(const Node& n) {
    const OpRow* row = find_op(n.op);
    return n.effects != Effects{} || !row || row->kind == Kind::random;
  }

  void check_recomputed() {
    for (NodeId id : p_.recomputed) {
      const Node* n = node(id);
      if (!n) return fail("recomputed names node {}, the graph has none of that number", id);
      if (n->side != Side::forward) return fail("{} is recomputed, but only forward nodes may be", describe(*n));
      if (is_bound(*n)) return fail("{} is recomputed, but it draws random numbers, has effects or is unknown", describe(*n));
      if (!n->writes.empty()) return fail("{} is recomputed, but it writes s{}", describe(*n), n->writes.front());
      if (n->folded) return fail("{} is recomputed, but it runs once for all steps", describe(*n));
      Runs& runs = runs_[position_.at(id)];
      if (runs.recomputed) return fail("{} is recomputed twice", describe(*n));
      runs.recomputed = true;
    }
  }

  void check_group(std::size_t i) {
    const Group& group = p_.groups[i];
    if (group.nodes.empty()) return fail("group {} ({}) has no node", i, name_of(group.kind));
    if (group.kind == Group::Kind::library && group.nodes.size() != 1)
      return fail("group {} is one library call, expected one node, found {}", i, group.nodes.size());
    for (NodeId id : group.nodes) {
      const Node* n = node(id);
      if (!n) return fail("group {} names node {}, the graph has none of that number", i, id);
      check_member(i, group, *n);
      Runs& runs = runs_[position_.at(id)];
      ++(group.side == Side::forward ? runs.forward : runs.later);
    }
  }

  void check_member(std::size_t i, const Group& group, const Node& n) {
    const bool again = runs_[position_.at(n.id)].recomputed && group.side == Side::backward;
    if (group.side != n.side && !again) fail("{} is in group {} of the {}", describe(n), i, name_of(group.side));
    if (n.folded != (group.kind == Group::Kind::once))
      fail("{} is{} folded, but group {} is of kind {}", describe(n), n.folded ? "" : " not", i, name_of(group.kind));
    if (group.kind == Group::Kind::view) check_view(i, n);
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

  void check_runs(std::size_t i) {
    const Runs& runs = runs_[i];
    const int expected = runs.recomputed ? 2 : 1;
    if (runs.forward + runs.later != expected || (runs.recomputed && runs.later != 1))
      fail("{} {}, expected {}, found {}", describe(g_.nodes[i]), runs.recomputed ? "is recomputed and is in groups" : "is in groups",
           runs.recomputed ? "one of the forward and one of the backward" : "one", runs.forward + runs.later);
  }

  /// What runs once ran at activation, before everything else.
  void walk() {
    for (std::size_t s = 0; s < storages_.size(); ++s)
      if (g_.storages[s].role != Role::internal) storages_[s].version = 0;
    for (bool once : {true, false})
      for (const Group& group : p_.groups)
        if ((group.kind == Group::Kind::once) == once)
          for (NodeId id : group.nodes) step(g_.nodes[position_.at(id)], group, position_.at(id));
  }

  void step(const Node& n, const Group& group, std::size_t position) {
    if (is_bound(n)) {
      if (position < last_bound_) fail("{} runs after {}, in the graph it comes before", describe(n), describe(g_.nodes[last_bound_]));
      last_bound_ = position;
    }
    for_each_value(n.args, [&](ValueId v) { read(n, group, v); });
    for (StorageId s : n.writes) ++storages_[s].version;
    for_each_value(n.results, [&](ValueId v) { make(n, group, g_.values[v]); });
  }

  void read(const Node& n, const Group& group, ValueId id) {
    const Value& v = g_.values[id];
    const State& s = storages_[v.storage];
    if (s.version < 0) return fail("{} reads %{} before s{} is made", describe(n), id, v.storage);
    if (s.version != v.version)
      return fail("{} reads %{} at version {} of s{}, which is at version {} when its group runs", describe(n), id, v.version, v.storage,
                  s.version);
    if (group.side != Side::forward && s.activation && !s.remade) crossing_.insert(v.storage);
  }

  void make(const Node& n, const Group& group, const Value& v) {
    State& s = storages_[v.storage];
    if (s.version < 0) {
      s.version = 0;
      s.activation = group.side == Side::forward && group.kind != Group::Kind::once;
      return;
    }
    if (n.side == group.side) return;
    bool viewed = false;
    for_each_value(n.args, [&](ValueId a) { viewed |= g_.values[a].storage == v.storage; });
    if (viewed) return;
    if (s.version != v.version) fail("{} is recomputed into s{}, which was written meanwhile", describe(n), v.storage);
    s.remade = true;
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
  std::vector<Runs> runs_;                            // per node
  std::set<StorageId> crossing_;
  std::size_t last_bound_ = 0;
  std::string broken_;
};

}  // namespace

std::string validate(const Graph& g, const Partition& p) { return Validator(g, p).run(); }

}  // namespace tandem
