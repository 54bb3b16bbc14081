// Wrong use gets one clear sentence, or what eager throws; either way the objects are as eager leaves them and the step works again.
#include "tests/support/lockstep.h"

#include <limits>

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("no tandem::Error: ") + e.what();
  }
  return "nothing thrown";
}

/// What a call throws, and that it has changed nothing.
template <class F>
std::string refused(Lockstep& l, F&& f) {
  const auto state = state_of(l.plan_side()).clone(), grads = gradients(*l.plan_side().module).clone();
  const auto generator = generator_state();
  const auto text = error_of(f);
  EXPECT_EQ(difference(state_of(l.plan_side()), state), "");
  EXPECT_EQ(difference(gradients(*l.plan_side().module), grads), "");
  EXPECT_EQ(difference(generator_state(), generator), "");
  return text;
}

TEST(WrongUse, AWrongNumberOfInputs) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  EXPECT_EQ(refused(l, [&] { l.tandem()(batch(1)[0]); }), "step: expected 2 input tensors as the loss function takes, found 1");
  EXPECT_EQ(refused(l, [&] { l.tandem().run(Inputs(9, batch(1)[0])); }),
            "step: expected 2 input tensors as the loss function takes, found 9");
  EXPECT_EQ(refused(l, [&] { l.tandem()(); }), "step: expected 2 input tensors as the loss function takes, found 0");
  EXPECT_TRUE(l.step(batch(2)).compiled);
}

TEST(WrongUse, AnUndefinedInput) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  EXPECT_EQ(refused(l, [&] { l.tandem()(batch(1)[0], at::Tensor()); }),
            "step: expected defined tensors, found an undefined one as input 1");
  EXPECT_TRUE(l.step(batch(2)).compiled);
}

template <class F>
std::string error_of_loss(F loss) {
  auto toy = mlp_with(loss)();
  TrainStep step(toy.module, *toy.optimizer, toy.loss);
  std::string text;
  for (int i = 0; i < 4; i++) {
    const auto weight = toy.module->parameters()[0].detach().clone();
    text = error_of([&] { step.run(batch(1)); });
    EXPECT_EQ(difference(toy.module->parameters()[0], weight), "") << "the step must not update";
  }
  return text;
}

TEST(WrongUse, ALossOfSeveralElements) {
  EXPECT_EQ(error_of_loss([](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x); }),
            "loss function: expected a loss of one element, found sizes [5, 4]");
}

TEST(WrongUse, ALossThatNeedsNoGradient) {
  EXPECT_EQ(error_of_loss([](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x).detach().mean(); }),
            "loss function: expected a loss that requires grad, found one that depends on no parameter that does (or grad mode is off)");
}

TEST(WrongUse, NoLossAtAll) {
  EXPECT_EQ(error_of_loss([](MlpNet&, const at::Tensor&, const at::Tensor&) { return at::Tensor(); }),
            "loss function: expected a loss tensor, found none");
  EXPECT_EQ(error_of_loss([](MlpNet&, const at::Tensor&, const at::Tensor&) { return Inputs(); }),
            "loss function: expected a loss tensor, found none");
}

TEST(WrongUse, AnOptimizerOfAnotherModel) {
  auto toy = mlp();
  auto other = mlp();
  TrainStep step(toy.module, *other.optimizer, toy.loss);
  EXPECT_EQ(error_of([&] { step.run(batch(1)); }),
            "optimizer: expected at least one parameter that the loss depends on, found none among its 6");
}

TEST(WrongUse, AStepInsideAStep) {
  auto toy = mlp();
  TrainStep* outer = nullptr;
  bool nested = true;
  auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
    if (nested) (*outer)(x, y);
    return toy.loss(x, y);
  };
  TrainStep step(toy.module, *toy.optimizer, loss);
  outer = &step;
  EXPECT_EQ(error_of([&] { step.run(batch(1)); }), "step: expected one step at a time on a thread, found a step called inside another");
  nested = false;
  EXPECT_NO_THROW(step.run(batch(1)));
}

TEST(WrongUse, FlushInsideAStep) {
  auto toy = mlp();
  TrainStep* outer = nullptr;
  auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
    outer->flush();
    return toy.loss(x, y);
  };
  TrainStep step(toy.module, *toy.optimizer, loss, {.accumulate = 2});
  outer = &step;
  EXPECT_NO_THROW(step.run(batch(1))) << "nothing to flush in the first micro-batch";
  EXPECT_EQ(error_of([&] { step.run(batch(1)); }), "step: expected one step at a time on a thread, found a step called inside another");
}

TEST(WrongUse, WhatTheClosureThrowsComesThroughAtEachStage) {
  for (int when = 1; when <= 3; when++) {  // in the first step, while recording, before activation
    auto calls = std::make_shared<int>(0);
    Lockstep l(mlp_with([calls, when](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
      const auto scores = net.forward(x);
      if ((*calls)++ / 2 == when - 1) throw std::runtime_error("the user's own error");
      return torch::cross_entropy_loss(scores, y);
    }));
    for (int i = 1; i <= 7; i++) {
      const auto o = l.step(batch(std::uint64_t(i)));
      EXPECT_EQ(o.error, i == when ? "the user's own error" : "") << "step " << i;
      if (i == 7) EXPECT_TRUE(o.compiled) << l.report().to_string();
      if (o.compiled) *calls += 1;  // a plan does not call it; keep counting in pairs
    }
  }
}

TEST(WrongUse, AnInputOfAWrongDtypeThrowsAsEager) {
  Lockstep l(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
    return torch::cross_entropy_loss(net.last(torch::relu(net.first(x))), y);
  }));
  l.activate(batch);
  auto bad = batch(100);
  bad[0] = bad[0].to(at::kDouble);
  EXPECT_NE(l.step(bad).error, "");
  EXPECT_TRUE(l.step(batch(101)).compiled) << l.report().to_string();
}

TEST(WrongUse, AnInputOfAWrongRankThrowsAsEager) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  auto bad = batch(100);
  bad[0] = bad[0].flatten();
  EXPECT_NE(l.step(bad).error, "");
  bad = batch(100);
  bad[0] = bad[0].unsqueeze(0).unsqueeze(0);
  EXPECT_NE(l.step(bad).error, "");
  EXPECT_TRUE(l.step(batch(101)).compiled) << l.report().to_string();
}

TEST(WrongUse, AnEmptyBatchIsWhatItIsInEager) {
  // Batch norm throws there; a loss without it gives NaN.
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  l.step(mlp_batch(100, 0));
  EXPECT_TRUE(l.step(batch(101)).compiled) << l.report().to_string();
  Lockstep plain(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
    return torch::cross_entropy_loss(net.last(net.first(x)), y).nan_to_num();
  }));
  plain.activate(batch);
  for (int i = 0; i < 5; i++) EXPECT_EQ(plain.step(mlp_batch(100, 0)).error, "");
}

std::string error_of_options(const Options& options) {
  auto toy = mlp();
  return error_of([&] { TrainStep step(toy.module, *toy.optimizer, toy.loss, options); });
}

TEST(WrongUse, OptionsThatMakeNoSense) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_of_options({.clip_grad_norm = nan}), "Options::clip_grad_norm: expected a positive number, found nan");
  EXPECT_EQ(error_of_options({.clip_grad_norm = -1.0}), "Options::clip_grad_norm: expected a positive number, found -1");
  EXPECT_EQ(error_of_options({.clip_grad_norm = 0.0}), "Options::clip_grad_norm: expected a positive number, found 0");
  EXPECT_EQ(error_of_options({.clip_norm_type = nan}), "Options::clip_norm_type: expected a positive number or infinity, found nan");
  EXPECT_EQ(error_of_options({.clip_norm_type = 0}), "Options::clip_norm_type: expected a positive number or infinity, found 0");
  EXPECT_EQ(error_of_options({.clip_grad_value = nan}), "Options::clip_grad_value: expected a number of at least 0, found nan");
  EXPECT_EQ(error_of_options({.clip_grad_value = -0.5}), "Options::clip_grad_value: expected a number of at least 0, found -0.5");
  EXPECT_EQ(error_of_options({.accumulate = 0}), "Options::accumulate: expected a number of at least 1, found 0");
  EXPECT_EQ(error_of_options({.shadow_every = 1}), "Options::shadow_every: expected 0 or a number of at least 2, found 1");
  EXPECT_EQ(error_of_options({.max_plans = 0}), "Options::max_plans: expected a number of at least 1, found 0");
}

TEST(WrongUse, LbfgsWithAccumulation) {
  auto toy = mlp([](auto p) { return std::make_unique<torch::optim::LBFGS>(std::move(p)); });
  EXPECT_EQ(error_of([&] { TrainStep step(toy.module, *toy.optimizer, toy.loss, {.accumulate = 2}); }),
            "Options::accumulate: expected 1 with LBFGS, which evaluates the loss several times per step");
}

TEST(WrongUse, AnEmptyModuleHolder) {
  auto toy = mlp();
  std::shared_ptr<torch::nn::Module> none;
  EXPECT_EQ(error_of([&] { TrainStep step(none, *toy.optimizer, toy.loss); }), "TrainStep: expected a module, found an empty holder");
  torch::nn::Sequential holder{nullptr};
  EXPECT_EQ(error_of([&] { TrainStep step(holder, *toy.optimizer, toy.loss); }), "TrainStep: expected a module, found an empty holder");
}

TEST(WrongUse, FlushWithoutAnything) {
  Lockstep l([] { return mlp(); });
  EXPECT_FALSE(l.tandem().flush());
  l.activate(batch);
  EXPECT_FALSE(l.tandem().flush());
  l.compare_state();
}

TEST(WrongUse, AModelWithoutParametersOfItsOwn) {
  auto w = normal({6, 4}, 1).requires_grad_();
  auto module = bag();
  const auto optimizer = momentum_sgd({w});
  TrainStep step(module, *optimizer, [&](const at::Tensor& x) { return x.matmul(w).square().mean(); });
  StepResult r;
  for (int i = 0; i < 6; i++) r = step(normal({5, 6}, 2));
  EXPECT_TRUE(r.compiled) << step.report().to_string();
}

}  // namespace
}  // namespace tandem::test
