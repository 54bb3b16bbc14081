// Runs a Plan on one set of bindings, again and again.
#pragma once

#include "autograd/node_call.h"
#include "runtime/plan.h"

#include <functional>
#include <string>
#include <vector>

namespace tandem {

class Executor {
 public:
  /// Prepares every call and runs the folded nodes. The plan must outlive the executor.
  explicit Executor(const Plan& plan);

  using Probe = std::function<void(std::size_t node, Slots& slots)>;  // after each node, views included
  /// Runs the step. When a node throws, its exception comes through; failed_node() then tells which, and value() still gives what was made.
  void run(const RunInputs& inputs, const Probe& probe = {});

  at::Tensor value(ValueId v) { return v < 0 ? at::Tensor() : slots_.get(v); }
  bool has(ValueId v) const { return v >= 0 && slots_.has_storage(plan_.graph.values[v].storage); }
  void end() { slots_.release_step(); }  // gives back everything that the step made, and the caller's inputs

  std::int64_t failed_node() const { return failed_; }     // index into the graph's nodes, or -1
  void time_calls(bool on) { timing_ = on; }
  const std::vector<double>& shortest_us() const { return shortest_us_; }  // per node, infinity where never timed

 private:
  void call(std::size_t index, const std::vector<double>& scalars);

  const Plan& plan_;
  Slots slots_;
  std::vector<NodeCall> calls_;          // per node of the graph
  std::vector<std::size_t> node_at_;     // per call of the program
  std::vector<double> shortest_us_;
  torch::jit::Stack stack_;
  std::int64_t failed_ = -1;
  bool timing_ = false;
};

}  // namespace tandem
