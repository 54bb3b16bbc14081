// A look at LibTorch's autograd graph between forward and backward: leaves, hooks, the user's own functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace tandem {

struct AutogradLook {
  std::vector<at::Tensor> leaves;  // tensors whose gradient backward accumulates, in the order of the walk
  std::string refusal;             // one sentence about a hook or a custom autograd::Function; empty when there is none
};

/// Walks from the loss. Call it before backward, which frees the graph.
AutogradLook look_at_autograd(const at::Tensor& loss);

/// Whether a leaf carries a gradient hook of any kind.
bool has_hooks(const at::Tensor& leaf);

}  // namespace tandem
