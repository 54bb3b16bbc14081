// Aliasing, in-place writes, views.
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

TEST(BugBank, VIEW_1_InPlaceOnAStridedViewReachesItsBase) {
  Twins twins([] {
    auto module = bag();
    const auto p = module->register_parameter("p", torch::ones(4));
    return Trainer{module, sgd({p}, 0.1), [p](const at::Tensor& weights) {
                     const auto b = p * 1;
                     b.slice(0, 0, std::nullopt, 2).add_(1).mul_(3);
                     return std::make_pair((b * weights).sum(), b);
                   }};
  });
  const auto weights = torch::tensor({1.f, 2.f, 3.f, 4.f});
  ASSERT_TRUE(twins.warm_up(weights)) << twins.report().to_string();
  for (int s = 1; s <= 3; s++) {
    const auto result = twins.compiled_step(weights);
    if (s == 1) {
      EXPECT_EQ(far(result.returned[1], {6, 1, 6, 1}), "");
    }
    EXPECT_EQ(far(twins.gradient("p"), {3, 2, 9, 4}), "");
  }
}

struct OverlapInputs {
  at::Tensor base, x, y;
  Inputs list() const { return {x, y}; }
  static OverlapInputs apart() { return {{}, torch::ones(4), torch::ones(4)}; }
  static OverlapInputs overlapping() {
    const auto base = torch::ones(6);
    return {base, base.slice(0, 0, 4), base.slice(0, 2, 6)};
  }
};

TEST(BugBank, VIEW_2_InputsThatStartToOverlapLater) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({}));
    return Trainer{module, sgd({w}, 0), [w](const at::Tensor& x, const at::Tensor& y) {
                     x.mul_(3);
                     const auto out = x + y;
                     return std::make_pair((out * w).sum(), out);
                   }};
  });
  const auto step = [&](OverlapInputs (*make)()) {
    const auto mine = make(), eagers = make();
    const auto result = twins.step_each(mine.list(), eagers.list());
    EXPECT_EQ(mine.x._version(), eagers.x._version());
    EXPECT_EQ(mine.y._version(), eagers.y._version());
    return std::make_pair(mine, result);
  };
  const auto apart = [&] {
    const auto [mine, result] = step(OverlapInputs::apart);
    EXPECT_EQ(far(result.returned[1], {4, 4, 4, 4}), "");
    EXPECT_EQ(far(mine.x, {3, 3, 3, 3}), "");
    EXPECT_EQ(far(mine.y, {1, 1, 1, 1}), "");
  };
  const auto overlapping = [&] {
    const auto [mine, result] = step(OverlapInputs::overlapping);
    EXPECT_EQ(far(result.returned[1], {6, 6, 4, 4}), "");
    EXPECT_EQ(far(mine.base, {3, 3, 3, 3, 1, 1}), "");
    EXPECT_EQ(far(twins.gradient("w"), {20}), "");
  };
  for (int n = 0; n < 5; n++) apart();
  overlapping();
  apart();
  for (int n = 0; n < 5; n++) overlapping();
  apart();
}

TEST(BugBank, VIEW_2_TheSameTensorInBothSlots) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({}));
    return Trainer{module, sgd({w}, 0), [w](const at::Tensor& x, const at::Tensor& y) {
                     x.mul_(3);
                     const auto out = x + y;
                     return std::make_pair((out * w).sum(), out);
                   }};
  });
  for (int n = 0; n < 10; n++) {
    const bool same = n % 2;
    const auto mine = torch::ones(4), eagers = torch::ones(4);
    const auto result = twins.step_each({mine, same ? mine : torch::ones(4)}, {eagers, same ? eagers : torch::ones(4)});
    EXPECT_EQ(far(result.returned[1], std::vector<double>(4, same ? 6 : 4)), "");
    EXPECT_EQ(far(mine, {3, 3, 3, 3}), "");
  }
}

TEST(BugBank, VIEW_3_TwoInputsCutFromOneTokenBuffer) {
  Twins twins([] {
    auto module = bag();
    const auto e = module->register_parameter("E", torch::eye(5));
    return Trainer{module, sgd({e}, 0.1), [e](const at::Tensor& input, const at::Tensor& target) {
                     const auto logits = torch::embedding(e, input);
                     return torch::cross_entropy_loss(logits.view({-1, 5}), target.reshape(-1));
                   }};
  });
  const auto buffer = torch::zeros({1, 12}, at::kLong);
  const auto fill = [&](std::int64_t at, std::vector<std::int64_t> tokens) {
    buffer.slice(1, at, at + 5).copy_(torch::tensor(tokens).unsqueeze(0));
  };
  const auto input = [&](std::int64_t at) { return buffer.slice(1, at, at + 4); };
  fill(0, {3, 1, 2, 0, 4});
  ASSERT_TRUE(twins.warm_up(input(0), input(1))) << twins.report().to_string();

  const auto result = twins.compiled_step(input(0), input(1));
  EXPECT_EQ(far(result.returned[0], {1.90483236}, 1e-6), "");
  EXPECT_EQ(far(twins.gradient("E")[3], {0.0372119, -0.2127881, 0.0372119, 0.1011524, 0.0372119}, 1e-6), "");
  EXPECT_EQ(far(twins.gradient("E")[4], {0, 0, 0, 0, 0}), "");
  fill(0, {4, 4, 1, 3, 2});
  twins.compiled_step(input(0), input(1));
  EXPECT_EQ(far(twins.gradient("E")[0], {0, 0, 0, 0, 0}), "");
  fill(5, {0, 2, 2, 1, 3});
  twins.compiled_step(input(5), input(6));
  EXPECT_EQ(far(twins.gradient("E")[4], {0, 0, 0, 0, 0}), "");
}

TEST(BugBank, VIEW_3_AnInputThatLeavesTheTokenBuffer) {
  Twins twins([] {
    auto module = bag();
    const auto e = module->register_parameter("E", torch::eye(5));
    return Trainer{module, sgd({e}, 0.1), [e](const at::Tensor& input, const at::Tensor& target) {
                     return torch::cross_entropy_loss(torch::embedding(e, input), target);
                   }};
  });
  const auto buffer = torch::tensor({3, 1, 2, 0, 4, 1, 0, 2}, at::kLong);
  const auto input = [&](std::int64_t at) { return buffer.slice(0, at, at + 4); };
  for (int n = 0; n < 4; n++) twins.step(input(0), input(1));
  for (int n = 0; n < 4; n++) {
    twins.step(input(0), torch::tensor({0, 0, 1, 4}, at::kLong));
    twins.step(input(0), input(3));
    twins.step(input(2), input(3));
  }
}

}  // namespace
}  // namespace tandem::test
