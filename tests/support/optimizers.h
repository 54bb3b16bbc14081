// Small optimizers for the tests of their formulas.
#pragma once

#include "trainers/optimizers.h"

#include <torch/optim.h>
#include <torch/types.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tandem::test {

namespace optim = torch::optim;
using Tensors = std::vector<at::Tensor>;

inline at::Tensor parameter() { return torch::randn({3, 2}).requires_grad_(true); }

inline void give_gradient(const at::Tensor& p) { p.mutable_grad() = torch::randn(p.sizes()); }

inline std::vector<bool> gradient_flags(const optim::Optimizer& o) {
  std::vector<bool> flags;
  for (auto& g : o.param_groups())
    for (auto& p : g.params()) flags.push_back(p.grad().defined());
  return flags;
}

inline std::vector<Number> numbers_now(const OptimizerFormula& formula, const optim::Optimizer& o) {
  return formula.numbers(gradient_flags(o));
}

inline std::vector<double> values(const std::vector<Number>& numbers) {
  std::vector<double> out;
  for (auto& n : numbers) out.push_back(n.value);
  return out;
}

inline std::vector<std::string> names(const std::vector<Number>& numbers) {
  std::vector<std::string> out;
  for (auto& n : numbers) out.push_back(n.name);
  return out;
}

inline std::vector<std::uint64_t> bits(const std::vector<double>& values) {
  std::vector<std::uint64_t> out;
  for (double v : values) out.push_back(std::bit_cast<std::uint64_t>(v));
  return out;
}

inline double counter(const optim::OptimizerParamState& s) {
  if (auto* adam = dynamic_cast<const optim::AdamParamState*>(&s)) return static_cast<double>(adam->step());
  if (auto* adamw = dynamic_cast<const optim::AdamWParamState*>(&s)) return static_cast<double>(adamw->step());
  if (auto* rms = dynamic_cast<const optim::RMSpropParamState*>(&s)) return static_cast<double>(rms->step());
  if (auto* ada = dynamic_cast<const optim::AdagradParamState*>(&s)) return static_cast<double>(ada->step());
  return -1;
}

/// The host counter of each parameter; -1 where there is none.
inline std::vector<double> counters(optim::Optimizer& o) {
  std::vector<double> out;
  for (auto& g : o.param_groups())
    for (auto& p : g.params()) {
      auto at = o.state().find(p.unsafeGetTensorImpl());
      out.push_back(at == o.state().end() ? -1 : counter(*at->second));
    }
  return out;
}

/// One parameter with a gradient, unless told otherwise.
template <class Class, class Options>
struct Single {
  explicit Single(Options options) : optimizer(Tensors{p}, options) { give_gradient(p); }
  Options& options() { return static_cast<Options&>(optimizer.param_groups()[0].options()); }
  std::vector<Number> numbers() { return numbers_now(*formula, optimizer); }
  at::Tensor p = parameter();
  Class optimizer;
  std::unique_ptr<OptimizerFormula> formula = OptimizerFormula::recognise(optimizer);
};
using SingleSgd = Single<optim::SGD, optim::SGDOptions>;
using SingleAdam = Single<optim::Adam, optim::AdamOptions>;
using SingleRmsprop = Single<optim::RMSprop, optim::RMSpropOptions>;

}  // namespace tandem::test
