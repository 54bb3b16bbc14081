// What users' training programs do beyond the plain step: the values stay eager's, and a plan runs where one can.
#include "tests/support/lockstep.h"

#include <thread>

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

void expect_active(const MakeToy& make, const Options& options = watched(), int steps = 8) {
  Lockstep l(make, options);
  l.steps(steps, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Programs, AGradientPenalty) {
  expect_active(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
    const auto at = x.detach().clone().requires_grad_();
    const auto scores = net.last(torch::tanh(net.first(at)));
    const auto slope = torch::autograd::grad({scores.sum()}, {at}, {}, true, true)[0];
    return scores.square().mean() + slope.square().mean();
  }));
}

TEST(Programs, WeightsThatTheLossClampsInPlace) {
  expect_active(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
    {
      const at::NoGradGuard no_grad;
      net.first->weight.clamp_(-0.2, 0.2);
    }
    return net.forward(x).square().mean();
  }));
}

TEST(Programs, AMovingAverageOfTheWeightsInABuffer) {
  struct Net : MlpNet {
    Net() { average = register_buffer("average", torch::zeros({8, 6})); }
    at::Tensor average;
  };
  expect_active([] {
    return make_toy<Net>(momentum_sgd, [](Net& net, const at::Tensor& x, const at::Tensor& y) {
      {
        const at::NoGradGuard no_grad;
        net.average.mul_(0.9).add_(net.first->weight, 0.1);
      }
      return torch::cross_entropy_loss(net.forward(x), y);
    });
  });
}

TEST(Programs, WeightsThatTheUserChangesBetweenSteps) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  l.for_both([](Toy& t) {
    const at::NoGradGuard no_grad;
    for (auto& p : t.module->parameters()) p.mul_(0.5);
  });
  EXPECT_TRUE(l.step(batch(100)).compiled);
}

TEST(Programs, AParameterThatNoLossUses) {
  struct Net : MlpNet {
    Net() { register_module("idle", idle); }
    torch::nn::Linear idle{3, 2};
  };
  for (const bool to_none : {true, false}) {
    Options o = watched();
    o.zero_grad_to_none = to_none;
    expect_active(
        [] {
          return make_toy<Net>(
              [](auto p) { return adam(std::move(p), 0.01); },
              [](Net& net, const at::Tensor& x, const at::Tensor& y) { return torch::cross_entropy_loss(net.forward(x), y); });
        },
        o);
  }
}

TEST(Programs, AParameterThatIsUsedInEvalModeOnly) {
  struct Net : MlpNet {
    Net() { register_module("extra", extra); }
    torch::nn::Linear extra{6, 4};
  };
  Lockstep l([] {
    return make_toy<Net>([](auto p) { return adam(std::move(p), 0.01); },
                         [](Net& net, const at::Tensor& x, const at::Tensor& y) {
                           const auto scores = net.forward(x);
                           return torch::cross_entropy_loss(net.is_training() ? scores : scores + net.extra(x), y);
                         });
  });
  for (int round = 0; round < 3; round++) {
    l.for_both([](Toy& t) { t.module->train(); });
    l.steps(5, batch);
    l.for_both([](Toy& t) { t.module->eval(); });
    l.steps(5, batch);
  }
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Programs, ALayerThatIsFrozenAndThawed) {
  Lockstep l([] { return mlp(); });
  for (int round = 0; round < 3; round++) {
    l.for_both([&](Toy& t) { dynamic_cast<MlpNet&>(*t.module).first->weight.requires_grad_(round != 1); });
    l.steps(5, batch);
    EXPECT_TRUE(l.report().active) << l.report().to_string();
  }
}

TEST(Programs, EvaluationBetweenStepsDrawsFromTheSameGenerator) {
  Lockstep l([] { return mlp(); });
  for (std::uint64_t i = 1; i <= 8; i++) {
    l.step(batch(i));
    const auto place = generator_state();
    l.for_both([&](Toy& t) {
      set_generator_state(place);
      const at::NoGradGuard no_grad;
      t.loss(batch(i)[0], batch(i)[1]);  // in train mode: moves the running statistics and the generator
    });
    l.compare_state();
  }
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Programs, ALearningRateThatStartsAtZero) {
  for (const bool with_adam : {false, true}) {
    Lockstep l([&] { return mlp([&](auto p) { return with_adam ? adam(std::move(p), 0) : momentum_sgd(std::move(p)); }); });
    for (std::uint64_t i = 0; i < 8; i++) {
      l.for_both([&](Toy& t) {
        if (with_adam)
          group<torch::optim::AdamOptions>(*t.optimizer).lr(0.01 * double(i));
        else
          group<torch::optim::SGDOptions>(*t.optimizer).lr(0.01 * double(i));
      });
      l.step(batch(i + 1));
    }
    EXPECT_TRUE(l.report().active) << l.report().to_string();
    EXPECT_EQ(l.report().recompiles, 0);
  }
}

TEST(Programs, AModelInDoubleThenInFloat) {
  Lockstep l(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
    return torch::cross_entropy_loss(net.last(torch::relu(net.first(x.to(net.first->weight.scalar_type())))), y);
  }));
  l.activate(batch);
  l.for_both([](Toy& t) {
    t.module->to(at::kDouble);
    t.optimizer->state().clear();
    t.optimizer->zero_grad();
  });
  l.steps(5, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Programs, AUsersOwnBackwardBetweenSteps) {
  // Gradients that the user left are dropped by the step's zero_grad, as in eager.
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  const auto place = generator_state();
  l.for_both([&](Toy& t) {
    set_generator_state(place);
    t.loss(batch(7)[0], batch(7)[1])[0].backward();
  });
  EXPECT_TRUE(l.step(batch(100)).compiled);
}

TEST(Programs, AStepThatGoesFromThreadToThread) {
  Lockstep l([] { return mlp(); });
  for (std::uint64_t i = 1; i <= 8; i++) {
    std::thread other([&] { l.step(batch(i)); });
    other.join();
  }
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Programs, StepsOfTwoModelsInTwoThreadsAtOnce) {
  // No random ops: the threads share the generator.
  const auto make = mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
    return torch::cross_entropy_loss(net.last(torch::relu(net.norm(torch::tanh(net.first(x))))), y);
  });
  std::vector<Toy> toys;
  for (int i = 0; i < 3; i++) toys.push_back(make());
  EagerLoop eager(std::move(toys[2]), watched());
  for (std::uint64_t i = 1; i <= 30; i++) eager.step(batch(i));
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; t++)
    threads.emplace_back([&toy = toys[std::size_t(t)]] {
      TrainStep step(toy.module, *toy.optimizer, toy.loss, as_tested({.shadow_every = 4}));
      for (std::uint64_t i = 1; i <= 30; i++) step.run(batch(i));
      EXPECT_TRUE(step.report().active) << step.report().to_string();
    });
  for (auto& t : threads) t.join();
  for (int t = 0; t < 2; t++) EXPECT_EQ(difference(state_of(toys[std::size_t(t)]), state_of(eager.toy())), "");
}

}  // namespace
}  // namespace tandem::test
