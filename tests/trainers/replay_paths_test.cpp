// Steps that leave a path whose numbers move, or that bring the same moving number twice.
#include "tests/trainers/replay_case.h"

namespace tandem::test::replayed {
namespace {

TEST(ReplayPaths, AStepThatLeavesAPathKeepsTheNumbersThatItHadSoFar) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    auto loss = mse(net, x, y) * h.weight;
    return h.flag ? loss + net.first->weight.square().mean() : loss;
  });
  int compiled = 0;
  for (int i = 0; i < 24; i++) {
    c.set([&](Host& h) {
      h.weight = 1.0 / (1 + i);
      h.flag = i >= 8 && i % 2 == 0;
    });
    compiled += c.step().compiled;
  }
  const auto r = c.lockstep.report();
  EXPECT_EQ(std::count_if(r.plans.begin(), r.plans.end(), [](const PlanReport& p) { return p.active; }), 2) << r.to_string();
  EXPECT_GE(compiled, 16) << r.to_string();
}

TEST(ReplayPaths, TheSameMovingNumberInTwoPlacesNeedsNoFullReplay) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    const auto out = net.forward(x);
    return torch::mse_loss(out, y) * h.weight + torch::l1_loss(out, y) * h.weight;
  });
  for (int i = 0; i < 12; i++) {
    c.set([&](Host& h) { h.weight = 1.0 / (1 + i); });
    c.step();
  }
  const auto r = c.lockstep.report();
  ASSERT_TRUE(r.active) << r.to_string();
  EXPECT_EQ(r.plans.back().replay, "forward") << r.plans.back().replay_reason;
}

}  // namespace
}  // namespace tandem::test::replayed
