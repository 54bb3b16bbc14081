#include "autograd/stops.h"

#include "autograd/op.h"

#include <algorithm>
#include <set>

namespace tandem {
namespace {

bool may_fail(const Graph& g, std::size_t end) {
  return std::any_of(g.nodes.begin(), g.nodes.begin() + std::ptrdiff_t(end), [](const Node& n) {
    const auto* row = find_op(n.op);
    return !row || may_throw(row->kind);
  });
}

std::vector<char> free_reads(const Graph& g) {
  std::vector<char> out(g.nodes.size(), false), written(g.storages.size(), false);
  for (std::size_t n = 0; n < g.nodes.size(); n++) {
    const auto& node = g.nodes[n];
    bool free = node.effects.host_read;
    for_each_value(node.results, [&](ValueId) { free = false; });
    for_each_value(node.args, [&](ValueId v) {
      const auto s = std::size_t(g.values[std::size_t(v)].storage);
      free &= g.storages[s].role != Role::internal && !written[s];
    });
    out[n] = free || is_host_made(node);
    for (auto s : node.writes) written[std::size_t(s)] = true;
  }
  return out;
}

}  // namespace

Parts parts_of(const Recording& r, bool forward_first) {
  const auto& g = r.graph;
  Parts out;
  out.free_reads = free_reads(g);
  std::set<std::size_t> cuts{0, g.nodes.size()}, stops;
  for (std::size_t n = 0; n < g.nodes.size(); n++) {
    if (!g.nodes[n].effects.host_read || out.free_reads[n]) continue;
    cuts.insert({n, n + 1});
    stops.insert(n);
  }
  if (forward_first && r.forward_end > 0 && r.forward_end < g.nodes.size() && may_fail(g, r.forward_end)) {
    cuts.insert(r.forward_end);
    stops.insert(r.forward_end);
  }
  for (auto begin = cuts.begin(), end = std::next(begin); end != cuts.end(); ++begin, ++end)
    out.parts.push_back({*begin, *end, stops.count(*begin) && g.nodes[*begin].effects.host_read});
  out.stops.assign(stops.begin(), stops.end());
  std::set<ValueId> alive;
  for (const auto& a : r.alive)
    if (stops.count(a.node)) alive.insert(a.values.begin(), a.values.end());
  out.alive.assign(alive.begin(), alive.end());
  return out;
}

std::vector<Segment> cut(const Graph& graph, const Parts& parts) {
  std::vector<Segment> out;
  if (parts.parts.size() == 1) {
    out.push_back(Segment{graph, {}, {}});
  } else {
    std::vector<std::size_t> at;
    for (std::size_t i = 1; i < parts.parts.size(); i++) at.push_back(parts.parts[i].begin);
    out = cut(graph, at, parts.alive);
  }
  for (auto& segment : out) std::erase_if(segment.graph.nodes, [&](const Node& n) { return parts.free_reads[std::size_t(n.id)] != 0; });
  return out;
}

}  // namespace tandem
