#include "tests/fuzz/eager_side.h"

#include "tests/support/state_equal.h"
#include "tests/support/train_state.h"

#include <ATen/TensorOperators.h>
#include <torch/nn/utils/clip_grad.h>

namespace tandem::fuzz {
namespace {

namespace optim = torch::optim;

at::Tensor copy_of(const at::Tensor& t) { return t.defined() ? t.detach().clone() : t; }
at::Tensor in_double(const at::Tensor& t) {
  return t.defined() && t.is_floating_point() ? t.detach().to(at::kDouble, false, true) : copy_of(t);
}

/// Each tensor of an entry, which is in no common list: through the functions of its class.
template <class F>
void for_each_tensor(optim::OptimizerParamState& entry, F&& f) {
  const auto moments = [&](auto& s) {
    s.exp_avg(f(s.exp_avg()));
    s.exp_avg_sq(f(s.exp_avg_sq()));
    s.max_exp_avg_sq(f(s.max_exp_avg_sq()));
  };
  if (auto* a = dynamic_cast<optim::AdamParamState*>(&entry)) moments(*a);
  if (auto* w = dynamic_cast<optim::AdamWParamState*>(&entry)) moments(*w);
  if (auto* s = dynamic_cast<optim::SGDParamState*>(&entry)) s->momentum_buffer(f(s->momentum_buffer()));
  if (auto* r = dynamic_cast<optim::RMSpropParamState*>(&entry)) {
    r->square_avg(f(r->square_avg()));
    r->momentum_buffer(f(r->momentum_buffer()));
    r->grad_avg(f(r->grad_avg()));
  }
  if (auto* g = dynamic_cast<optim::AdagradParamState*>(&entry)) g->sum(f(g->sum()));
}

std::shared_ptr<optim::OptimizerParamState> copy_of(const optim::OptimizerParamState& entry) {
  std::shared_ptr<optim::OptimizerParamState> copy = entry.clone();
  for_each_tensor(*copy, [](const at::Tensor& t) { return in_double(t); });
  return copy;
}

}  // namespace

Left Left::copy() const {
  Left c = *this;
  for (auto& [name, t] : c.tensors) t = copy_of(t);
  return c;
}

Left state_of(const Training& t) {
  Left left{test::gradients(*t.model).tensors, {}, ""};  // what goes wrong first comes first
  auto state = test::train_state(*t.model, *t.optimizer);
  for (auto& s : state.tensors) left.tensors.push_back(std::move(s));
  left.counters = std::move(state.counters);
  return left;
}

Left all_of(const Training& t, const Tensors& returned, const Tensors& inputs) {
  Left left;
  for (std::size_t i = 0; i < returned.size(); i++) left.tensors.emplace_back(i == 0 ? "loss" : fmt::format("output {}", i), returned[i]);
  for (std::size_t i = 0; i < inputs.size(); i++) left.tensors.emplace_back(fmt::format("input {}", i), inputs[i]);
  auto state = state_of(t);
  for (auto& item : state.tensors) left.tensors.push_back(std::move(item));
  left.counters = std::move(state.counters);
  return left;
}

Tensors EagerSide::step(const Tensors& inputs) {
  if (micro_ == 0) training_.optimizer->zero_grad(options_.zero_grad_to_none);
  auto returned = training_.model->forward(inputs);
  returned[0].backward();
  if (micro_ + 1 == options_.accumulate)
    update();
  else
    micro_++;
  for (auto& t : returned) t = t.defined() ? t.detach() : t;
  return returned;
}

void EagerSide::update() {
  const auto& parameters = training_.optimizer->param_groups()[0].params();
  if (options_.clip_grad_norm) torch::nn::utils::clip_grad_norm_(parameters, *options_.clip_grad_norm, options_.clip_norm_type);
  if (options_.clip_grad_value) torch::nn::utils::clip_grad_value_(parameters, *options_.clip_grad_value);
  training_.optimizer->step();
  micro_ = 0;
  if (options_.zero_grad_to_none && !options_.keep_grads) training_.optimizer->zero_grad(true);
}

Snapshot::Snapshot(const EagerSide& side, const Step& step, const Tensors& inputs)
    : generator_(test::generator_state()), micro_(side.micro()), training_(step.training) {
  const auto& t = const_cast<EagerSide&>(side).training();
  for (const auto& p : t.model->parameters()) {
    parameters_.push_back(in_double(p));
    dtypes_.push_back(p.scalar_type());
    gradients_.push_back(in_double(p.grad()));
    const auto entry = t.optimizer->state().find(p.unsafeGetTensorImpl());
    entries_.push_back(entry == t.optimizer->state().end() ? nullptr : copy_of(*entry->second));
  }
  for (const auto& b : t.model->buffers()) buffers_.push_back(in_double(b));
  for (const auto& in : inputs) inputs_.push_back(copy_of(in));
  for (const auto& g : t.optimizer->param_groups()) lr_.push_back(g.options().get_lr());
}

Left Snapshot::repeat(const Program& program, const Options& options, const Judge& judge) const {
  EagerSide side(make_training(program, judge), options);
  auto& t = side.training();
  const auto parameters = t.model->parameters();
  Tensors inputs;
  {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters.size(); i++) {
      auto& p = parameters[i];
      const auto type = p.scalar_type();
      p.copy_(t.model->disturbed(parameters_[i], dtypes_[i]));
      if (gradients_[i].defined()) p.mutable_grad() = gradients_[i].to(type, false, true);
      if (!entries_[i]) continue;
      auto entry = entries_[i]->clone();
      for_each_tensor(*entry, [&](const at::Tensor& x) { return x.defined() ? x.to(type, false, true) : x; });
      t.optimizer->state()[p.unsafeGetTensorImpl()] = std::move(entry);
    }
    const auto buffers = t.model->buffers();
    for (std::size_t i = 0; i < buffers.size(); i++) buffers[i].copy_(buffers_[i]);
    for (const auto& in : inputs_) {
      const auto disturbed = t.model->disturbed(in_double(in), in.scalar_type());
      inputs.push_back(disturbed.to(judge.in_double && in.is_floating_point() ? at::kDouble : in.scalar_type(), false, true));
    }
  }
  for (std::size_t i = 0; i < lr_.size(); i++) t.optimizer->param_groups()[i].options().set_lr(lr_[i]);
  t.model->train(training_);
  side.set_micro(micro_);
  test::set_generator_state(generator_);
  const auto returned = side.step(inputs);
  return all_of(t, returned, inputs);
}

}  // namespace tandem::fuzz
