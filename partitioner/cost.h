// Modelled time: arithmetic and memory traffic, whichever takes longer, and the cost of a call.
#pragma once

#include "partitioner/partition.h"

#include <unordered_map>
#include <vector>

namespace tandem {

/// Rates of a core or two of a current server CPU, rounded. They only rank partitions: what runs faster is measured elsewhere.
namespace rates {
constexpr double contraction_flops = 1e11;  // matrix products and convolutions in the vendor's library
constexpr double loop_flops = 2e10;         // vectorised loops, in the flops of ops.def
constexpr double bytes = 1e10;              // main memory
constexpr double library_call = 1e-6;       // dispatch of one op
constexpr double kernel_call = 3e-7;        // a generated kernel
}  // namespace rates

/// Bytes of memory that reading or writing all of the value touches: what is broadcast counts once.
std::int64_t touched_bytes(const Value&);

double arithmetic_seconds(const Graph&, const Node&);

/// The node as one library call.
double library_seconds(const Graph&, const Node&);

/// What a group does; arithmetic and memory traffic overlap.
struct Work {
  double call = 0, arithmetic = 0, memory = 0;  // seconds
  double seconds() const { return call + (arithmetic > memory ? arithmetic : memory); }
};

/// Costs of the groups of one graph, which must outlive it.
class GroupCosts {
 public:
  explicit GroupCosts(const Graph&);

  /// `nodes`: those of the group. `absent`: per storage, whether its values stay inside the loop that makes them. A joined group costs no call of
  /// its own.
  Work of(const Group&, const std::vector<const Node*>& nodes, const std::vector<char>& absent) const;

  /// How often the nodes of a group name each place as an operand.
  using Names = std::unordered_map<ValueId, std::size_t>;
  Names names_of(const std::vector<const Node*>& nodes) const;

  /// What some nodes of a kernel alone add to it: the operands that no other node of it names, and what they make. Without them the others would
  /// read from memory what now stays inside.
  Work share_of(const std::vector<const Node*>& nodes, const Names& names_of_kernel, const std::vector<char>& absent) const;

 private:
  double memory_seconds(ValueId) const;

  const Graph& g_;
  std::vector<ValueId> place_;  // per value: the first value with its geometry on its storage, of any version
};

}  // namespace tandem
