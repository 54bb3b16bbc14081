// A kernel in the making: nodes whose nests fit into one loop, and the rules of fitting (see fuse.h).
#pragma once

#include "partitioner/nest.h"

#include <memory>
#include <optional>
#include <vector>

namespace tandem {

/// Memory that a cluster touches: a storage in one geometry over the dims of the loop.
struct Touch {
  StorageId storage = -1;
  std::int64_t offset = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<std::int64_t> strides;
  std::int64_t bytes = 0;  // of the elements that are touched
  bool made = false;       // on new memory, by a member
  bool written = false;    // made, or existed before and is overwritten
  bool total = false;      // known only after all elements
  bool read = false;
};

struct ClusterNode {
  const Node* node = nullptr;
  std::int32_t position = 0;  // in the recorded order
  Nest nest;
  bool has_rows = false;    // its row reductions run inside a unit of the loop, so that other members may read them
  std::vector<char> total;  // per result: known only after all elements
};

/// Nullopt when the node is no loop that may stand in a kernel.
std::optional<ClusterNode> cluster_node(const Graph& graph, const Node& node, std::int32_t position);

struct Cluster {
  std::vector<std::shared_ptr<const ClusterNode>> nodes;  // by position
  std::vector<Touch> touches;
  std::vector<bool> row;  // the dims of its row reductions; empty: it has none

  const std::vector<std::int64_t>& sizes() const { return nodes.front()->nest.sizes; }
  std::int64_t bytes() const;
};

Cluster cluster_of(const Graph& graph, ClusterNode node);

/// Both in one loop, or nullopt when a rule forbids it. Knows nothing of dependencies through other nodes.
std::optional<Cluster> merged(const Graph& graph, const Cluster& a, const Cluster& b);

constexpr std::size_t most_nodes = 64;     // of a kernel
constexpr std::size_t most_operands = 24;  // that exist outside

}  // namespace tandem
