#include "trainers/module_tensors.h"

#include "trainers/binding.h"

#include <torch/nn/module.h>

namespace tandem {
namespace {

const void* identity(const at::Tensor& t) { return t.unsafeGetTensorImpl(); }

/// Calls f with the identity of each module and tensor of the tree, until it returns false. A submodule may have been replaced since.
template <class F>
bool visit(const torch::nn::Module& m, F&& f) {
  if (!f(static_cast<const void*>(&m))) return false;
  for (const auto& p : m.parameters(false))
    if (!f(identity(p))) return false;
  for (const auto& b : m.buffers(false))
    if (!f(identity(b))) return false;
  for (const auto& child : m.children())
    if (!visit(*child, f)) return false;
  return true;
}

}  // namespace

ModuleTensors::ModuleTensors(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) { rebuild(); }

bool ModuleTensors::unchanged() const {
  if (!module_) return true;
  std::size_t at = 0;
  return visit(*module_, [&](const void* id) { return at < seen_.size() && seen_[at++] == id; }) && at == seen_.size();
}

void ModuleTensors::refresh() {
  if (!unchanged()) rebuild();
}

void ModuleTensors::rebuild() {
  leaves_.clear();
  buffers_.clear();
  seen_.clear();
  if (module_) {
    for (const auto& p : module_->named_parameters()) leaves_.push_back({p.key(), p.value()});
    for (const auto& b : module_->named_buffers()) buffers_.push_back({b.key(), b.value()});
    submodules_ = module_->modules(/*include_self=*/false);
    visit(*module_, [&](const void* id) {
      seen_.push_back(id);
      return true;
    });
  }
  leaves_.insert(leaves_.end(), extra_.begin(), extra_.end());
}

bool ModuleTensors::add_leaf(const at::Tensor& leaf) {
  for (const auto& l : leaves_)
    if (l.tensor.is_same(leaf)) return false;
  extra_.push_back({"leaf " + std::to_string(extra_.size()), leaf});
  leaves_.push_back(extra_.back());
  return true;
}

std::vector<char> ModuleTensors::training() const {
  if (!module_) return {};
  std::vector<char> out{module_->is_training()};
  for (const auto& m : submodules_) out.push_back(m->is_training());
  return out;
}

std::vector<KnownTensor> ModuleTensors::known(const std::vector<at::Tensor>& inputs) const {
  std::vector<KnownTensor> out;
  for_each(inputs, [&](Role role, std::size_t i, const std::string& name, const at::Tensor& t) {
    out.push_back({role, std::int32_t(i), role == Role::input ? std::to_string(i) : name, t});
  });
  return out;
}

std::vector<std::uint32_t> ModuleTensors::versions(const std::vector<at::Tensor>& inputs) const {
  std::vector<std::uint32_t> out;
  for_each(inputs, [&](Role, std::size_t, const std::string&, const at::Tensor& t) { out.push_back(version_of(t)); });
  return out;
}

at::Tensor ModuleTensors::resolve(Role role, std::int32_t index, const std::vector<at::Tensor>& inputs) const {
  const auto i = std::size_t(index);
  switch (role) {
    case Role::input: return i < inputs.size() ? inputs[i] : at::Tensor();
    case Role::parameter: return i < leaves_.size() ? leaves_[i].tensor : at::Tensor();
    case Role::buffer: return i < buffers_.size() ? buffers_[i].tensor : at::Tensor();
    default: return {};
  }
}

}  // namespace tandem
