// Clipping as LibTorch's own functions do it, with the norm given back as a tensor.
#include "tests/support/lockstep.h"

#include <limits>

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

// Lockstep holds gradients, values and grad_norm against clip_grad_norm_ and clip_grad_value_.
void expect_equal(const Options& options, const MakeOptimizer& optimizer = momentum_sgd) {
  Lockstep l([&] { return mlp(optimizer); }, options);
  l.steps(8, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_GE(l.report().compiled_steps, 3);
}

Options clipping(std::optional<double> norm, std::optional<double> value) {
  Options o = watched();
  o.clip_grad_norm = norm;
  o.clip_grad_value = value;
  return o;
}

TEST(Clip, ByTheEuclideanNorm) { expect_equal(clipping(0.1, std::nullopt)); }

TEST(Clip, ByANormThatIsNeverReachedLeavesGradientsAlone) { expect_equal(clipping(1e6, std::nullopt)); }

TEST(Clip, ByTheLargestElement) {
  auto o = clipping(0.05, std::nullopt);
  o.clip_norm_type = std::numeric_limits<double>::infinity();
  expect_equal(o);
}

TEST(Clip, ByTheSumOfMagnitudes) {
  auto o = clipping(0.5, std::nullopt);
  o.clip_norm_type = 1;
  expect_equal(o);
}

TEST(Clip, ByValue) { expect_equal(clipping(std::nullopt, 0.02)); }

TEST(Clip, ByAValueOfZeroGivesZeroGradients) {
  auto o = clipping(std::nullopt, 0.0);
  Lockstep l([] { return mlp(); }, o);
  l.activate(batch);
  for (const auto& p : l.plan_side().module->parameters()) EXPECT_EQ(p.grad().abs().max().item<double>(), 0);
}

TEST(Clip, ByNormAndThenByValue) { expect_equal(clipping(0.3, 0.02)); }

TEST(Clip, WithAdam) {
  expect_equal(clipping(0.1, 0.01), [](auto p) { return adam(std::move(p), 0.01); });
}

TEST(Clip, OneParameterHasTheNormOfItsOwn) {
  const auto one = [] {
    auto module = bag();
    auto w = module->register_parameter("w", normal({6, 4}, 3));
    return Toy{module, momentum_sgd({w}), [w](const at::Tensor& x, const at::Tensor&) -> Inputs { return {x.matmul(w).square().mean()}; }};
  };
  Lockstep l(one, clipping(0.1, std::nullopt));
  l.steps(6, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Clip, ParametersOutsideTheOptimizerAreNeitherClippedNorCounted) {
  const auto make = [] {
    auto toy = mlp();
    toy.optimizer = momentum_sgd({toy.module->parameters()[0], toy.module->parameters()[1]});
    return toy;
  };
  Lockstep l(make, clipping(0.01, std::nullopt));
  l.steps(6, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Clip, TheNormIsThatBeforeClipping) {
  Lockstep l([] { return mlp(); }, clipping(1e-3, std::nullopt));
  l.activate(batch);
  ASSERT_TRUE(l.last().grad_norm.defined());
  EXPECT_EQ(l.last().grad_norm.dim(), 0);
  EXPECT_GT(l.last().grad_norm.item<double>(), 1e-2);
}

TEST(Clip, NoNormIsGivenBackWithoutClippingByNorm) {
  Lockstep l([] { return mlp(); }, clipping(std::nullopt, 0.1));
  l.activate(batch);
  EXPECT_FALSE(l.last().grad_norm.defined());
}

TEST(Clip, GradientsThatAreNotFiniteAreScaledAsEagerDoes) {
  Lockstep l(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x).square().mean(); }),
             clipping(0.1, 0.5));
  l.activate(batch);
  auto bad = batch(50);
  bad[0][0][0] = INFINITY;
  EXPECT_TRUE(l.step_each(bad, bad).compiled);
}

TEST(Clip, OnlyTheMicroBatchThatUpdatesClips) {
  auto o = clipping(0.1, std::nullopt);
  o.accumulate = 2;
  Lockstep l([] { return mlp(); }, o);
  l.steps(12, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_TRUE(l.last().grad_norm.defined());
  l.step(batch(40));
  EXPECT_FALSE(l.last().grad_norm.defined());
}

TEST(Clip, AnUnknownOptimizerStepsOnClippedGradients) {
  struct Signed : torch::optim::SGD {
    using SGD::SGD;
  };
  expect_equal(clipping(0.1, std::nullopt), [](auto p) { return std::make_unique<Signed>(std::move(p), torch::optim::SGDOptions(0.1)); });
}

}  // namespace
}  // namespace tandem::test
