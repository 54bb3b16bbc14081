#include "autograd/autograd_graph.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <c10/util/hash.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <typeinfo>
#include <unordered_map>
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
  return "";
}

std::string host_code_of(Node& n) {
  if (has_hooks(n)) return "autograd node " + n.name() + " has a hook, expected none: hooks run host code that a plan would skip";
  // CppNode<T> is what torch::autograd::Function<T> makes; its name is the demangled type.
  if (n.name().find("CppNode<") != std::string::npos || n.name().find("PyNode") != std::string::npos)
    return "the loss uses a custom autograd::Function (" + n.name() + "), expected LibTorch's own ops: its backward may run host code";
  return "";
}

class FunctionWalk {
 public:
  FunctionWalk(const std::vector<at::Tensor>& inputs, std::uint64_t first_sequence) : first_sequence_(first_sequence) {
    for (const auto& t : inputs)
      if (t.defined() && t.requires_grad()) ends_.push_back(torch::autograd::impl::gradient_edge(t));
  }

  void from(const at::Tensor& result) {
    if (result.defined() && result.requires_grad()) enter(torch::autograd::impl::gradient_edge(result));
  }

  AutogradLook run() && {
    while (!todo_.empty()) {
      auto* n = todo_.back();
      todo_.pop_back();
      for (const auto& edge : n->next_edges()) enter(edge);
    }
    return std::move(look_);
  }

 private:
  void enter(const torch::autograd::Edge& edge) {
    auto* n = edge.function.get();
    if (!n || std::find(ends_.begin(), ends_.end(), edge) != ends_.end() || !seen_.insert(n).second) return;
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(n)) {
      look_.leaves.push_back(leaf->variable);
      return;
    }
    if (look_.refusal.empty()) look_.refusal = refusal_of(*n, first_sequence_);
    if (look_.host_code.empty()) look_.host_code = host_code_of(*n);
    todo_.push_back(n);
  }

  std::uint64_t first_sequence_;
  std::vector<torch::autograd::Edge> ends_;
  std::unordered_set<Node*> seen_;
  std::vector<Node*> todo_;
  AutogradLook look_;
};

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
    if (look.host_code.empty()) look.host_code = host_code_of(*n);
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(n)) look.leaves.push_back(leaf->variable);
    for (const auto& edge : n->next_edges())
      if (edge.function && seen.insert(edge.function.get()).second) todo.push_back(edge.function.get());
  }
  return look;
}

std::uint64_t autograd_fingerprint(const at::Tensor& loss, std::uint64_t first_sequence, const LeafSet& lasting,
                                   std::vector<Node*>* nodes) {
  const auto root = loss.grad_fn();
  if (!root) return 0;
  std::unordered_map<Node*, std::uint64_t> number{{root.get(), 0}};
  std::vector<Node*> order{root.get()};
  std::uint64_t hash = 0;
  auto add = [&](std::uint64_t x) { hash = c10::hash_combine(hash, x); };
  for (std::size_t i = 0; i < order.size(); i++) {
    auto& n = *order[i];
    if (n.sequence_nr() < first_sequence) {  // somebody else's graph: where this one ends
      add(2);
      continue;
    }
    if (nodes) nodes->push_back(&n);
    add(typeid(n).hash_code());
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&n)) {
      const auto* tensor = leaf->variable.unsafeGetTensorImpl();
      add(lasting.count(tensor) ? std::uint64_t(reinterpret_cast<std::uintptr_t>(tensor)) : 1);
    } else {
      add(n.sequence_nr() - first_sequence);
    }
    add(has_hooks(n));
    for (const auto& edge : n.next_edges()) {
      if (!edge.function) {
        add(~std::uint64_t(0));
        continue;
      }
      const auto [found, is_new] = number.emplace(edge.function.get(), order.size());
      if (is_new) order.push_back(edge.function.get());
      add(found->second * 64 + edge.input_nr);
    }
  }
  return hash;
}

void release_saved(const std::vector<Node*>& nodes) {
  for (auto* n : nodes) n->release_variables();
}

AutogradLook look_at_function(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& inputs, std::uint64_t first_sequence) {
  FunctionWalk walk(inputs, first_sequence);
  for (const auto& t : results) walk.from(t);
  return std::move(walk).run();
}

bool has_hooks(const at::Tensor& leaf) {
  auto* meta = torch::autograd::impl::get_autograd_meta(leaf);
  if (!meta) return false;
  if (!torch::autograd::impl::hooks(leaf).empty() || torch::autograd::impl::post_acc_grad_hooks(leaf)) return true;
  // Another thread that uses the leaf may be making its accumulator: LibTorch does so under this lock.
  const std::unique_lock lock(meta->mutex_);
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(leaf);
  return accumulator && has_hooks(*accumulator);
}

struct HooksAside::Taken {
  decltype(torch::autograd::Edge::function) node;
  std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>> hooks;
  std::unordered_map<std::size_t, std::unique_ptr<torch::autograd::FunctionPreHook>> retains;
};

HooksAside::HooksAside(const std::vector<at::Tensor>& tensors) {
  for (const auto& t : tensors) {
    auto node = torch::autograd::impl::gradient_edge(t).function;
    if (!node || (node->tensor_pre_hooks().empty() && node->retains_grad_hooks().empty())) continue;
    Taken taken;
    taken.hooks.swap(node->tensor_pre_hooks());
    taken.retains.swap(node->retains_grad_hooks());
    taken.node = std::move(node);
    taken_.push_back(std::move(taken));
  }
}

HooksAside::~HooksAside() {
  for (auto& taken : taken_) {
    taken.hooks.swap(taken.node->tensor_pre_hooks());
    taken.retains.swap(taken.node->retains_grad_hooks());
  }
}

}  // namespace tandem
