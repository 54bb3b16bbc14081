#include "trainers/eager.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/max.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

/// As torch::nn::utils::clip_grad_norm_, op for op, but the total norm stays a tensor.
at::Tensor clip_norm(const std::vector<at::Tensor>& gradients, double max_norm, double type) {
  std::vector<at::Tensor> norms;
  for (const auto& g : gradients) norms.push_back(std::isinf(type) ? g.abs().max() : g.norm(type));
  at::Tensor total;
  if (norms.size() == 1)
    total = norms[0];
  else
    total = std::isinf(type) ? at::max(at::stack(norms)) : at::stack(norms).norm(type);
  const auto coefficient = at::clamp(max_norm / (total + 1e-6), std::nullopt, 1.0);
  for (const auto& g : gradients) g.mul_(coefficient);
  return total;
}

}  // namespace

void check_options(const Options& o) {
  auto fail = [](const char* option, const char* expected, auto found) {
    throw Error(fmt::format("Options::{}: expected {}, found {}", option, expected, found));
  };
  if (o.clip_grad_norm && !(*o.clip_grad_norm > 0)) fail("clip_grad_norm", "a positive number", *o.clip_grad_norm);
  if (!(o.clip_norm_type > 0)) fail("clip_norm_type", "a positive number or infinity", o.clip_norm_type);
  if (o.clip_grad_value && !(*o.clip_grad_value >= 0)) fail("clip_grad_value", "a number of at least 0", *o.clip_grad_value);
  if (o.accumulate < 1) fail("accumulate", "a number of at least 1", o.accumulate);
  if (o.shadow_every < 2 && o.shadow_every != 0) fail("shadow_every", "0 or a number of at least 2", o.shadow_every);
  if (o.max_paths < 1) fail("max_paths", "a number of at least 1", o.max_paths);
  if (o.max_plans < 1) fail("max_plans", "a number of at least 1", o.max_plans);
}

void check_body_options(const Options& o) {
  auto fail = [](const char* option) {
    throw Error(fmt::format("Options::{}: expected none where the body is the whole step and does it itself, found one", option));
  };
  if (o.clip_grad_norm) fail("clip_grad_norm");
  if (o.clip_grad_value) fail("clip_grad_value");
  if (o.accumulate != 1) fail("accumulate");
  if (o.keep_grads) fail("keep_grads");
  if (!o.zero_grad_to_none) fail("zero_grad_to_none");
  if (o.replay == Replay::trusted) fail("replay = trusted");
}

void EagerStepRunner::zero_grad() { world_.optimizer().zero_grad(options_.zero_grad_to_none); }

void EagerStepRunner::drop_gradients() {
  if (keeps_gradients()) return;
  for (std::size_t i = 0; i < world_.optimizer_leaves(); i++) world_.leaves()[i].tensor.mutable_grad().reset();
}

at::Tensor EagerStepRunner::clip() {
  if (!options_.clip_grad_norm && !options_.clip_grad_value) return {};
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < world_.optimizer_leaves(); i++)
    if (auto g = world_.leaves()[i].tensor.grad(); g.defined()) gradients.push_back(g.data());
  if (gradients.empty()) return {};
  at::Tensor total;
  if (options_.clip_grad_norm) total = clip_norm(gradients, *options_.clip_grad_norm, options_.clip_norm_type);
  if (options_.clip_grad_value)
    for (const auto& g : gradients) g.clamp_(-*options_.clip_grad_value, *options_.clip_grad_value);
  return total;
}

void EagerStepRunner::check_loss(const std::vector<at::Tensor>& returned, const AutogradLook& look) {
  if (returned.empty() || !returned[0].defined()) throw Error("loss function: expected a loss tensor, found none");
  const auto& loss = returned[0];
  if (loss.numel() != 1) throw Error(fmt::format("loss function: expected a loss of one element, found sizes {}", loss.sizes()));
  if (!loss.requires_grad())
    throw Error(
        "loss function: expected a loss that requires grad, found one that depends on no parameter that does (or grad mode is off)");
  const auto& leaves = world_.leaves();
  const auto end = leaves.begin() + std::ptrdiff_t(world_.optimizer_leaves());
  const bool trains = std::any_of(look.leaves.begin(), look.leaves.end(), [&](const at::Tensor& leaf) {
    return std::any_of(leaves.begin(), end, [&](const NamedTensor& l) { return l.tensor.is_same(leaf); });
  });
  if (!trains)
    throw Error(fmt::format("optimizer: expected at least one parameter that the loss depends on, found none among its {}",
                            world_.optimizer_leaves()));
}

EagerResult EagerStepRunner::run(const std::vector<at::Tensor>& inputs, const StepKind& kind, StepObserver* observer) {
  EagerResult result;
  std::optional<ListenScope> listen;
  if (observer) listen.emplace(observer->listener());
  auto side = [&](Side s) {
    if (observer) observer->set_side(s);
  };
  if (kind.first_micro && !whole_) zero_grad();
  side(Side::forward);
  const auto first_sequence = autograd_sequence();
  auto returned = loss_[inputs.size()](inputs);
  if (observer) {
    SilenceScope quiet;
    result.stopped = observer->closure_returned(returned, first_sequence);
    if (result.stopped) return result;
  }
  if (!whole_) {
    if (!returned.empty() && returned[0].defined()) result.look = look_at_autograd(returned[0], first_sequence);
    check_loss(returned, result.look);
    side(Side::backward);
    returned[0].backward();
    if (observer) {
      SilenceScope quiet;
      observer->before_update();
    }
    side(Side::update);
    if (kind.updates) {
      result.grad_norm = clip();
      if (observer) observer->begin_optimizer();
      if (kind.update_recorded) world_.optimizer().step();
    }
  }
  SilenceScope quiet;
  for (auto& t : returned) t = t.defined() ? t.detach() : t;
  if (returned.empty()) return result;
  result.loss = std::move(returned[0]);
  result.outputs.assign(std::make_move_iterator(returned.begin() + 1), std::make_move_iterator(returned.end()));
  return result;
}

}  // namespace tandem
