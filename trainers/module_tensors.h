// Parameters, buffers and train flags of a module, or of a function that has none, as lists whose positions give names in a Graph.
#pragma once

#include "autograd/capture.h"
#include "runtime/guards.h"

#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tandem {

class ModuleTensors {
 public:
  /// `module`: may be empty.
  explicit ModuleTensors(std::shared_ptr<torch::nn::Module> module);

  /// Notices parameters, buffers and submodules that were replaced or added since the last call.
  void refresh();
  /// A leaf that the function uses and the module does not list. Returns whether it is new.
  bool add_leaf(const at::Tensor& leaf);

  const std::vector<NamedTensor>& leaves() const { return leaves_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }
  std::vector<char> training() const;

  /// The tensors that exist before a call, for the recorder.
  std::vector<KnownTensor> known(const std::vector<at::Tensor>& inputs) const;
  /// Their version counters, in the same order.
  std::vector<std::uint32_t> versions(const std::vector<at::Tensor>& inputs) const;
  /// f(role, index, name, tensor) in that order. The first to name a storage decides: what keeps its place comes before inputs, which move.
  template <class F>
  void for_each(const std::vector<at::Tensor>& inputs, F&& f) const {
    auto visit = [&](Role role, std::size_t i, const std::string& name, const at::Tensor& t) {
      if (t.defined()) f(role, i, name, t);
    };
    for (std::size_t i = 0; i < leaves_.size(); i++) visit(Role::parameter, i, leaves_[i].name, leaves_[i].tensor);
    for (std::size_t i = 0; i < buffers_.size(); i++) visit(Role::buffer, i, buffers_[i].name, buffers_[i].tensor);
    for (std::size_t i = 0; i < inputs.size(); i++) visit(Role::input, i, std::string(), inputs[i]);
  }
  at::Tensor resolve(Role role, std::int32_t index, const std::vector<at::Tensor>& inputs) const;

 private:
  bool unchanged() const;
  void rebuild();

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<std::shared_ptr<torch::nn::Module>> submodules_;
  std::vector<NamedTensor> leaves_, buffers_, extra_;
  std::vector<const void*> seen_;  // identities of each module and its tensors, in order
};

}  // namespace tandem
