#include "partitioner/max_flow.h"

#include <algorithm>

namespace tandem {

void MaxFlow::edge(Vertex from, Vertex to, Capacity capacity) {
  if (capacity <= 0 || from == to) return;
  out_[from].push_back(static_cast<std::int32_t>(edges_.size()));
  edges_.push_back({to, capacity});
  out_[to].push_back(static_cast<std::int32_t>(edges_.size()));
  edges_.push_back({from, 0});
}

MaxFlow::Capacity MaxFlow::run(Vertex source, Vertex sink) {
  Capacity flow = 0;
  while (label(source, sink)) {
    next_.assign(out_.size(), 0);
    flow += augment(source, sink);
  }
  return flow;
}

std::vector<char> MaxFlow::source_side() const {
  std::vector<char> side(level_.size());
  std::transform(level_.begin(), level_.end(), side.begin(), [](std::int32_t level) { return level >= 0; });
  return side;
}

/// Breadth first; the last call, which does not reach the sink, leaves the source's side in level_.
bool MaxFlow::label(Vertex source, Vertex sink) {
  level_.assign(out_.size(), -1);
  level_[source] = 0;
  std::vector<Vertex> queue{source};
  for (std::size_t i = 0; i < queue.size(); ++i)
    for (std::int32_t e : out_[queue[i]])
      if (edges_[e].left > 0 && level_[edges_[e].to] < 0) {
        level_[edges_[e].to] = level_[queue[i]] + 1;
        queue.push_back(edges_[e].to);
      }
  return level_[sink] >= 0;
}

/// A blocking flow: walks forward along the levels, without recursion, since a chain of a model's layers is long.
MaxFlow::Capacity MaxFlow::augment(Vertex source, Vertex sink) {
  Capacity flow = 0;
  std::vector<std::int32_t> path;
  Vertex at = source;
  while (true) {
    if (at == sink) {
      Capacity least = edges_[path.front()].left;
      for (std::int32_t e : path) least = std::min(least, edges_[e].left);
      for (std::int32_t e : path) {
        edges_[e].left -= least;
        edges_[e ^ 1].left += least;
      }
      flow += least;
      const auto full = std::find_if(path.begin(), path.end(), [&](std::int32_t e) { return edges_[e].left == 0; });
      at = edges_[*full ^ 1].to;
      path.erase(full, path.end());
      continue;
    }
    std::size_t& i = next_[at];
    while (i < out_[at].size() && !(edges_[out_[at][i]].left > 0 && level_[edges_[out_[at][i]].to] == level_[at] + 1)) ++i;
    if (i < out_[at].size()) {
      path.push_back(out_[at][i]);
      at = edges_[path.back()].to;
    } else if (path.empty()) {
      return flow;
    } else {
      at = edges_[path.back() ^ 1].to;
      path.pop_back();
      ++next_[at];
    }
  }
}

}  // namespace tandem
