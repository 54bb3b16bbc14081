// Layers of torch::nn that programs can have: how they are made, called, and which arguments suit an input.
#pragma once

#include "tests/fuzz/random.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace tandem::fuzz {

using Tensors = std::vector<at::Tensor>;

struct MadeLayer {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensors(const Tensors&)> call;
};

struct LayerKind {
  std::string name;
  int inputs = 1, results = 1;
  /// Arguments for this first input; empty: it suits none.
  std::function<std::vector<std::int64_t>(const at::Tensor&, Random&)> arguments;
  std::function<MadeLayer(const std::vector<std::int64_t>&)> make;
};

const std::vector<LayerKind>& layer_kinds();
/// Throws std::invalid_argument when there is none of that name.
const LayerKind& layer_kind(const std::string& name);

}  // namespace tandem::fuzz
