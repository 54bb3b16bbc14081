#include "autograd/autograd_graph.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace tandem {
namespace {

using torch::autograd::Node;

bool has_hooks(Node& n) {
  return !n.tensor_pre_hooks().empty() || !n.pre_hooks().empty() || !n.post_hooks().empty() || !n.retains_grad_hooks().empty() ||
         n.tensor_post_acc_grad_hooks() != nullptr;
}

std::string refusal_of(Node& n, std::uint64_t first_sequence) {
  if (n.sequence_nr() < first_sequence)
    return "the loss depends on a tensor that was computed, with gradients, before the step (autograd node " + n.name() +
           "), expected only leaves from outside";
  if (has_hooks(n)) return "autograd node " + n.name() + " has a hook, expected none: hooks run host code that a plan would skip";
  // CppNode<T> is what torch::autograd::Function<T> makes; its name is the demangled type.
  if (n.name().find("CppNode<") != std::string::npos || n.name().find("PyNode") != std::string::npos)
    return "the loss uses a custom autograd::Function (" + n.name() + "), expected LibTorch's own ops: its backward may run host code";
  return "";
}

}  // namespace

std::uint64_t autograd_sequence() { return at::sequence_number::peek(); }

AutogradLook look_at_autograd(const at::Tensor& loss, std::uint64_t first_sequence) {
  AutogradLook look;
  auto root = loss.grad_fn();
  if (!root) {
    if (loss.requires_grad()) look.leaves.push_back(loss);
    return look;
  }
  std::unordered_set<Node*> seen{root.get()};
  std::vector<Node*> todo{root.get()};
  while (!todo.empty()) {
    auto* n = todo.back();
    todo.pop_back();
    if (look.refusal.empty()) look.refusal = refusal_of(*n, first_sequence);
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(n)) look.leaves.push_back(leaf->variable);
    for (const auto& edge : n->next_edges())
      if (edge.function && seen.insert(edge.function.get()).second) todo.push_back(edge.function.get());
  }
  return look;
}

bool has_hooks(const at::Tensor& leaf) {
  if (!torch::autograd::impl::get_autograd_meta(leaf)) return false;
  if (!torch::autograd::impl::hooks(leaf).empty() || torch::autograd::impl::post_acc_grad_hooks(leaf)) return true;
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(leaf);
  return accumulator && has_hooks(*accumulator);
}

}  // namespace tandem
