// Maximum flow and minimum cut by Dinic's method, on integers so that equal costs are equal.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

class MaxFlow {
 public:
  using Vertex = std::int32_t;
  using Capacity = std::int64_t;

  explicit MaxFlow(std::size_t vertices) : out_(vertices) {}

  void edge(Vertex from, Vertex to, Capacity capacity);

  /// The value of the maximum flow, which is that of the minimum cut. To be called once, after the last edge.
  Capacity run(Vertex source, Vertex sink);

  /// After run(): per vertex, whether it is on the source's side of the minimum cut whose source side is the smallest. Where a cheapest cut is
  /// not unique this one is the same for any order of the edges.
  std::vector<char> source_side() const;

 private:
  struct Edge {
    Vertex to;
    Capacity left;  // residual capacity; edge e ^ 1 is the same one backwards
  };
  bool label(Vertex source, Vertex sink);
  Capacity augment(Vertex source, Vertex sink);

  std::vector<Edge> edges_;
  std::vector<std::vector<std::int32_t>> out_;
  std::vector<std::int32_t> level_;  // distance from the source in the residual graph, -1: not reached
  std::vector<std::size_t> next_;    // per vertex, the first edge that may still carry more in this phase
};

}  // namespace tandem
