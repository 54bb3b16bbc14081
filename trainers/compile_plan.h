// The plans of one recorded call: a forward, and a backward for each combination of tangents that was recorded.
#pragma once

#include "autograd/tape.h"
#include "runtime/chain.h"
#include "trainers/compile_record.h"

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace tandem {

/// Memory that the backwards read and that the caller could change after the forward: what exists outside, and results that the caller gets.
struct Exposed {
  StorageId storage = -1;
  std::int32_t output = -1;  // of the function, where it is its result
};

/// What one backward is made of.
struct PlannedBackward {
  TangentKey key;
  std::vector<StorageId> tangents;  // per present tangent; -1 where no node reads it
  std::vector<std::size_t>
      guarded;                  // positions in CallPlan::exposed() of what eager's autograd saves: an overwrite makes the backward throw
  std::set<std::string> frees;  // eager's autograd nodes that hold saved values: a second backward through one of them throws
  struct Gives {
    std::size_t target = 0;
    ValueId value = -1;    // of the backward's plan, or of the captured graph where it lies outside
    bool outside = false;  // the gradient is a tangent, or a view of one
    bool copied = false;   // it shares memory with another gradient or a saved value: whoever gets it may keep it as its own
  };
  std::vector<Gives> gives;
  std::int64_t used = 0;
};

class CallPlan {
 public:
  /// Throws where no sound plan can be made.
  CallPlan(const RecordedCall& call, std::vector<Derived> derived, const PlanSwitches& switches, const jit::Settings& jit);

  const RecordedCall& call() const { return call_; }
  const Graph& captured() const { return call_.recording.graph; }
  Chain& chain() { return *chain_; }
  const Tape& tape() const { return *tape_; }  // of the forward
  const Parts& parts() const { return tape_->parts(); }
  /// How many parts of the chain are the forward; the backwards come after them.
  std::size_t forwards() const { return forwards_; }
  /// Fills in the numbers of the backwards, which follow from those of the forward.
  void derive_numbers(std::vector<double>& scalars) const;
  const std::vector<Exposed>& exposed() const { return exposed_; }
  std::vector<PlannedBackward>& backwards() { return backwards_; }
  /// Eager's autograd nodes that hold saved values, as far as they are known, on the way back from the outputs that have a tangent.
  std::set<std::string> frees(const TangentKey& key) const;
  bool random() const { return random_; }
  const std::vector<StorageId>& overwritten() const { return overwritten_; }  // memory from outside that the forward writes
  std::int64_t recomputed_nodes() const { return recomputed_nodes_; }
  std::int64_t recomputed_bytes() const { return recomputed_bytes_; }

 private:
  std::vector<Segment> segments(const PlanSwitches& switches, const Parts& parts, bool recompute);
  void make_chain(const PlanSwitches& switches, const Parts& parts, const jit::Settings& jit);
  bool reads_only_what_eager_saves() const;
  void describe_backward(std::size_t m);
  std::set<StorageId> saved_by_eager(std::size_t m) const;
  std::size_t end_of(std::size_t m) const;
  bool is_tangent(StorageId s) const;

  RecordedCall call_;
  std::unique_ptr<Chain> chain_;
  std::unique_ptr<Tape> tape_;
  std::vector<std::int64_t> born_;  // per storage of the captured graph: the node that makes it, -1: it exists before
  std::vector<Derived> derived_;
  std::size_t forwards_ = 1;
  std::vector<StorageId> overwritten_;
  std::vector<Exposed> exposed_;
  std::vector<PlannedBackward> backwards_;
  std::size_t inputs_ = 0;
  bool random_ = false;
  std::int64_t recomputed_nodes_ = 0, recomputed_bytes_ = 0;
};

}  // namespace tandem
