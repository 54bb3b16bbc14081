// Runs a graph node by node through ATen: the oracle of the checks, and the probe that finds the first wrong node.
#pragma once

#include "autograd/node_call.h"

#include <functional>
#include <vector>

namespace tandem {

class Interpreter {
 public:
  /// The graph must outlive the interpreter.
  explicit Interpreter(const Graph& graph);

  /// Called after each node (index into Graph::nodes) while its operands and results are still there.
  using Probe = std::function<void(std::size_t node, Slots& slots)>;
  void run(const RunInputs& inputs, const Probe& probe = {});

  /// Step by step, for lock-step runs: begin, then step(0), step(1), ...
  void begin(const RunInputs& inputs);
  void step(std::size_t node);
  void release_after(std::size_t node);

  at::Tensor value(ValueId v) { return v < 0 ? at::Tensor() : slots_.get(v); }
  Slots& slots() { return slots_; }

 private:
  const Graph& graph_;
  Slots slots_;
  std::vector<NodeCall> calls_;
  std::vector<std::vector<StorageId>> releases_;
  std::vector<double> scalars_;
  torch::jit::Stack stack_;
};

}  // namespace tandem
