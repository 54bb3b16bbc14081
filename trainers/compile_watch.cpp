#include "trainers/compile_watch.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <type_traits>

namespace tandem {

void Observed::tangent(int task, std::size_t outputs, std::size_t output, const at::Tensor& tangent) {
  const std::lock_guard lock(mutex_);
  auto at = std::find_if(seen_.begin(), seen_.end(), [&](const auto& s) { return s.first == task && s.second.size() == outputs; });
  if (at == seen_.end()) {
    if (seen_.size() >= most) return;
    at = seen_.insert(seen_.end(), {task, TangentKey(outputs)});
  }
  at->second[output] = tangent.strides().vec();
}

void Observed::backward(TangentKey key) {
  const std::lock_guard lock(mutex_);
  if (seen_.size() < most) seen_.emplace_back(-1, std::move(key));
}

void Observed::say(std::string sentence) {
  const std::lock_guard lock(mutex_);
  if (sentences_.size() < most) sentences_.push_back(std::move(sentence));
}

std::vector<TangentKey> Observed::take_keys() {
  const std::lock_guard lock(mutex_);
  std::vector<TangentKey> out;
  for (auto& [task, key] : seen_)
    if (std::find(out.begin(), out.end(), key) == out.end()) out.push_back(std::move(key));
  seen_.clear();
  return out;
}

std::vector<std::string> Observed::take_sentences() {
  const std::lock_guard lock(mutex_);
  return std::exchange(sentences_, {});
}

namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// A hook on the result would also see what reaches it through the function's other results. One node per result: a backward from one of them does
/// not touch what belongs to the others.
struct Watcher final : Node {
  Watcher(std::shared_ptr<Observed> o, std::size_t results, std::size_t result)
      : observed(std::move(o)), count(results), position(result) {}
  variable_list apply(variable_list&& tangents) override {
    if (tangents[0].defined() && tangents[0].layout() == at::kStrided)
      observed->tangent(torch::autograd::get_current_graph_task_id(), count, position, tangents[0]);
    return std::move(tangents);
  }
  std::string name() const override { return "TandemWatch"; }

  std::shared_ptr<Observed> observed;
  std::size_t count, position;
};

template <class Pointer, class... Args>
Pointer make_watcher(Args&&... args) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>)
    return std::make_shared<Watcher>(std::forward<Args>(args)...);
  else
    return c10::make_intrusive<Watcher>(std::forward<Args>(args)...);
}

}  // namespace

void watch(std::vector<at::Tensor>& results, const std::vector<char>& differentiable, const std::shared_ptr<Observed>& observed) {
  using Pointer = decltype(torch::autograd::Edge::function);
  const auto count = std::size_t(std::count(differentiable.begin(), differentiable.end(), true));
  std::size_t position = 0;
  for (std::size_t i = 0; i < results.size(); i++) {
    if (!differentiable[i]) continue;
    auto node = make_watcher<Pointer>(observed, count, position++);
    node->add_next_edge(torch::autograd::impl::gradient_edge(results[i]));
    auto* impl = results[i].unsafeGetTensorImpl();
    at::Tensor handle(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
    torch::autograd::create_gradient_edge(handle, node);
    results[i] = std::move(handle);
  }
}

}  // namespace tandem
