#include "autograd/barrier.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <type_traits>
#include <unordered_set>
#include <utility>

namespace tandem {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using NodePtr = decltype(Edge::function);

/// Never runs: gradients are captured in front of it. It stands as high in the graph as the node whose place it takes.
struct Barrier final : Node {
  explicit Barrier(const Node& original) { topological_nr_ = original.topological_nr(); }
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
  std::string name() const override { return "TandemBarrier"; }
};

/// LibTorch 2.11 shares nodes by shared_ptr.
template <class Pointer>
Pointer make_barrier(const Node& original) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>)
    return std::make_shared<Barrier>(original);
  else
    return c10::make_intrusive<Barrier>(original);
}

}  // namespace

struct Barriers::One {
  at::Tensor tensor;
  NodePtr barrier;
  Edge original;
};

Barriers::Barriers(const std::vector<at::Tensor>& inputs) {
  for (const auto& t : inputs) {
    if (!t.defined() || !t.requires_grad() || t.is_leaf()) continue;
    auto original = torch::autograd::impl::gradient_edge(t);
    if (dynamic_cast<Barrier*>(original.function.get())) continue;  // the same tensor twice
    auto barrier = make_barrier<NodePtr>(*original.function);
    barrier->add_input_metadata(t);
    torch::autograd::impl::set_gradient_edge(t, {barrier, 0});
    all_.push_back({t, std::move(barrier), std::move(original)});
  }
}

Barriers::~Barriers() { lift({}); }

bool Barriers::hooked() const {
  for (const auto& one : all_)
    if (!one.barrier->tensor_pre_hooks().empty() || !one.barrier->pre_hooks().empty() || !one.barrier->retains_grad_hooks().empty())
      return true;
  return false;
}

void Barriers::lift(const std::vector<at::Tensor>& roots) {
  if (all_.empty()) return;
  std::unordered_set<Node*> seen;
  std::vector<Node*> todo;
  auto enter = [&](Node* n) {
    if (n && seen.insert(n).second) todo.push_back(n);
  };
  auto real = [&](Edge& edge) {
    for (const auto& one : all_)
      if (edge.function == one.barrier) edge = one.original;
  };
  for (const auto& one : all_) {
    seen.insert(one.original.function.get());  // what lies behind was there before
    auto edge = torch::autograd::impl::gradient_edge(one.tensor);
    if (edge.function == one.barrier)
      torch::autograd::impl::set_gradient_edge(one.tensor, one.original);
    else
      enter(edge.function.get());  // the function has written the input in place
  }
  for (const auto& t : roots)
    if (t.defined() && t.requires_grad()) enter(torch::autograd::impl::gradient_edge(t).function.get());
  while (!todo.empty()) {
    auto* n = todo.back();
    todo.pop_back();
    for (auto& edge : n->next_edges()) {
      real(edge);
      enter(edge.function.get());
    }
  }
  all_.clear();
}

}  // namespace tandem
