// The place of a compiled call in the autograd graph: its backward runs the plan that was made for the tangents that arrive.
#pragma once

#include "trainers/compile_again.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace tandem {

/// What one forward leaves for its backwards.
struct CallState {
  std::shared_ptr<CallPlan> plan;
  std::shared_ptr<std::recursive_mutex> mutex;  // of the function: its plans run one at a time
  std::shared_ptr<Observed> observed;
  Chain::Held held;
  std::vector<Binding> exposed;  // as CallPlan::exposed(); results of the function are left empty
  std::vector<double> scalars;   // run-time numbers of this call
  std::shared_ptr<const Again> again;
};

class PlanEdge final : public torch::autograd::Node {
 public:
  PlanEdge(torch::autograd::edge_list&& next, CallState state);

  /// Notes the version of each exposed tensor, in the order of CallPlan::exposed(). `output`: per tensor, whether it is a result of this node.
  void save(const std::vector<at::Tensor>& exposed, const std::vector<char>& output);

  void release_variables() override;
  std::string name() const override { return "TandemBackward"; }

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;

 private:
  using Tensors = torch::autograd::variable_list;
  void check_saved(const PlannedBackward& backward);
  PlannedBackward* find(const TangentKey& key);
  PlannedBackward* find_by_place(const TangentKey& key);
  Tensors run(PlannedBackward& backward, const Tensors& tangents);
  Tensors run_again(const TangentKey& key, const Tensors& tangents, bool differentiable);
  void bind(const PlannedBackward& backward, const Tensors& tangents, RunInputs& in) const;

  CallState state_;
  std::vector<torch::autograd::SavedVariable> saved_;
  std::set<std::string> freed_;      // eager's autograd nodes whose saved values are gone
  std::vector<char> freed_outputs_;  // per differentiable output: a backward from it has freed what it needed
  PlannedBackward* last_ = nullptr;  // the backward that ran last, for release_variables()
  TangentKey last_key_;
};

/// Gives the differentiable outputs their edge. `bound`, `captured`: of the forward that made them.
void connect(CallState state, const ModuleTensors& world, const std::vector<at::Tensor>& inputs, const RunInputs& bound,
             const std::vector<CapturedStorage>& captured, std::vector<at::Tensor>& outputs);

}  // namespace tandem
