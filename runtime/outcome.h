// What a step leaves behind, as a list that is equal in order for eager, graph and plan; and how two such lists compare.
#pragma once

#include "autograd/slots.h"
#include "runtime/guards.h"

#include <functional>
#include <string>
#include <vector>

namespace tandem {

/// The eager step that a graph or a plan is judged by.
struct EagerStep {
  RunInputs before;                 // storages that the step writes: private copies from before it; the others: the live ones
  std::vector<c10::Storage> after;  // by StorageId, for those that are not internal: what eager left
  at::Tensor loss, grad_norm;
  std::vector<at::Tensor> outputs;               // as Graph::outputs
  std::vector<at::Tensor> gradients;             // as Graph::gradients[i].before: when the update side begins
  std::vector<at::Tensor> kept;                  // as Graph::gradients[i].value: at the end; undefined where dropped
  at::Tensor generator_before, generator_after;  // states of the default CPU generator
};

/// Ids of the non-internal storages that some node writes, ascending.
std::vector<StorageId> written_outside(const Graph& graph);

/// The tensor that best stands for a storage: its first value's geometry.
at::Tensor tensor_on(const Graph& graph, StorageId id, const Binding& binding);

/// A copy of the bindings in which every written storage is private.
RunInputs private_copy(const Graph& graph, const RunInputs& inputs);

/// The tensors that a step delivers, in the places that its graph has for them; undefined where there is none.
struct Delivered {
  at::Tensor loss, grad_norm;
  std::vector<at::Tensor> outputs, gradients, kept;  // as those of EagerStep
};

using Outcome = std::vector<NamedTensor>;
Outcome outcome_of(const EagerStep& eager, const Graph& graph);
/// `value` gives the tensor of a value, `inputs` the bindings that the run wrote to, `gradients` those of a GradientKeeper.
Outcome outcome_of(const Graph& graph, const RunInputs& inputs, const std::function<at::Tensor(ValueId)>& value,
                   const std::vector<at::Tensor>& gradients);
Outcome outcome_of(const Graph& graph, const RunInputs& inputs, const Delivered& delivered);

/// Copies the gradients as they are when the update side begins: call keep() there.
class GradientKeeper {
 public:
  explicit GradientKeeper(const Graph& graph) : graph_(graph), gradients_(graph.gradients.size()) {}
  void keep(Slots& slots);
  const std::vector<at::Tensor>& gradients() const { return gradients_; }

 private:
  const Graph& graph_;
  std::vector<at::Tensor> gradients_;
};

/// Bit for bit, NaN payloads and signs of zero included; undefined equals undefined; dtype, sizes and strides count.
bool bit_equal(const at::Tensor& a, const at::Tensor& b);
/// Empty, or one sentence that names the first tensor that differs and by how much.
std::string bit_difference(const Outcome& expected, const Outcome& found);

/// Sets the default CPU generator's state for its lifetime and puts the old one back.
class GeneratorScope {
 public:
  explicit GeneratorScope(const at::Tensor& state);
  /// The same if the graph draws random numbers; otherwise the generator is left alone: another thread may be using it.
  GeneratorScope(const Graph& graph, const at::Tensor& state);
  ~GeneratorScope();

 private:
  at::Tensor saved_;
};
at::Tensor generator_state();
void set_generator(const at::Tensor& state);
/// Whether the generator stands there, or the graph does not care.
bool generator_stands(const Graph& graph, const at::Tensor& state);

}  // namespace tandem
