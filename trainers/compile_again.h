// Runs a call of a compiled function again in eager: for derivatives of derivatives, and for tangents that no plan was made for.
#pragma once

#include "trainers/compile_plan.h"

#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace tandem {

class Again {
 public:
  /// Call it before any part of the forward plan runs: notes where the generator stands. `before`: of the same call, when it has gone over from
  /// another plan; may be nullptr.
  Again(const detail::Callee& callee, std::shared_ptr<ModuleTensors> world, std::shared_ptr<CallPlan> plan,
        const std::vector<at::Tensor>& inputs, const Again* before);
  /// Before each part: copies what the forward is going to overwrite.
  void copy(const RunInputs& bound);
  /// And this after all: versions, the captured tensors of this call, and its run-time numbers.
  void follow_up(std::vector<CapturedStorage> captured, std::vector<double> scalars);

  /// The gradients of the plan's targets. `differentiable`: with an autograd graph of their own. Throws Error when the call cannot be repeated.
  std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& tangents, bool differentiable) const;

 private:
  struct Input {
    at::Tensor tensor;  // the leaf itself, or a handle on the same memory and version counter that is no part of an autograd graph
    torch::autograd::Edge edge;
    std::uint32_t version = 0;
    std::size_t first = 0;  // the first input that is the same tensor
  };
  struct Overwritten {
    c10::Storage storage;
    std::vector<char> before;
  };
  class Rewind;
  void check() const;
  detail::Flat call(const std::vector<at::Tensor>& inputs) const;
  std::vector<at::Tensor> inputs_again() const;
  std::vector<c10::VariableVersion> counters() const;

  detail::Callee callee_;
  std::shared_ptr<ModuleTensors> world_;
  std::shared_ptr<CallPlan> plan_;
  std::vector<Input> inputs_;
  std::vector<Overwritten> overwritten_;
  std::vector<std::pair<at::Tensor, std::uint32_t>> versions_;  // of leaves and buffers that the call only reads
  std::vector<char> training_;
  std::vector<CapturedStorage> captured_;
  std::vector<double> scalars_;
  at::Tensor generator_;
};

}  // namespace tandem
