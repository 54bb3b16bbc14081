// Which activations are saved for the backward, which are recomputed, and which nodes form one kernel.
#pragma once

#include "autograd/graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// Nodes that are lowered together. A library group is one call through ATen.
struct Group {
  enum class Kind : std::uint8_t { library, view, once };  // view: made from its geometry, no call; once: runs at activation
  Kind kind = Kind::library;
  Side side = Side::forward;
  std::vector<NodeId> nodes;
  bool operator==(const Group&) const = default;
};

struct Partition {
  std::vector<StorageId> saved;      // internal storages that the forward makes and backward or update reads, ascending
  std::vector<NodeId> recomputed;    // forward nodes that run again on the backward's side
  std::vector<Group> groups;         // in the order of execution
  std::int64_t saved_bytes = 0;
  bool operator==(const Partition&) const = default;
};

struct PartitionSwitches {
  bool skip_views = true;
};

/// Eager's own choice: every activation that the backward reads is saved, nothing is recomputed, one group per node.
Partition partition(const Graph&, const PartitionSwitches& = {});

/// Empty when the partition is sound; otherwise one sentence. Knows nothing of how it was made: every node runs in exactly one group, each
/// group's operands exist at their version when it runs, saved is exactly what crosses, no random node or write is recomputed.
std::string validate(const Graph&, const Partition&);

std::string print(const Partition&);
Partition parse_partition(std::string_view text);  // throws Error "text line L: expected X, found Y"

}  // namespace tandem
