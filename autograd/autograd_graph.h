// A look at LibTorch's autograd graph between forward and backward: leaves, hooks, the user's own functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct AutogradLook {
  std::vector<at::Tensor> leaves;  // tensors whose gradient backward accumulates, in the order of the walk
  std::string refusal;             // one sentence about a hook, a custom autograd::Function or an older graph; empty when there is none
};

/// Where autograd's sequence numbers stand on this thread: nodes that are made from now on have at least this number.
std::uint64_t autograd_sequence();

/// Walks from the loss. Call it before backward, which frees the graph. `first_sequence`: autograd_sequence() when the step began; older nodes
/// belong to a graph from before the step, whose backward a plan must not replay.
AutogradLook look_at_autograd(const at::Tensor& loss, std::uint64_t first_sequence);

/// Whether a leaf carries a gradient hook of any kind.
bool has_hooks(const at::Tensor& leaf);

}  // namespace tandem
