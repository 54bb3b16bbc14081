// Ends the autograd graph at some tensors for a while, so that a backward of our own goes no further than they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace tandem {

/// Without it a gradient of a leaf would also count what reaches the leaf through an input that was itself computed from it.
class Barriers {
 public:
  /// Of the inputs those that require grad and are no leaves get a barrier in the place of their autograd node.
  explicit Barriers(const std::vector<at::Tensor>& inputs);
  ~Barriers();
  Barriers(const Barriers&) = delete;

  /// Whether the function has put a hook on an input.
  bool hooked() const;
  /// Puts the inputs back, and connects the graph that `roots` have by now with theirs.
  void lift(const std::vector<at::Tensor>& roots);

 private:
  struct One;
  std::vector<One> all_;
};

}  // namespace tandem
