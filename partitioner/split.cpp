#include "partitioner/split.h"

#include "partitioner/dependencies.h"
#include "partitioner/evaluate.h"
#include "partitioner/fuse.h"
#include "partitioner/group_order.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace tandem {
namespace {

constexpr int most_rounds = 48;

class Splitter {
 public:
  Splitter(const Graph& g, std::vector<Group> groups, const PartitionSwitches& switches)
      : g_(g), switches_(switches), groups_(std::move(groups)), parts_(g.nodes.size(), Part::free) {
    for (std::size_t i = 0; i < g.nodes.size(); ++i) position_.emplace(g.nodes[i].id, i);
    for (const Group& group : groups_)
      for (NodeId id : group.nodes) parts_[position_.at(id)] = part_of(group.kind, g.nodes[position_.at(id)]);
    for (std::size_t begin = 0, end = 0; begin < g.nodes.size(); begin = end) {
      while (end < g.nodes.size() && g.nodes[end].side == g.nodes[begin].side) ++end;
      const std::vector<Part> parts(parts_.begin() + static_cast<std::ptrdiff_t>(begin), parts_.begin() + static_cast<std::ptrdiff_t>(end));
      stretches_.push_back({begin, end, parts, dependencies_of(g, begin, parts)});
    }
  }

  std::vector<Group> run(std::int64_t bound) && {
    for (int round = 0; round < most_rounds; ++round) {
      const Lifetimes t = lifetimes(g_, groups_);
      const std::vector<std::int64_t> live = live_bytes(g_, t);
      const auto peak = std::max_element(live.begin(), live.end());
      if (peak == live.end() || *peak <= bound) break;
      const auto step = static_cast<std::int32_t>(peak - live.begin());
      if (!split(t, step, *peak - bound) && !take_apart(t, step)) break;
    }
    return std::move(groups_);
  }

 private:
  struct Stretch {  // nodes of one side that follow each other
    std::size_t begin, end;
    std::vector<Part> parts;
    Dependencies dependencies;
  };
  struct Cut {
    std::int64_t freed = 0;
    std::size_t group = 0, before = 0;  // the member that begins the second half
  };

  /// A view that is called like any op still waits for nobody but the maker of its memory, as when the kernels were formed.
  Part part_of(Group::Kind kind, const Node& n) const {
    switch (kind) {
      case Group::Kind::kernel: return Part::free;
      case Group::Kind::view: return Part::view;
      case Group::Kind::once: return Part::absent;
      case Group::Kind::library: return is_only_geometry(g_, n) ? Part::view : Part::ordered;
    }
    return Part::ordered;
  }

  /// Where to cut a kernel so that half of the memory that it holds at the step is freed earlier; freed == 0 where that is not possible.
  Cut cut_of(std::size_t i, const Lifetimes& t, std::int32_t step) const {
    const Group& group = groups_[i];
    std::unordered_map<StorageId, std::size_t>
        last;  // storages alive at the step that end with the kernel: the last member that names them
    for (std::size_t k = 0; k < group.nodes.size(); ++k) {
      const Node& n = g_.nodes[position_.at(group.nodes[k])];
      for (const auto* list : {&n.args, &n.results})
        for_each_value(*list, [&](ValueId v) {
          const StorageId s = g_.values[v].storage;
          if (t.first[s] >= 0 && !t.absent[s] && t.first[s] <= step && t.last[s] == t.step[i]) last[s] = k;
        });
    }
    std::vector<std::int64_t> ends(group.nodes.size(), 0);
    std::int64_t total = 0;
    for (const auto& [s, k] : last) {
      if (k + 1 == group.nodes.size()) continue;
      ends[k] += g_.storages[s].bytes;
      total += g_.storages[s].bytes;
    }
    Cut cut{0, i, 0};
    while (total > 0 && cut.freed * 2 < total) cut.freed += ends[cut.before++];
    return cut;
  }

  bool split(const Lifetimes& t, std::int32_t step, std::int64_t excess) {
    std::vector<Cut> cuts;
    for (std::size_t i = 0; i < groups_.size(); ++i)
      if (groups_[i].kind == Group::Kind::kernel && groups_[i].nodes.size() > 1 && t.step[i] >= step)
        if (const Cut cut = cut_of(i, t, step); cut.freed > 0) cuts.push_back(cut);
    if (cuts.empty()) return false;
    std::stable_sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.freed > b.freed; });
    for (std::size_t i = 0; i < cuts.size() && excess > 0; ++i) {
      excess -= cuts[i].freed;
      std::vector<NodeId>& first = groups_[cuts[i].group].nodes;
      const auto middle = first.begin() + static_cast<std::ptrdiff_t>(cuts[i].before);
      Group second{Group::Kind::kernel, groups_[cuts[i].group].side, std::vector<NodeId>(middle, first.end()), false};
      first.erase(middle, first.end());
      groups_.push_back(std::move(second));
    }
    reorder();
    return true;
  }

  bool take_apart(const Lifetimes& t, std::int32_t step) {
    bool any = false;
    for (std::size_t i = 0; i < groups_.size(); ++i)
      if (t.step[i] == step && groups_[i].joined) {
        groups_[i].joined = false;
        apart_.insert(groups_[i].nodes.front());
        any = true;
      }
    return any;
  }

  void reorder() {
    std::unordered_map<std::size_t, std::size_t> group_at;  // by the first member's position
    for (std::size_t i = 0; i < groups_.size(); ++i) group_at[position_.at(groups_[i].nodes.front())] = i;
    std::vector<Group> ordered;
    for (const Stretch& s : stretches_) {
      std::vector<Unordered> list;
      std::vector<std::size_t> from;
      for (std::size_t p = s.begin; p < s.end; ++p) {
        const auto found = group_at.find(p);
        if (found == group_at.end()) continue;
        const Group& group = groups_[found->second];
        Unordered& u = list.emplace_back();
        u.is_kernel = group.kind == Group::Kind::kernel;
        for (NodeId id : group.nodes) u.members.push_back(static_cast<std::int32_t>(position_.at(id) - s.begin));
        from.push_back(found->second);
      }
      const bool update = g_.nodes[s.begin].side == Side::update;
      for (const Ordered& o : in_order(list, s.dependencies, s.parts, update)) {
        ordered.push_back(groups_[from[o.group]]);
        ordered.back().joined = o.joined && (!update || switches_.fuse_update) && !apart_.count(ordered.back().nodes.front());
      }
    }
    groups_ = std::move(ordered);
  }

  const Graph& g_;
  const PartitionSwitches& switches_;
  std::vector<Group> groups_;
  std::vector<Part> parts_;  // per node of the graph
  std::vector<Stretch> stretches_;
  std::unordered_map<NodeId, std::size_t> position_;
  std::set<NodeId> apart_;  // first nodes of groups that are not to be joined
};

}  // namespace

std::vector<Group> split_to_fit(const Graph& g, std::vector<Group> groups, std::int64_t peak_bound, const PartitionSwitches& switches) {
  return Splitter(g, std::move(groups), switches).run(peak_bound);
}

}  // namespace tandem
