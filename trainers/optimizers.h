// What is known of torch::optim's own optimizers: the numbers that one update uses, in the order in which it uses them.
//
// The update's ops come from the recording. Only its numbers are ours: each is matched bit for bit against the recorded one, becomes a run-time
// scalar, and is computed anew from the param groups and the step counters in every step.
#pragma once

#include "autograd/graph.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace tandem {

struct Number {
  std::string name;  // "adam.beta1[3]": quantity and parameter
  double value = 0;
};

struct StateTensor {
  std::int32_t param = 0;  // position among all groups' parameters
  const char* name = "";   // "exp_avg"
  at::Tensor tensor;
};

/// One recognised optimizer. Parameters are counted over all groups in order; a parameter that is listed twice counts twice (eager updates it
/// twice). `has_grad[i]`: whether parameter i has a defined gradient in this step; others are skipped as eager skips them.
class OptimizerFormula {
 public:
  /// nullptr unless the object is exactly one of SGD, Adam, AdamW, RMSprop, Adagrad (a subclass may do anything).
  static std::unique_ptr<OptimizerFormula> recognise(torch::optim::Optimizer& optimizer);
  virtual ~OptimizerFormula() = default;

  virtual std::string name() const = 0;  // "Adam"

  /// Everything that changes the sequence of ops: which options are zero, flags, which state entries exist. Two equal strings mean the same ops.
  virtual std::string variant() const = 0;

  /// The numbers of the update that step() would make now, in its order, by its expressions (same rounding). Reads the param groups.
  virtual std::vector<Number> numbers(const std::vector<bool>& has_grad) const = 0;
  /// Their values alone, into `out`: what each compiled step needs.
  virtual void values(const std::vector<bool>& has_grad, std::vector<double>& out) const = 0;

  /// The state tensors that exist now, in the order of the parameters (each once), as handles.
  virtual std::vector<StateTensor> state() const = 0;

  /// Advances the host counters as step() does, for the first `params` parameters that have a gradient.
  virtual void advance(const std::vector<bool>& has_grad, std::size_t params) = 0;
};

/// Turns the numbers of the update nodes (those at `first_update` and after) into run-time scalars. Floating numbers are taken in the order of
/// the nodes and their arguments and must equal `numbers` bit for bit. Returns one sentence when they do not (the graph is then unchanged).
std::string bind_numbers(Graph& graph, std::size_t first_update, const std::vector<Number>& numbers);

}  // namespace tandem
