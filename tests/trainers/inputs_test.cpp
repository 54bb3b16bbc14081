// Unusual inputs, losses and results of the loss function.
#include "tests/support/lockstep.h"

#include <ATen/ops/_efficientzerotensor.h>

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

/// The MLP's scores of the first input times the second one.
MakeToy weighted() {
  return mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor& y) { return (net.forward(x) * y).square().mean(); });
}

void expect_active_on(const std::function<Inputs(std::uint64_t)>& in) {
  Lockstep l(weighted());
  for (std::uint64_t i = 1; i <= 8; i++) l.step_each(in(i), in(i));
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Inputs, ThatAreExpanded) {
  expect_active_on([](auto seed) { return Inputs{normal({5, 6}, seed), normal({1, 4}, seed + 50).expand({5, 4})}; });
}

TEST(Inputs, OfNoDimensions) {
  expect_active_on([](auto seed) { return Inputs{normal({5, 6}, seed), normal({}, seed + 50)}; });
}

TEST(Inputs, OfIntegersAndFlags) {
  expect_active_on([](auto seed) { return Inputs{labels({5, 6}, 9, seed), normal({5, 4}, seed + 50).gt(0)}; });
}

TEST(Inputs, ThatAreTheSameTensorTwice) {
  Lockstep l(mlp_with(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor& y) { return (net.forward(x) + net.first(y).mean()).square().mean(); }));
  for (std::uint64_t i = 1; i <= 8; i++) {
    const auto mine = normal({5, 6}, i), eagers = normal({5, 6}, i);
    l.step_each({mine, mine}, {eagers, eagers});
  }
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Inputs, ThatTheLossWritesInPlace) {
  Lockstep l(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x.mul_(0.5)).square().mean(); }));
  for (std::uint64_t i = 1; i <= 8; i++) {
    const auto mine = normal({9, 6}, i), eagers = normal({9, 6}, i);
    const auto from = std::int64_t(i % 4);
    l.step_each({mine.narrow(0, from, 5), mine}, {eagers.narrow(0, from, 5), eagers});
    EXPECT_EQ(difference(mine, eagers), "");
    EXPECT_EQ(mine._version(), eagers._version());
  }
}

TEST(Inputs, AZeroTensorWithoutMemory) {
  Lockstep l(weighted());
  const auto in = [](auto seed) { return Inputs{normal({5, 6}, seed), normal({5, 4}, seed + 50)}; };
  l.activate(in);
  const auto zero = at::_efficientzerotensor({5, 4}, at::TensorOptions(at::kFloat));
  for (std::uint64_t i = 100; i < 104; i++) l.step_each({in(i)[0], zero}, {in(i)[0], zero});
  EXPECT_TRUE(l.step(in(110)).compiled) << l.report().to_string();
}

TEST(Inputs, MadeInInferenceMode) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  const auto make = [] {
    const c10::InferenceMode on;
    return normal({5, 6}, 100);
  };
  for (int i = 0; i < 4; i++) l.step_each({make(), batch(100)[1]}, {make(), batch(100)[1]});
}

TEST(Inputs, NoneAtAll) {
  auto module = bag();
  const auto w = module->register_parameter("w", normal({4}, 1));
  const auto optimizer = momentum_sgd({w});
  TrainStep step(module, *optimizer, [&] { return (w * w).sum(); });
  StepResult r;
  for (int i = 0; i < 6; i++) r = step();
  EXPECT_TRUE(r.compiled) << step.report().to_string();
}

TEST(Inputs, Eight) {
  auto toy = mlp();
  auto& net = dynamic_cast<MlpNet&>(*toy.module);
  using T = const at::Tensor&;
  TrainStep step(toy.module, *toy.optimizer,
                 [&](T a, T b, T c, T d, T e, T f, T g, T h) { return net.forward(a + b + c + d + e + f + g + h).square().mean(); });
  StepResult r;
  for (std::uint64_t i = 0; i < 6; i++) r = step.run(Inputs(8, normal({5, 6}, i)));
  EXPECT_TRUE(r.compiled) << step.report().to_string();
}

template <class F>
void expect_loss_as_eager(F loss, bool active = true) {
  Lockstep l(mlp_with(loss));
  l.steps(8, batch);
  EXPECT_EQ(l.report().active, active) << l.report().to_string();
}

TEST(Losses, OfOneElementInOneDimension) {
  expect_loss_as_eager([](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x).square().mean().view({1}); });
}

TEST(Losses, InDouble) {
  expect_loss_as_eager([](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x).to(at::kDouble).square().mean(); });
}

TEST(Losses, InBfloat16) {
  expect_loss_as_eager(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x).to(at::kBFloat16).square().mean(); });
}

TEST(Losses, ThatAreComplexThrowAsEager) {
  Lockstep l(
      mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return at::complex(net.forward(x), net.forward(x)).mean(); }));
  for (std::uint64_t i = 1; i < 4; i++) EXPECT_NE(l.step(batch(i)).error, "");
}

TEST(Losses, ThatAreNotFinite) {
  Lockstep l(weighted());
  const auto in = [](std::uint64_t seed) { return Inputs{normal({5, 6}, seed), normal({5, 4}, seed + 50)}; };
  l.activate(in);
  auto bad = in(100);
  bad[1][0][0] = INFINITY;
  bad[1][1][1] = NAN;
  EXPECT_TRUE(l.step(bad).compiled);
  EXPECT_TRUE(l.step(in(101)).compiled);
}

TEST(Losses, ThatAreAParameter) {
  const auto make = [] {
    auto module = bag();
    const auto w = module->register_parameter("w", normal({1}, 1));
    return Toy{module, momentum_sgd({w}), [w](const at::Tensor&, const at::Tensor&) -> Inputs { return {w}; }};
  };
  Lockstep l(make);
  l.steps(6, batch);
}

TEST(Losses, ThatAreAViewOfAnOutput) {
  expect_loss_as_eager([](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
    const auto all = net.forward(x).square().mean(0);
    return std::tuple(all[1], all, at::Tensor(), x.detach());
  });
}

TEST(Losses, WithOutputsInAList) {
  expect_loss_as_eager([](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
    const auto h = net.forward(x);
    return Inputs{h.square().mean(), h, h.t(), h.detach()};
  });
}

TEST(Modes, AnomalyModeThrowsAsEagerUnderAnActivePlan) {
  Lockstep l(mlp_with(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor& y) { return (net.forward(x).square() * 0 + y.sum() * 0).sqrt().sum(); }));
  torch::autograd::AnomalyMode::set_enabled(false);
  l.activate(batch);  // the backward of sqrt at 0 gives NaN
  torch::autograd::AnomalyMode::set_enabled(true, true);
  EXPECT_NE(l.step(batch(100)).error, "");
  torch::autograd::AnomalyMode::set_enabled(false);
  EXPECT_EQ(l.step(batch(101)).error, "");
}

TEST(Modes, InferenceMode) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  const auto before = state_of(l.plan_side()).clone();
  const auto in = batch(100);
  {
    const c10::InferenceMode on;
    EXPECT_THROW(l.tandem().run(in), Error);
  }
  EXPECT_EQ(difference(l.plan_side().module->parameters()[0], before.tensors[0].second), "");
}

}  // namespace
}  // namespace tandem::test
