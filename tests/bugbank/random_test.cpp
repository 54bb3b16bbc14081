// Dropout and the generator.
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

/// x = ones(size) as the parameter, dropout, the sum as loss; the output is the second tensor.
auto dropout_trainer(std::int64_t size, double p, bool train) {
  return [=] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::ones(size));
    return Trainer{module, sgd({x}, 0), [=] {
                     const auto y = torch::dropout(x, p, train);
                     return std::make_pair(y.sum(), y);
                   }};
  };
}

std::vector<std::int64_t> kept(const at::Tensor& y) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < y.numel(); i++)
    if (y[i].item<float>() != 0) out.push_back(i);
  return out;
}

TEST(BugBank, RNG_1_BackwardUsesTheMaskOfForward) {
  for (int variant = 0; variant < 3; variant++) {
    SCOPED_TRACE(variant);
    auto options = watched();
    options.fold = options.cse = options.dce = options.skip_views = variant != 1;
    options.decompose = variant == 2;
    torch::manual_seed(3);
    Twins twins(dropout_trainer(10000, 0.5, true), options);
    ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
    for (int s = 0; s < 3; s++) {
      const auto result = twins.compiled_step();
      EXPECT_EQ(difference(twins.gradient("x"), result.returned[1]), "");
      const double rate = result.returned[1].ne(0).to(at::kDouble).mean().item<double>();
      EXPECT_NEAR(rate, 0.5, 4 * 0.5 / 100);
    }
  }
}

TEST(BugBank, RNG_2_EachStepDrawsAnew) {
  Twins twins(dropout_trainer(12, 0.5, true));
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  torch::manual_seed(11);
  const std::vector<std::vector<std::int64_t>> expected{{0, 5, 6, 7, 9}, {1, 2, 3, 5, 7, 8}, {4, 8, 9, 10}};
  for (const auto& positions : expected) EXPECT_EQ(kept(twins.compiled_step().returned[1]), positions);
}

TEST(BugBank, RNG_2_TwoDropoutsOfOneStepDiffer) {
  Twins twins([] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::ones(1000));
    return Trainer{module, sgd({x}, 0), [x] {
                     const auto a = torch::dropout(x, 0.5, true), b = torch::dropout(x, 0.5, true);
                     return std::make_tuple((a + b).sum(), a, b);
                   }};
  });
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  const auto first = twins.compiled_step(), second = twins.compiled_step();
  EXPECT_FALSE(first.returned[1].equal(first.returned[2]));
  EXPECT_FALSE(first.returned[1].equal(second.returned[1]));
  EXPECT_FALSE(first.returned[2].equal(second.returned[1]));
}

/// The first number drawn after a step that starts at seed 7.
template <class Make>
double drawn_after_a_step(Make make) {
  Twins twins(make);
  twins.warm_up();
  torch::manual_seed(7);
  twins.step();
  return torch::rand(1).item<float>();
}

TEST(BugBank, RNG_3_TheGeneratorStandsWhereEagerLeavesIt) {
  constexpr double nothing_drawn = 0.53492254, eight_drawn = 0.72038043;
  EXPECT_NEAR(drawn_after_a_step(dropout_trainer(8, 0, true)), nothing_drawn, 1e-7);
  EXPECT_NEAR(drawn_after_a_step(dropout_trainer(8, 1, true)), nothing_drawn, 1e-7);
  EXPECT_NEAR(drawn_after_a_step(dropout_trainer(8, 0.5, false)), nothing_drawn, 1e-7);
  EXPECT_NEAR(drawn_after_a_step(dropout_trainer(8, 0.5, true)), eight_drawn, 1e-7);
}

TEST(BugBank, RNG_3_DroppingEverythingGivesZerosAndNoNaN) {
  Twins twins(dropout_trainer(8, 1, true));
  twins.warm_up();
  const auto result = twins.step();
  EXPECT_EQ(far(result.returned[1], std::vector<double>(8, 0)), "");
  EXPECT_EQ(far(twins.gradient("x"), std::vector<double>(8, 0)), "");
}

}  // namespace
}  // namespace tandem::test
