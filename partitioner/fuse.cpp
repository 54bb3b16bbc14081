#include "partitioner/fuse.h"

#include "autograd/op.h"
#include "partitioner/cluster.h"
#include "partitioner/dependencies.h"
#include "partitioner/group_order.h"

#include <algorithm>
#include <unordered_map>

namespace tandem {
namespace {

/// Siblings that read the same operand are merged only when so few library calls lie between them: one of them moves.
constexpr std::int32_t near = 4;

/// Forms clusters of the nodes begin..end, which are of one side.
class Fuser {
 public:
  Fuser(const Graph& g, std::size_t begin, std::size_t end, const std::vector<std::int32_t>& last_reader)
      : g_(g), begin_(begin), size_(end - begin), last_reader_(last_reader), parts_(size_, Part::free), clusters_(size_), root_(size_) {}

  std::vector<Unordered> run(std::vector<Part>& parts, Dependencies& dependencies) && {
    classify();
    dependencies_ = dependencies_of(g_, begin_, parts_);
    close();
    merge_producers();
    merge_siblings();
    parts = parts_;
    std::vector<Unordered> groups = collect();
    dependencies = std::move(dependencies_);
    return groups;
  }

 private:
  using Index = std::int32_t;
  const Node& node(Index i) const { return g_.nodes[begin_ + static_cast<std::size_t>(i)]; }
  std::optional<Cluster>& cluster(Index i) { return clusters_[static_cast<std::size_t>(i)]; }
  Index root(Index i) const { return root_[static_cast<std::size_t>(i)]; }

  void classify() {
    std::int32_t calls = 0;
    for (Index i = 0; i < static_cast<Index>(size_); ++i) {
      const Node& n = node(i);
      root_[static_cast<std::size_t>(i)] = i;
      Part& part = parts_[static_cast<std::size_t>(i)];
      if (n.folded)
        part = Part::absent;
      else if (is_only_geometry(g_, n))
        part = Part::view;
      else if (auto made = cluster_node(g_, n, i))
        cluster(i) = cluster_of(g_, std::move(*made));
      else
        part = Part::ordered;
      calls += part == Part::ordered;
      calls_before_.push_back(calls);
    }
  }

  /// Per node what runs before and after it, however indirectly.
  void close() {
    above_.assign(size_, Bits(size_));
    below_.assign(size_, Bits(size_));
    for (std::size_t i = 0; i < size_; ++i)
      for (Index b : dependencies_.before[i]) {
        above_[i].add(above_[static_cast<std::size_t>(b)]);
        above_[i].set(static_cast<std::size_t>(b));
      }
    for (std::size_t i = size_; i-- > 0;)
      for (Index b : dependencies_.before[i]) {
        below_[static_cast<std::size_t>(b)].add(below_[i]);
        below_[static_cast<std::size_t>(b)].set(i);
      }
  }

  Bits& above(Index r) { return above_[static_cast<std::size_t>(r)]; }
  Bits& below(Index r) { return below_[static_cast<std::size_t>(r)]; }

  /// Whether something else would have to run after one of them and before the other. `between` is free of their own nodes.
  bool apart(Index a, Index b) {
    const auto others = [&](const Cluster& c, Bits bits) {
      for (const auto& n : c.nodes) bits.clear(static_cast<std::size_t>(n->position));
      return bits;
    };
    const Bits down_a = others(*cluster(b), below(a)), down_b = others(*cluster(a), below(b));
    return others(*cluster(a), down_a).meets(above(b)) || others(*cluster(b), down_b).meets(above(a));
  }

  bool read_outside(const Touch& t, const Cluster& c) const {
    if (!t.made) return true;
    const auto s = static_cast<std::size_t>(t.storage);
    if (last_reader_[s] >= static_cast<Index>(begin_ + size_)) return true;
    const auto found = readers_.find(t.storage);
    if (found == readers_.end()) return false;
    return std::any_of(found->second.begin(), found->second.end(), [&](Index i) {
      return std::none_of(c.nodes.begin(), c.nodes.end(), [&](const auto& n) { return n->position == i; });
    });
  }

  /// A view reads what its readers read: they are counted themselves.
  void find_readers() {
    for (Index i = 0; i < static_cast<Index>(size_); ++i)
      if (parts_[static_cast<std::size_t>(i)] != Part::view)
        for_each_value(node(i).args, [&](ValueId v) { readers_[g_.values[static_cast<std::size_t>(v)].storage].push_back(i); });
  }

  bool too_many_operands(const Cluster& c) {
    if (c.touches.size() <= most_operands) return false;
    if (readers_.empty()) find_readers();
    const auto outside = [&](const Touch& t) { return read_outside(t, c); };
    return static_cast<std::size_t>(std::count_if(c.touches.begin(), c.touches.end(), outside)) > most_operands;
  }

  bool merge(Index a, Index b) {
    if (a == b || !cluster(a) || !cluster(b)) return false;
    if (cluster(a)->nodes.front()->nest.elements() != cluster(b)->nodes.front()->nest.elements() || apart(a, b)) return false;
    auto both = merged(g_, *cluster(a), *cluster(b));
    if (!both || too_many_operands(*both)) return false;
    const Index into = std::min(a, b), from = std::max(a, b);
    for (const auto& n : cluster(from)->nodes) root_[static_cast<std::size_t>(n->position)] = into;
    cluster(into) = std::move(both);
    cluster(from).reset();
    above(into).add(above(from));
    below(into).add(below(from));
    for (const auto& n : cluster(into)->nodes) {
      above(into).clear(static_cast<std::size_t>(n->position));
      below(into).clear(static_cast<std::size_t>(n->position));
    }
    spread(into);
    return true;
  }

  /// What lies above a cluster now also lies above all that is below it.
  void spread(Index r) {
    Bits with_above = above(r), with_below = below(r);
    for (const auto& n : cluster(r)->nodes) {
      with_above.set(static_cast<std::size_t>(n->position));
      with_below.set(static_cast<std::size_t>(n->position));
    }
    below(r).for_each([&](std::size_t i) {
      if (root_[i] == static_cast<Index>(i)) above_[i].add(with_above);
    });
    above(r).for_each([&](std::size_t i) {
      if (root_[i] == static_cast<Index>(i)) below_[i].add(with_below);
    });
  }

  /// Nearest producers first: what lies between a producer and its reader joins them on the way.
  void merge_producers() {
    for (Index i = 0; i < static_cast<Index>(size_); ++i) {
      if (parts_[static_cast<std::size_t>(i)] != Part::free) continue;
      const auto& sources = dependencies_.sources[static_cast<std::size_t>(i)];
      for (auto s = sources.rbegin(); s != sources.rend(); ++s) merge(root(*s), root(i));
    }
  }

  std::int32_t calls_between(const Cluster& a, const Cluster& b) const {
    const auto at = [&](Index i) { return calls_before_[static_cast<std::size_t>(i)]; };
    const Index a_first = a.nodes.front()->position, a_last = a.nodes.back()->position;
    const Index b_first = b.nodes.front()->position, b_last = b.nodes.back()->position;
    return std::max({0, at(b_first) - at(a_last), at(a_first) - at(b_last)});
  }

  /// Whether both read the operand and it is half of what the smaller one moves, so that it is worth to run both where the later one stands.
  bool share(const Cluster& a, const Cluster& b, const Touch& t) const {
    const auto is = [&](const Touch& o) { return o.read && o.storage == t.storage && o.offset == t.offset && o.bytes == t.bytes; };
    return 2 * t.bytes >= std::min(a.bytes(), b.bytes()) && calls_between(a, b) <= near &&
           std::any_of(b.touches.begin(), b.touches.end(), is);
  }

  void merge_siblings() {
    std::unordered_map<StorageId, std::vector<Index>> readers;  // roots of clusters that read it, in order
    for (Index i = 0; i < static_cast<Index>(size_); ++i) {
      if (!cluster(i)) continue;
      for (const Touch& t : cluster(i)->touches)
        if (t.read && !t.made) readers[t.storage].push_back(i);
    }
    for (Index i = 0; i < static_cast<Index>(size_); ++i) {
      if (root(i) != i || !cluster(i)) continue;
      const std::vector<Touch> touches = cluster(i)->touches;
      for (const Touch& t : touches)
        if (t.read && !t.made) merge_readers(i, t, readers[t.storage]);
    }
  }

  void merge_readers(Index i, const Touch& t, const std::vector<Index>& readers) {
    for (Index other : readers) {
      const Index a = root(i), b = root(other);
      if (a != b && other > i && share(*cluster(a), *cluster(b), t)) merge(a, b);
    }
  }

  std::vector<Unordered> collect() {
    std::vector<Unordered> groups;
    for (Index i = 0; i < static_cast<Index>(size_); ++i) {
      if (root(i) != i) continue;
      Unordered& u = groups.emplace_back();
      if (!cluster(i)) {
        u.members = {i};
        continue;
      }
      u.is_kernel = true;
      for (const auto& n : cluster(i)->nodes) u.members.push_back(n->position);
    }
    return groups;
  }

  const Graph& g_;
  std::size_t begin_, size_;
  const std::vector<std::int32_t>& last_reader_;  // per storage, in Graph::nodes; the number of nodes where it outlives the step
  std::vector<Part> parts_;
  std::vector<std::optional<Cluster>> clusters_;  // per node that is the first of its cluster
  std::vector<Index> root_;                       // per node: the first of its cluster
  std::vector<std::int32_t> calls_before_;        // library calls up to and including the node
  Dependencies dependencies_;
  std::vector<Bits> above_, below_;  // per root
  std::unordered_map<StorageId, std::vector<Index>> readers_;
};

std::vector<std::int32_t> last_readers(const Graph& g) {
  std::vector<std::int32_t> last(g.storages.size(), -1);
  const auto storage = [&](ValueId v) -> std::int32_t& {
    return last[static_cast<std::size_t>(g.values[static_cast<std::size_t>(v)].storage)];
  };
  for (std::size_t i = 0; i < g.nodes.size(); ++i)
    for_each_value(g.nodes[i].args, [&](ValueId v) { storage(v) = static_cast<std::int32_t>(i); });
  const auto end = static_cast<std::int32_t>(g.nodes.size());
  const auto escapes = [&](ValueId v) {
    if (v >= 0) storage(v) = end;
  };
  escapes(g.loss);
  escapes(g.grad_norm);
  for (ValueId v : g.outputs) escapes(v);
  for (const Gradient& gradient : g.gradients) {
    escapes(gradient.value);
    escapes(gradient.before);
  }
  return last;
}

Group::Kind kind_of(const Graph& g, const Node& n, const PartitionSwitches& switches) {
  if (n.folded) return Group::Kind::once;
  return switches.skip_views && is_only_geometry(g, n) ? Group::Kind::view : Group::Kind::library;
}

void fuse_part(const Graph& g, std::size_t begin, std::size_t end, const std::vector<std::int32_t>& last_reader,
               const PartitionSwitches& switches, std::vector<Group>& out) {
  const Side side = g.nodes[begin].side;
  std::vector<Part> parts;
  Dependencies dependencies;
  const std::vector<Unordered> groups = Fuser(g, begin, end, last_reader).run(parts, dependencies);
  const bool update = side == Side::update;
  for (const Ordered& o : in_order(groups, dependencies, parts, update)) {
    const Unordered& u = groups[o.group];
    Group& group = out.emplace_back();
    group.side = side;
    for (std::int32_t i : u.members) group.nodes.push_back(g.nodes[begin + static_cast<std::size_t>(i)].id);
    group.kind = u.is_kernel ? Group::Kind::kernel : kind_of(g, g.nodes[begin + static_cast<std::size_t>(u.members.front())], switches);
    group.joined = o.joined && (!update || switches.fuse_update);
  }
}

}  // namespace

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

std::vector<Group> unfused(const Graph& g, const PartitionSwitches& switches) {
  std::vector<Group> groups;
  for (const Node& n : g.nodes) groups.push_back({kind_of(g, n, switches), n.side, {n.id}});
  return groups;
}

std::vector<Group> fuse(const Graph& g, const PartitionSwitches& switches) {
  if (!switches.fuse) return unfused(g, switches);
  std::vector<Group> groups;
  const std::vector<std::int32_t> last_reader = last_readers(g);
  for (std::size_t begin = 0, end = 0; begin < g.nodes.size(); begin = end) {
    while (end < g.nodes.size() && g.nodes[end].side == g.nodes[begin].side) ++end;
    fuse_part(g, begin, end, last_reader, switches, groups);
  }
  return groups;
}

}  // namespace tandem
