// A look at LibTorch's autograd graph between forward and backward: leaves, hooks, the user's own functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace tandem {

struct AutogradLook {
  std::vector<at::Tensor> leaves;  // tensors whose gradient backward accumulates, in the order of the walk
  std::string refusal;             // one sentence about an older graph, whose backward a plan must not replay; empty when there is none
  std::string host_code;           // one sentence about a hook or a custom autograd::Function; empty when there is none
};

/// Where autograd's sequence numbers stand on this thread: nodes that are made from now on have at least this number.
std::uint64_t autograd_sequence();

/// Walks from the loss. Call it before backward, which frees the graph. `first_sequence`: autograd_sequence() when the step began; older nodes
/// belong to a graph from before the step, whose backward a plan must not replay.
AutogradLook look_at_autograd(const at::Tensor& loss, std::uint64_t first_sequence);

/// What the backward of a loss will do, as one hash: kinds of the autograd nodes, their order, edges and hooks, and which of the `lasting` leaves they end
/// at (others are the step's own, they count as one). `nodes` gets those of this step.
using LeafSet = std::unordered_set<const c10::TensorImpl*>;
std::uint64_t autograd_fingerprint(const at::Tensor& loss, std::uint64_t first_sequence, const LeafSet& lasting,
                                   std::vector<torch::autograd::Node*>* nodes = nullptr);

/// Frees what the nodes have saved, as backward does.
void release_saved(const std::vector<torch::autograd::Node*>& nodes);

/// The same for a function with several results, whose backward somebody else runs: the walk ends at `inputs`, which are not among the
/// leaves, and hooks on leaves and inputs are no hindrance.
AutogradLook look_at_function(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs, std::uint64_t first_sequence);

/// Whether a leaf carries a gradient hook of any kind.
bool has_hooks(const at::Tensor& leaf);

/// Takes the hooks of the tensors away while it lives, so that a backward of our own up to them runs none of the user's host code.
class HooksAside {
 public:
  explicit HooksAside(const std::vector<at::Tensor>& tensors);
  ~HooksAside();
  HooksAside(const HooksAside&) = delete;

 private:
  struct Taken;
  std::vector<Taken> taken_;
};

}  // namespace tandem
