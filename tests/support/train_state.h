// Everything that a training step leaves behind in the caller's objects, as one list that can be copied and compared.
#pragma once

#include "tests/support/state_equal.h"

#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tandem::test {

struct TrainState {
  std::vector<std::pair<std::string, at::Tensor>> tensors;     // handles, unless copied by clone()
  std::vector<std::pair<std::string, std::int64_t>> counters;  // the optimizer's step counts

  TrainState clone() const {
    TrainState copy = *this;
    for (auto& [name, tensor] : copy.tensors) {
      if (tensor.defined()) tensor = tensor.detach().clone();
    }
    return copy;
  }
};

inline void add_optimizer_entry(TrainState& out, const std::string& at, const torch::optim::OptimizerParamState& entry) {
  namespace optim = torch::optim;
  const auto add = [&](const char* name, const at::Tensor& tensor) { out.tensors.emplace_back(at + name, tensor); };
  const auto count = [&](std::int64_t step) { out.counters.emplace_back(at + "step", step); };
  const auto add_moments = [&](const auto& s) {
    count(s.step());
    add("exp_avg", s.exp_avg());
    add("exp_avg_sq", s.exp_avg_sq());
    add("max_exp_avg_sq", s.max_exp_avg_sq());
  };
  if (const auto* adam = dynamic_cast<const optim::AdamParamState*>(&entry)) return add_moments(*adam);
  if (const auto* adamw = dynamic_cast<const optim::AdamWParamState*>(&entry)) return add_moments(*adamw);
  if (const auto* sgd = dynamic_cast<const optim::SGDParamState*>(&entry)) return add("momentum_buffer", sgd->momentum_buffer());
  if (const auto* rmsprop = dynamic_cast<const optim::RMSpropParamState*>(&entry)) {
    count(rmsprop->step());
    add("square_avg", rmsprop->square_avg());
    add("momentum_buffer", rmsprop->momentum_buffer());
    return add("grad_avg", rmsprop->grad_avg());
  }
  if (const auto* adagrad = dynamic_cast<const optim::AdagradParamState*>(&entry)) {
    count(adagrad->step());
    return add("sum", adagrad->sum());
  }
  throw std::runtime_error("train_state: expected the state of SGD, Adam, AdamW, RMSprop or Adagrad, found another one at " + at);
}

/// Parameters and buffers, by name and in order.
inline TrainState module_state(const torch::nn::Module& module) {
  TrainState out;
  for (const auto& item : module.named_parameters()) out.tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) out.tensors.emplace_back(item.key(), item.value());
  return out;
}

/// The same and the optimizer's state; a parameter without state adds nothing.
inline TrainState train_state(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer) {
  auto out = module_state(module);
  std::size_t position = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& param : group.params()) {
      const auto entry = optimizer.state().find(param.unsafeGetTensorImpl());
      const std::string at = fmt::format("optimizer[{}].", position++);
      if (entry != optimizer.state().end()) add_optimizer_entry(out, at, *entry->second);
    }
  }
  return out;
}

/// The gradients of all parameters, undefined ones too.
inline TrainState gradients(const torch::nn::Module& module) {
  TrainState out;
  for (const auto& item : module.named_parameters()) out.tensors.emplace_back(item.key() + ".grad", item.value().grad());
  return out;
}

/// With generated kernels each step is judged from a common start, since rounding grows from step to step: puts the values of the one into the memory
/// of the other, which moves no version counter.
inline void follow(const TrainState& mine, const TrainState& other) {
  if (!with_kernels()) return;
  for (std::size_t i = 0; i < std::min(mine.tensors.size(), other.tensors.size()); i++) {
    const auto &to = mine.tensors[i].second, &from = other.tensors[i].second;
    if (!to.defined() || !from.defined() || to.layout() != at::kStrided || describe(to) != describe(from) ||
        !to.is_non_overlapping_and_dense())
      continue;
    std::memcpy(to.unsafeGetTensorImpl()->mutable_data(), from.const_data_ptr(), to.nbytes());
  }
}

/// Empty when both have the same entries with the same bits; else one sentence about the first that differs.
inline std::string difference(const TrainState& found, const TrainState& expected) {
  if (found.tensors.size() != expected.tensors.size()) {
    return fmt::format("expected {} tensors, found {}", expected.tensors.size(), found.tensors.size());
  }
  for (std::size_t i = 0; i < expected.tensors.size(); i++) {
    const auto& [name, tensor] = expected.tensors[i];
    if (found.tensors[i].first != name) return fmt::format("expected {}, found {}", name, found.tensors[i].first);
    const std::string text = difference(found.tensors[i].second, tensor);
    if (!text.empty()) return name + ": " + text;
  }
  if (found.counters.size() != expected.counters.size()) {
    return fmt::format("expected {} counters, found {}", expected.counters.size(), found.counters.size());
  }
  for (std::size_t i = 0; i < expected.counters.size(); i++) {
    const auto& [name, count] = expected.counters[i];
    const auto& [found_name, found_count] = found.counters[i];
    if (found_name != name || found_count != count)
      return fmt::format("expected {} = {}, found {} = {}", name, count, found_name, found_count);
  }
  return "";
}

}  // namespace tandem::test
