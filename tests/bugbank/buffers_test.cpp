// Buffers and running statistics.
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

TEST(BugBank, BUF_1_ABufferIsReadBeforeItIsWritten) {
  Twins twins([] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::ones(2));
    const auto buf = module->register_buffer("buf", torch::full({2}, 3.));
    return Trainer{module, sgd({x}, 0.1), [x, buf] {
                     const auto y = (x * (buf * 2)).sum();
                     const at::NoGradGuard no_grad;
                     buf.mul_(10);
                     return y;
                   }};
  });
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  twins.compiled_step();
  EXPECT_EQ(far(twins.gradient("x"), {6, 6}), "");
  EXPECT_EQ(far(twins.buffer("buf"), {30, 30}), "");
  twins.compiled_step();
  EXPECT_EQ(far(twins.gradient("x"), {60, 60}), "");
  EXPECT_EQ(far(twins.buffer("buf"), {300, 300}), "");
}

TEST(BugBank, BUF_1_ACapturedTensorIsReadBeforeItIsWritten) {
  Twins twins([] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::ones(2));
    const auto buf = torch::full({2}, 3.);
    return Trainer{module, sgd({x}, 0.1), [x, buf] {
                     const auto y = (x * (buf * 2)).sum();
                     const at::NoGradGuard no_grad;
                     buf.mul_(10);
                     return y;
                   }};
  });
  double expected = 6;
  for (int s = 1; s <= 6; s++, expected *= 10) {
    const bool compiled = twins.step().compiled;
    EXPECT_EQ(far(twins.gradient("x"), {expected, expected}), "") << "step " << s;
    if (s > 3) {
      EXPECT_TRUE(compiled) << twins.report().to_string();
    }
  }
}

auto batch_norm_trainer() {
  torch::nn::BatchNorm1d norm(2);
  return Trainer{norm.ptr(), sgd(norm->parameters(), 0.1), [m = norm.get()](const at::Tensor& x) { return m->forward(x).pow(2).sum(); }};
}

TEST(BugBank, BN_1_RunningStatisticsMoveOnceAStep) {
  Twins twins(batch_norm_trainer);
  const auto x = torch::tensor({{1.f, 2.f}, {3.f, 6.f}});
  ASSERT_TRUE(twins.warm_up(x)) << twins.report().to_string();
  twins.compiled_step(x);
  EXPECT_EQ(far(twins.buffer("running_mean"), {0.2, 0.4}, 1e-7), "");
  EXPECT_EQ(far(twins.buffer("running_var"), {1.1, 1.7}, 1e-6), "");
  EXPECT_EQ(far(twins.buffer("num_batches_tracked"), {1}), "");
  twins.compiled_step(x);
  EXPECT_EQ(far(twins.buffer("running_mean"), {0.38, 0.76}, 1e-7), "");
  EXPECT_EQ(far(twins.buffer("num_batches_tracked"), {2}), "");
}

TEST(BugBank, BN_1_EvalLeavesTheStatisticsAlone) {
  Twins twins(batch_norm_trainer);
  const auto x = torch::tensor({{1.f, 2.f}, {3.f, 6.f}});
  ASSERT_TRUE(twins.warm_up(x)) << twins.report().to_string();
  const auto train = [](bool on) { return [on](torch::nn::Module& m, torch::optim::Optimizer&) { m.train(on); }; };
  twins.compiled_step(x);
  const auto mean = twins.buffer("running_mean").clone();
  twins.for_both(train(false));
  bool compiled = false;
  for (int n = 0; n < 4; n++) compiled = twins.step(x).compiled;
  EXPECT_TRUE(compiled) << twins.report().to_string();
  EXPECT_EQ(difference(twins.buffer("running_mean"), mean), "");
  twins.for_both(train(true));
  twins.compiled_step(x);
  EXPECT_EQ(far(twins.buffer("num_batches_tracked"), {2}), "");
}

TEST(BugBank, BN_1_TheLastShadowStepMovesThemOnceToo) {
  auto options = watched();
  options.shadow_every = 2;
  Twins twins(batch_norm_trainer, options);
  const auto x = torch::tensor({{1.f, 2.f}, {3.f, 6.f}});
  for (int s = 1; s <= 12; s++) {
    twins.step(x);
    EXPECT_EQ(far(twins.buffer("num_batches_tracked"), {double(s)}), "");
  }
  EXPECT_GT(twins.report().shadow_steps, 0);
  EXPECT_GT(twins.report().compiled_steps, 0);
}

}  // namespace
}  // namespace tandem::test
