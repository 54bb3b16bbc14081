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
