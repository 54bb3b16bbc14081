// Memory format and strides.
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(BugBank, FMT_1_ChannelsLastThroughForwardAndBackward) {
  Twins twins([] {
    torch::manual_seed(1);
    auto module = bag();
    const auto x = module->register_parameter("x", torch::randn({2, 3, 5, 4}).contiguous(at::MemoryFormat::ChannelsLast));
    const auto weight = module->register_parameter("weight", torch::randn({8, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
    const auto bias = module->register_parameter("bias", torch::randn(8));
    return Trainer{module, sgd({x, weight, bias}, 0.1), [=] {
                     const auto y = torch::conv2d(x, weight, bias);
                     return std::make_pair(y.sum(), y);
                   }};
  });
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  for (int s = 0; s < 3; s++) {
    EXPECT_EQ(twins.compiled_step().returned[1].strides(), (Sizes{48, 1, 16, 8}));
    EXPECT_EQ(twins.gradient("weight").strides(), (Sizes{27, 1, 9, 3}));
    EXPECT_EQ(twins.gradient("x").strides(), (Sizes{60, 1, 12, 3}));
  }
}

TEST(BugBank, FMT_2_TheGradientOfATransposedLeafHasItsStrides) {
  Twins twins([] {
    torch::manual_seed(1);
    auto module = bag();
    const auto p = module->register_parameter("p", torch::randn({3, 4}).t());
    return Trainer{module, sgd({p}, 0.1, 0.9), [p](const at::Tensor& c) { return (p * c).sum(); }};
  });
  const auto c = torch::randn({4, 3});
  ASSERT_TRUE(twins.warm_up(c)) << twins.report().to_string();
  for (int s = 0; s < 3; s++) {
    twins.compiled_step(c);
    EXPECT_EQ(twins.parameter("p").strides(), (Sizes{1, 4}));
    EXPECT_EQ(twins.gradient("p").strides(), (Sizes{1, 4}));
  }
}

TEST(BugBank, FMT_2_MomentsOfAChannelsLastWeightHaveItsStrides) {
  Twins twins([] {
    torch::manual_seed(1);
    auto module = bag();
    const auto weight = module->register_parameter("weight", torch::randn({8, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
    return Trainer{module, adam({weight}, 0.1), [weight](const at::Tensor& x) { return torch::conv2d(x, weight).pow(2).sum(); }};
  });
  const auto x = torch::randn({2, 3, 5, 4});
  ASSERT_TRUE(twins.warm_up(x)) << twins.report().to_string();
  for (int s = 0; s < 3; s++) {
    twins.compiled_step(x);
    EXPECT_EQ(twins.gradient("weight").strides(), (Sizes{27, 1, 9, 3}));
    const auto& state = static_cast<torch::optim::AdamParamState&>(*twins.optimizer().state().begin()->second);
    EXPECT_EQ(state.exp_avg().strides(), (Sizes{27, 1, 9, 3}));
    EXPECT_EQ(state.exp_avg_sq().strides(), (Sizes{27, 1, 9, 3}));
  }
}

TEST(BugBank, FMT_3_TheGradientOfABroadcastParameterKeepsItsDims) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({1, 253, 1, 1}));
    return Trainer{module, sgd({w}, 0.1), [w](const at::Tensor& h) { return (h / h.sum(1, true) * w).sum(); }};
  });
  torch::manual_seed(1);
  const auto h = torch::rand({64, 253, 6, 6}) + 0.1;
  ASSERT_TRUE(twins.warm_up(h)) << twins.report().to_string();
  twins.compiled_step(h);
  EXPECT_EQ(twins.gradient("w").sizes(), (Sizes{1, 253, 1, 1}));
  EXPECT_EQ(twins.gradient("w").strides(), (Sizes{253, 1, 1, 1}));
}

}  // namespace
}  // namespace tandem::test
