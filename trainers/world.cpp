#include "trainers/world.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <unordered_map>

namespace tandem {
namespace {

std::uint32_t version_of(const at::Tensor& t) {
  return !t.is_inference() && t.layout() == at::kStrided && t.has_storage() ? std::uint32_t(t._version()) : 0;
}

const void* identity(const at::Tensor& t) { return t.unsafeGetTensorImpl(); }

}  // namespace

World::World(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer* optimizer)
    : model_(std::move(model)), optimizer_(optimizer), formula_(optimizer ? OptimizerFormula::recognise(*optimizer) : nullptr) {
  rebuild();
}

bool World::unchanged() const {
  if (!optimizer_) return true;
  std::size_t at = 0;
  auto same = [&](const at::Tensor& t) { return at < seen_.size() && seen_[at++] == identity(t); };
  for (const auto& group : optimizer_->param_groups())
    for (const auto& p : group.params())
      if (!same(p)) return false;
  // The tree as it is now: a submodule may have been replaced, registered or taken out since.
  auto module_same = [&](auto& self, const torch::nn::Module& m) -> bool {
    if (at >= seen_.size() || seen_[at++] != &m) return false;
    for (const auto& p : m.parameters(false))
      if (!same(p)) return false;
    for (const auto& b : m.buffers(false))
      if (!same(b)) return false;
    for (const auto& child : m.children())
      if (!self(self, *child)) return false;
    return true;
  };
  if (!module_same(module_same, *model_)) return false;
  return at == seen_.size();
}

void World::refresh() {
  if (!unchanged()) rebuild();
}

void World::rebuild() {
  if (!optimizer_) return;
  leaves_.clear();
  buffers_.clear();
  param_leaf_.clear();
  seen_.clear();
  std::unordered_map<const void*, std::string> names;
  const auto parameters = model_->named_parameters();
  for (const auto& p : parameters) names.emplace(identity(p.value()), p.key());
  std::unordered_map<const void*, std::size_t> index;
  auto add = [&](const at::Tensor& t, std::string name) {
    const auto [it, fresh] = index.emplace(identity(t), leaves_.size());
    if (fresh) leaves_.push_back({std::move(name), t});
    return it->second;
  };
  for (const auto& group : optimizer_->param_groups())
    for (const auto& p : group.params()) {
      const auto known = names.find(identity(p));
      param_leaf_.push_back(add(p, known != names.end() ? known->second : "optimizer parameter " + std::to_string(param_leaf_.size())));
      seen_.push_back(identity(p));
    }
  optimizer_leaves_ = leaves_.size();
  for (const auto& p : parameters) add(p.value(), p.key());
  for (const auto& e : extra_) add(e.tensor, e.name);
  for (const auto& b : model_->named_buffers()) buffers_.push_back({b.key(), b.value()});
  leaf_set_.clear();
  for (const auto& l : leaves_) leaf_set_.insert(l.tensor.unsafeGetTensorImpl());

  submodules_ = model_->modules(/*include_self=*/false);
  auto see = [&](auto& self, const torch::nn::Module& m) -> void {
    seen_.push_back(&m);
    for (const auto& p : m.parameters(false)) seen_.push_back(identity(p));
    for (const auto& b : m.buffers(false)) seen_.push_back(identity(b));
    for (const auto& child : m.children()) self(self, *child);
  };
  see(see, *model_);
}

bool World::add_leaf(const at::Tensor& leaf) {
  for (const auto& l : leaves_)
    if (l.tensor.is_same(leaf)) return false;
  extra_.push_back({"leaf " + std::to_string(extra_.size()), leaf});
  leaves_.push_back(extra_.back());
  leaf_set_.insert(leaf.unsafeGetTensorImpl());
  return true;
}

std::vector<char> World::training() const {
  if (!model_) return {};
  std::vector<char> out{model_->is_training()};
  for (const auto& m : submodules_) out.push_back(m->is_training());
  return out;
}

std::vector<bool> World::has_grad(const std::vector<char>& per_leaf) const {
  std::vector<bool> out;
  for (auto leaf : param_leaf_) out.push_back(per_leaf[leaf]);
  return out;
}

World::Present World::present(const std::vector<at::Tensor>& inputs) const {
  return {&inputs, formula_ ? formula_->state() : std::vector<StateTensor>()};
}

at::Tensor World::resolve(Role role, std::int32_t index, const Present& present) const {
  const auto i = std::size_t(index);
  switch (role) {
    case Role::input: return i < present.inputs->size() ? (*present.inputs)[i] : at::Tensor();
    case Role::parameter: return i < leaves_.size() ? leaves_[i].tensor : at::Tensor();
    case Role::gradient: return i < leaves_.size() ? leaves_[i].tensor.grad() : at::Tensor();
    case Role::buffer: return i < buffers_.size() ? buffers_[i].tensor : at::Tensor();
    case Role::optimizer_state: return i < present.state.size() ? present.state[i].tensor : at::Tensor();
    default: return {};
  }
}

at::Tensor World::gradient(std::size_t leaf, bool drops_gradients) const {
  return drops_gradients && leaf < optimizer_leaves_ ? at::Tensor() : leaves_[leaf].tensor.grad();
}

std::vector<std::uint32_t> World::versions(const Present& present, bool drops_gradients) const {
  std::vector<std::uint32_t> out;
  auto add = [&](const at::Tensor& t) {
    if (t.defined()) out.push_back(version_of(t));
  };
  for (const auto& l : leaves_) add(l.tensor);
  for (const auto& b : buffers_) add(b.tensor);
  for (const auto& s : present.state) add(s.tensor);
  for (std::size_t i = 0; i < leaves_.size(); i++) add(gradient(i, drops_gradients));
  for (const auto& t : *present.inputs) add(t);
  return out;
}

std::vector<KnownTensor> World::known(const std::vector<at::Tensor>& inputs, bool drops_gradients) const {
  std::vector<KnownTensor> out;
  auto add = [&](Role role, std::size_t i, std::string name, const at::Tensor& t) {
    if (t.defined()) out.push_back({role, std::int32_t(i), std::move(name), t});
  };
  // The first to name a storage decides: what keeps its place comes before inputs, which move.
  for (std::size_t i = 0; i < leaves_.size(); i++) add(Role::parameter, i, leaves_[i].name, leaves_[i].tensor);
  for (std::size_t i = 0; i < buffers_.size(); i++) add(Role::buffer, i, buffers_[i].name, buffers_[i].tensor);
  if (formula_) {
    const auto state = formula_->state();
    for (std::size_t i = 0; i < state.size(); i++)
      add(Role::optimizer_state, i, leaves_[param_leaf_[state[i].param]].name + "." + state[i].name, state[i].tensor);
  }
  for (std::size_t i = 0; i < leaves_.size(); i++) add(Role::gradient, i, leaves_[i].name, gradient(i, drops_gradients));
  for (std::size_t i = 0; i < inputs.size(); i++) add(Role::input, i, std::to_string(i), inputs[i]);
  return out;
}

}  // namespace tandem
