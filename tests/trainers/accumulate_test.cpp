// Accumulation over micro-batches: as repeated backward() calls and one update.
#include "tests/support/lockstep.h"

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

Options accumulating(std::int64_t k) {
  Options o = watched();
  o.accumulate = k;
  return o;
}

/// The gradient of every parameter, by name, as bits that can be compared.
TrainState gradients_of(Lockstep& l) { return gradients(*l.plan_side().module).clone(); }

TEST(Accumulate, EveryThirdCallUpdatesAndGradientsAreSummed) {
  Lockstep l([] { return mlp(); }, accumulating(3));
  for (std::uint64_t i = 1; i <= 18; i++) {
    l.step(batch(i));
    EXPECT_EQ(l.last().updated, i % 3 == 0) << "call " << i;
  }
}

TEST(Accumulate, EachPlaceInTheAccumulationHasAnActivePlan) {
  Lockstep l([] { return mlp(); }, accumulating(3));
  l.steps(18, batch);
  for (int micro = 0; micro < 3; micro++) EXPECT_TRUE(l.step(batch(50)).compiled) << "micro-batch " << micro << l.report().to_string();
}

TEST(Accumulate, WithAdamAndDroppedGradients) {
  auto o = accumulating(3);
  o.keep_grads = false;
  Lockstep l([] { return mlp([](auto p) { return adam(std::move(p), 0.01); }); }, o);
  l.steps(18, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  for (const auto& p : l.plan_side().module->parameters()) EXPECT_FALSE(p.grad().defined());
}

TEST(Accumulate, GradientsThatAreZeroedInPlaceKeepTheirMemory) {
  auto o = accumulating(2);
  o.zero_grad_to_none = false;
  Lockstep l([] { return mlp(); }, o);
  l.steps(12, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  const auto* memory = l.plan_side().module->parameters()[0].grad().const_data_ptr();
  l.steps(4, batch);
  EXPECT_EQ(l.plan_side().module->parameters()[0].grad().const_data_ptr(), memory);
}

TEST(Accumulate, MicroBatchesOfOtherSizesHavePlansOfTheirOwn) {
  Lockstep l([] { return mlp(); }, accumulating(3));
  for (std::uint64_t i = 1; i <= 24; i++) l.step(mlp_batch(i, i % 3 == 0 ? 3 : 5));
  for (std::uint64_t i = 25; i <= 27; i++) EXPECT_TRUE(l.step(mlp_batch(i, i % 3 == 0 ? 3 : 5)).compiled) << "call " << i;
}

TEST(Accumulate, ARaggedMicroBatchNowAndThen) {
  Lockstep l([] { return mlp(); }, accumulating(3));
  for (std::uint64_t i = 1; i <= 30; i++) l.step(mlp_batch(i, i % 7 == 0 ? 2 : 5));
  EXPECT_GE(l.report().compiled_steps, 10);
}

TEST(Accumulate, FlushUpdatesAnIncompleteRest) {
  Lockstep l([] { return mlp(); }, accumulating(3));
  l.steps(12, batch);
  l.steps(2, batch);
  EagerLoop::Result eager;
  l.eager_side().update(eager);
  EXPECT_TRUE(l.tandem().flush());
  l.compare_state();
  l.step(batch(60));
  EXPECT_FALSE(l.last().updated);
  l.steps(5, batch);
  EXPECT_TRUE(l.last().updated);
}

TEST(Accumulate, FlushClipsAsTheLastMicroBatchDoes) {
  auto o = accumulating(4);
  o.clip_grad_norm = 0.05;
  o.clip_grad_value = 0.01;
  Lockstep l([] { return mlp(); }, o);
  l.steps(3, batch);
  EagerLoop::Result eager;
  l.eager_side().update(eager);
  EXPECT_TRUE(l.tandem().flush());
  l.compare_state();
}

TEST(Accumulate, FlushSeesAParameterThatCameSinceTheLastMicroBatch) {
  auto o = accumulating(3);
  o.clip_grad_norm = 1e-3;
  Lockstep l([] { return mlp(); }, o);
  l.steps(2, batch);
  l.for_both([](Toy& t) {
    auto extra = normal({4}, 1).requires_grad_();
    extra.mutable_grad() = normal({4}, 2);
    t.module->register_parameter("extra", extra);
    t.optimizer->param_groups()[0].params().push_back(extra);
  });
  EagerLoop::Result eager;
  l.eager_side().update(eager);
  EXPECT_TRUE(l.tandem().flush());
  l.compare_state();
}

TEST(Accumulate, FlushWithAnOptimizerThatRunsEager) {
  struct Plain : torch::optim::SGD {
    using SGD::SGD;
  };
  Lockstep l([] { return mlp([](auto p) { return std::make_unique<Plain>(std::move(p), torch::optim::SGDOptions(0.1)); }); },
             accumulating(2));
  l.steps(9, batch);
  EagerLoop::Result eager;
  l.eager_side().update(eager);
  EXPECT_TRUE(l.tandem().flush());
  l.compare_state();
}

TEST(Accumulate, FlushTwiceUpdatesOnce) {
  Lockstep l([] { return mlp(); }, accumulating(3));
  l.step(batch(1));
  EXPECT_TRUE(l.tandem().flush());
  const auto state = state_of(l.plan_side()).clone();
  EXPECT_FALSE(l.tandem().flush());
  EXPECT_EQ(difference(state_of(l.plan_side()), state), "");
}

TEST(Accumulate, KeptGradientsAreTheSumUntilTheNextRound) {
  Lockstep l([] { return mlp(); }, accumulating(2));
  l.steps(10, batch);
  const auto after_update = gradients_of(l);
  l.step(batch(70));
  EXPECT_NE(difference(gradients_of(l), after_update), "");
  for (const auto& [name, gradient] : gradients_of(l).tensors) EXPECT_TRUE(gradient.defined()) << name;
}

TEST(Accumulate, AGradientThatTheUserChangesBetweenMicroBatchesCounts) {
  Lockstep l([] { return mlp(); }, accumulating(2));
  l.steps(12, batch);
  l.step(batch(80));
  l.for_both([](Toy& t) { t.module->parameters()[0].mutable_grad().mul_(3); });
  EXPECT_TRUE(l.step(batch(81)).compiled);
}

TEST(Accumulate, AGradientOfOtherStridesIsReadAsItIs) {
  Lockstep l([] { return mlp(); }, accumulating(2));
  l.steps(12, batch);
  l.step(batch(80));
  l.for_both([](Toy& t) {
    auto& g = t.module->parameters()[0].mutable_grad();
    g = g.t().contiguous().t();
  });
  l.step(batch(81));
}

TEST(Accumulate, AnErrorInTheMiddleLeavesThePlaceInTheAccumulation) {
  Lockstep l([] { return mlp(); }, accumulating(3));
  l.steps(12, batch);
  l.step(batch(90));
  auto bad = batch(91);
  bad[1][2] = 99;
  EXPECT_NE(l.step(bad).error, "");
  l.steps(5, batch);
  EXPECT_TRUE(l.last().updated);
}

}  // namespace
}  // namespace tandem::test
