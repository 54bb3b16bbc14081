// Which activations are saved for the backward, which are recomputed, and which nodes form one kernel.
#pragma once

#include "autograd/graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// Nodes that are lowered together. A library group is one call through ATen or BLAS.
struct Group {
  enum class Kind : std::uint8_t {
    library,
    view,    // made from its geometry, no call
    once,    // runs at activation
    kernel,  // one generated loop nest
  };
  Kind kind = Kind::library;
  Side side = Side::forward;
  std::vector<NodeId> nodes;  // in an order in which they may run
  bool joined = false;        // kind kernel: independent of the group before, which is a kernel too; both run in one launch without a barrier
  bool operator==(const Group&) const = default;
};

/// A forward node that runs again on the backward's side, as node `as` of the partitioned graph.
struct Recomputed {
  NodeId node = -1, as = -1;
  bool operator==(const Recomputed&) const = default;
};

struct Partition {
  std::vector<StorageId> saved;  // internal storages that the forward makes and backward or update reads, ascending
  std::vector<Recomputed> recomputed;  // ascending by `as`
  std::vector<Group> groups;           // in the order of execution
  std::int64_t saved_bytes = 0;
  std::int64_t recomputed_bytes = 0;  // of the results that are made again
  bool operator==(const Partition&) const = default;
};

struct PartitionSwitches {
  bool skip_views = true;
  bool recompute = true;    // choose between saving and recomputing; false: eager's own choice
  bool fuse = true;         // form kernels; false: one library group per node
  bool fuse_update = true;  // kernels of the update side are joined into one launch
};

/// The graph in which recomputed nodes are nodes of their own (side backward, on new storages), and its partition.
struct Partitioned {
  Graph graph;
  Partition partition;
};

/// Objective: the lowest modelled peak among the candidates within 1 % of the fastest modelled time; never a peak above eager's own order.
Partitioned partition(const Graph&, const PartitionSwitches& = {});

/// Empty when the partition is sound; otherwise one sentence. Knows nothing of how it was made: every node runs in exactly one group, each
/// group's operands exist at their version when it runs, saved is exactly what crosses, what is recomputed draws no random number, writes nothing
/// that existed before, and computes from its operands what its original computes; joined groups are independent.
std::string validate(const Graph&, const Partition&);

std::string print(const Partition&);
Partition parse_partition(std::string_view text);  // throws Error "text line L: expected X, found Y"

const char* name_of(Group::Kind);

}  // namespace tandem
