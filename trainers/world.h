// The user's objects that a step touches: parameters, buffers, gradients, optimizer state, as lists whose positions give names in a Graph.
#pragma once

#include "autograd/autograd_graph.h"
#include "autograd/capture.h"
#include "autograd/slots.h"
#include "runtime/guards.h"
#include "trainers/optimizers.h"

#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tandem {

class World {
 public:
  /// Both may be nullptr: then nothing is known before a step but its inputs.
  World(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer* optimizer);

  /// Notices parameters, buffers and param groups that were replaced or added since the last call.
  void refresh();
  /// A leaf that the loss uses and neither the optimizer nor the model lists. Returns whether it is new.
  bool add_leaf(const at::Tensor& leaf);

  const std::vector<NamedTensor>& leaves() const { return leaves_; }  // the optimizer's first
  std::size_t optimizer_leaves() const { return optimizer_leaves_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }
  std::vector<char> training() const;

  /// Per parameter of the optimizer in its order, duplicates included: has it a gradient, given that of each leaf.
  std::vector<bool> has_grad(const std::vector<char>& per_leaf) const;
  /// Leaf of the n-th parameter of the optimizer.
  std::size_t leaf_of(std::size_t param) const { return param_leaf_[param]; }

  torch::optim::Optimizer& optimizer() { return *optimizer_; }
  const LeafSet& leaf_set() const { return leaf_set_; }
  OptimizerFormula* formula() { return formula_.get(); }

  /// The tensors that exist before a step, for the recorder. `drops_gradients`: zero_grad is going to drop the optimizer's.
  std::vector<KnownTensor> known(const std::vector<at::Tensor>& inputs, bool drops_gradients) const;
  /// The gradient that a leaf has once zero_grad is through.
  at::Tensor gradient(std::size_t leaf, bool drops_gradients) const;
  /// Tensors by role, read once per step.
  struct Present {
    const std::vector<at::Tensor>* inputs;
    std::vector<StateTensor> state;
  };
  Present present(const std::vector<at::Tensor>& inputs) const;
  /// Version counters of what known() lists, in its order.
  std::vector<std::uint32_t> versions(const Present& present, bool drops_gradients) const;
  at::Tensor resolve(Role role, std::int32_t index, const Present& present) const;

 private:
  bool unchanged() const;
  void rebuild();

  std::shared_ptr<torch::nn::Module> model_;
  torch::optim::Optimizer* optimizer_;
  LeafSet leaf_set_;
  std::unique_ptr<OptimizerFormula> formula_;
  std::vector<std::shared_ptr<torch::nn::Module>> submodules_;
  std::vector<NamedTensor> leaves_, buffers_, extra_;
  std::vector<std::size_t> param_leaf_;
  std::vector<const void*> seen_;  // identities of the optimizer's tensors, then of each module and its tensors, in order
  std::size_t optimizer_leaves_ = 0;
};

}  // namespace tandem
