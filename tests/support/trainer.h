// A user's program in small: a module, an optimizer and a loss; and how far its numbers are from those expected.
#pragma once

#include "tests/support/state_equal.h"

#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tandem::test {

/// What a user's program has: state, an optimizer over it, and the loss of a batch.
template <class Loss>
struct Trainer {
  std::shared_ptr<torch::nn::Module> module;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  Loss loss;
};
template <class Module, class Loss>
Trainer(std::shared_ptr<Module>, std::unique_ptr<torch::optim::Optimizer>, Loss) -> Trainer<Loss>;

inline std::shared_ptr<torch::nn::Module> bag() { return std::make_shared<torch::nn::Module>("bag"); }

inline std::unique_ptr<torch::optim::Optimizer> sgd(std::vector<at::Tensor> parameters, double lr, double momentum = 0) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(lr).momentum(momentum));
}
inline std::unique_ptr<torch::optim::Optimizer> adam(std::vector<at::Tensor> parameters, double lr) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(lr));
}

template <class GroupOptions>
GroupOptions& group(torch::optim::Optimizer& optimizer, std::size_t index = 0) {
  return static_cast<GroupOptions&>(optimizer.param_groups()[index].options());
}

/// Empty when `t` has these elements in order, each within `tolerance`; NaN equals NaN, an infinity itself.
inline std::string far(const at::Tensor& t, const std::vector<double>& expected, double tolerance = 0) {
  if (!t.defined()) return "expected a tensor, found an undefined one";
  const at::Tensor flat = t.detach().to(at::kDouble).contiguous().view(-1);
  if (flat.numel() != std::int64_t(expected.size())) return fmt::format("expected {} elements, found {}", expected.size(), flat.numel());
  for (std::size_t i = 0; i < expected.size(); i++) {
    const double found = flat.const_data_ptr<double>()[i];
    const bool same = std::isnan(expected[i]) ? std::isnan(found) : found == expected[i] || std::abs(found - expected[i]) <= tolerance;
    if (!same) return fmt::format("element {}: expected {:.9g}, found {:.9g}", i, expected[i], found);
  }
  return "";
}

/// Sets the state in place to what it is before the first step, as far as that exists: moments and counters are 0.
inline void forget(torch::optim::Optimizer& optimizer) {
  namespace optim = torch::optim;
  const auto zero = [](const at::Tensor& t) {
    if (t.defined()) t.zero_();
  };
  for (auto& [key, entry] : optimizer.state()) {
    const auto moments = [&](auto& s) {
      s.step(0);
      zero(s.exp_avg());
      zero(s.exp_avg_sq());
      zero(s.max_exp_avg_sq());
    };
    if (auto* a = dynamic_cast<optim::AdamParamState*>(entry.get())) moments(*a);
    if (auto* w = dynamic_cast<optim::AdamWParamState*>(entry.get())) moments(*w);
    if (auto* s = dynamic_cast<optim::SGDParamState*>(entry.get())) zero(s->momentum_buffer());
  }
}

}  // namespace tandem::test
