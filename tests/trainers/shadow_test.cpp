// Shadow steps: every n-th compiled step runs eager and must agree with the plan.
#include "tests/support/lockstep.h"

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

Options shadowed(std::int64_t every) {
  Options o = watched();
  o.shadow_every = every;
  return o;
}

TEST(Shadow, APureLossKeepsItsPlanAndStepsAreCounted) {
  Lockstep l([] { return mlp(); }, shadowed(4));
  l.activate(batch);
  const auto before = l.report();
  EXPECT_EQ(before.shadow_steps, 0);
  std::string pattern = "c";  // the first compiled step was the last of activate()
  for (std::uint64_t i = 0; i < 11; i++) pattern += l.step(batch(50 + i)).compiled ? 'c' : 's';
  EXPECT_EQ(pattern, "cccscccscccs");
  const auto r = l.report();
  EXPECT_TRUE(r.active) << r.to_string();
  EXPECT_EQ(r.shadow_steps, 3);
  EXPECT_EQ(r.steps, r.eager_steps + r.compiled_steps);
  EXPECT_EQ(events(r, "retired"), 0);
}

TEST(Shadow, EveryOtherStepIsTheClosest) {
  Lockstep l([] { return mlp(); }, shadowed(2));
  l.activate(batch);
  EXPECT_FALSE(l.step(batch(50)).compiled);
  EXPECT_TRUE(l.step(batch(51)).compiled);
  EXPECT_FALSE(l.step(batch(52)).compiled);
}

TEST(Shadow, ShadowStepsWithAdamLeaveEagersState) {
  Lockstep l([] { return mlp([](auto p) { return adam(std::move(p), 0.01); }); }, shadowed(3));
  l.steps(15, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_GE(l.report().shadow_steps, 3);
}

TEST(Shadow, ShadowStepsInAnAccumulation) {
  auto o = shadowed(2);
  o.accumulate = 2;
  Lockstep l([] { return mlp(); }, o);
  l.steps(20, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_GE(l.report().shadow_steps, 4);
}

Options trusting(std::int64_t every) {
  Options o = shadowed(every);
  o.replay = Replay::trusted;
  return o;
}

/// Runs a loss that is trusted and reads host state until a plan is active; then changes the state and runs on until the shadow step.
Report changed_under_a_plan(const std::function<at::Tensor(MlpNet&, const at::Tensor&, int)>& loss) {
  const auto state = std::make_shared<int>(1);
  Toy toy = mlp_with([=](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return loss(net, x, *state); })();
  TrainStep step(toy.module, *toy.optimizer, toy.loss, trusting(4));
  StepResult r;
  for (int i = 0; i < 6 && !r.compiled; i++) r = step.run(batch(1));
  EXPECT_TRUE(r.compiled) << step.report().to_string();
  *state = 2;
  for (int i = 0; i < 4; i++) r = step.run(batch(1));
  EXPECT_FALSE(r.compiled);
  const auto report = step.report();
  EXPECT_FALSE(report.active);
  EXPECT_EQ(events(report, "retired"), 1);
  EXPECT_EQ(report.shadow_steps, 1);
  EXPECT_EQ(report.reason.rfind("a shadow step no longer agrees with the plan (does the loss function depend on host state?): ", 0), 0u)
      << report.reason;
  return report;
}

TEST(Shadow, ANumberThatTheHostChangesRetiresThePlan) {
  const auto r =
      changed_under_a_plan([](MlpNet& net, const at::Tensor& x, int state) { return net.forward(x).square().mean() * (0.25 * state); });
  EXPECT_TRUE(says(r, "aten::mul")) << r.reason;
}

TEST(Shadow, ABranchThatTheHostTakesRetiresThePlan) {
  changed_under_a_plan([](MlpNet& net, const at::Tensor& x, int state) {
    const auto h = net.forward(x);
    return state == 1 ? h.square().mean() : h.abs().mean();
  });
}

TEST(Shadow, AnotherCapturedTensorRetiresThePlan) {
  const auto first = torch::full({4}, 0.5), second = torch::full({4}, 0.25);
  const auto r = changed_under_a_plan(
      [=](MlpNet& net, const at::Tensor& x, int state) { return (net.forward(x) * (state == 1 ? first : second)).square().mean(); });
  EXPECT_TRUE(says(r, "reads a tensor that no recorded op made and that is another one in each step")) << r.reason;
}

TEST(Shadow, ARetiredStepStaysEagerAndRight) {
  auto states = std::vector<std::shared_ptr<int>>();
  Lockstep l(
      [&] {
        const auto state = states.emplace_back(std::make_shared<int>(1));
        return mlp_with(
            [state](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x).square().mean() * (0.25 * *state); })();
      },
      trusting(2));
  l.activate(batch);
  for (auto& s : states) *s = 2;  // the next step is a shadow step
  for (std::uint64_t i = 50; i < 56; i++) {
    EXPECT_FALSE(l.step(batch(i)).compiled);
    for (auto& s : states) ++*s;
  }
  EXPECT_FALSE(l.report().active);
}

TEST(Shadow, TheirDistanceDoublesByDefault) {
  Lockstep l([] { return mlp(); }, shadowed(0));
  l.activate(batch);
  std::vector<int> shadows;
  for (int i = 2; i <= 16 + 32 + 64; i++)
    if (!l.step(batch(std::uint64_t(i))).compiled) shadows.push_back(i);
  EXPECT_EQ(shadows, (std::vector<int>{16, 48, 112}));
}

TEST(Shadow, AStepThatTheHostMovesOnIsNoFaultOfThePlan) {
  auto states = std::vector<std::shared_ptr<int>>();
  Lockstep l(
      [&] {
        const auto state = states.emplace_back(std::make_shared<int>(1));
        return mlp_with(
            [state](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x).square().mean() * (0.25 * *state); })();
      },
      shadowed(3));
  for (std::uint64_t i = 0; i < 20; i++) {
    for (auto& s : states) ++*s;
    l.step(batch(i));
  }
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_EQ(events(l.report(), "retired"), 0);
}

TEST(Shadow, ABranchOnTheTrainFlagIsNoHostState) {
  Lockstep l(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
               const auto h = net.forward(x);
               return net.is_training() ? h.square().mean() : h.abs().mean();
             }),
             shadowed(4));
  l.activate(batch);
  l.for_both([](Toy& t) { t.module->eval(); });
  l.activate(batch);
  l.steps(10, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_EQ(events(l.report(), "retired"), 0);
}

}  // namespace
}  // namespace tandem::test
