// Tied weights, unused parameters, detach.
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

/// An embedding whose weight is the output layer's too; the optimizer lists it `times` times.
auto tied_trainer(int times) {
  return [=] {
    auto module = bag();
    const auto w = module->register_parameter("W", torch::tensor({{1.f, 0.f}, {0.f, 1.f}, {1.f, 1.f}}));
    return Trainer{module, sgd(std::vector<at::Tensor>(times, w), 0.1),
                   [w](const at::Tensor& ids) { return torch::embedding(w, ids).mm(w.t()).sum(); }};
  };
}

TEST(BugBank, TIE_1_BothUsesOfATiedWeightAreSummedOnce) {
  Twins twins(tied_trainer(1));
  const auto ids = torch::tensor({0, 2}, at::kLong);
  ASSERT_TRUE(twins.warm_up(ids)) << twins.report().to_string();
  twins.compiled_step(ids);
  EXPECT_EQ(far(twins.gradient("W"), {4, 3, 2, 1, 4, 3}), "");
  EXPECT_EQ(far(twins.parameter("W"), {0.6, -0.3, -0.2, 0.9, 0.6, 0.7}, 1e-6), "");
}

TEST(BugBank, TIE_1_AWeightListedTwiceIsUpdatedTwice) {
  Twins twins(tied_trainer(2));
  const auto ids = torch::tensor({0, 2}, at::kLong);
  ASSERT_TRUE(twins.warm_up(ids)) << twins.report().to_string();
  twins.compiled_step(ids);
  EXPECT_EQ(far(twins.gradient("W"), {4, 3, 2, 1, 4, 3}), "");
  EXPECT_EQ(far(twins.parameter("W"), {0.2, -0.6, -0.4, 0.8, 0.2, 0.4}, 1e-6), "");
}

TEST(BugBank, TIE_1_AdamOnAWeightListedTwice) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("W", torch::tensor({{1.f, 0.f}, {0.f, 1.f}, {1.f, 1.f}}));
    return Trainer{module, adam({w, w}, 0.1), [w](const at::Tensor& ids) { return torch::embedding(w, ids).mm(w.t()).sum(); }};
  });
  const auto ids = torch::tensor({0, 2}, at::kLong);
  for (int s = 0; s < 7; s++) twins.step(ids);
}

struct TiedByAssignment : torch::nn::Module {
  TiedByAssignment() {
    register_module("embedding", embedding);
    register_module("linear", linear);
    linear->weight = embedding->weight;
  }
  torch::nn::Embedding embedding{3, 2};
  torch::nn::Linear linear{torch::nn::LinearOptions(2, 3).bias(false)};
};

TEST(BugBank, TIE_2_TyingByAssignmentLeavesAnOrphan) {
  Twins twins([] {
    torch::manual_seed(5);
    auto module = std::make_shared<TiedByAssignment>();
    auto optimizer = sgd(module->parameters(), 0.1, 0.9);
    return Trainer{module, std::move(optimizer), [m = module.get()](const at::Tensor& ids, const at::Tensor& labels) {
                     return torch::cross_entropy_loss(m->linear(m->embedding(ids)), labels);
                   }};
  });
  const auto ids = torch::tensor({0, 2, 1}, at::kLong), labels = torch::tensor({1, 0, 2}, at::kLong);
  ASSERT_TRUE(twins.warm_up(ids, labels)) << twins.report().to_string();
  const auto orphan = twins.parameter("linear.weight").clone(), tied = twins.parameter("embedding.weight").clone();
  for (int s = 0; s < 3; s++) {
    twins.compiled_step(ids, labels);
    EXPECT_FALSE(twins.gradient("linear.weight").defined());
    EXPECT_EQ(difference(twins.parameter("linear.weight"), orphan), "");
  }
  EXPECT_NE(difference(twins.parameter("embedding.weight"), tied), "");
  EXPECT_NE(difference(orphan, tied), "");
}

TEST(BugBank, TIE_2_ALeafThatNobodyListsKeepsAccumulating) {
  std::vector<at::Tensor> strangers;  // the plan's, then eager's
  Twins twins([&] {
    auto module = bag();
    const auto p = module->register_parameter("p", torch::ones(2));
    const auto stranger = strangers.emplace_back(torch::ones(2).requires_grad_(true));
    return Trainer{module, sgd({p}, 0.1, 0.9), [p, stranger] { return std::make_pair((p * stranger).sum(), stranger * 1); }};
  });
  bool compiled = false;
  for (int s = 0; s < 7; s++) {
    const auto result = twins.step();
    EXPECT_EQ(far(result.returned[1], {1, 1}), "");
    EXPECT_EQ(difference(strangers[0].grad(), strangers[1].grad()), "") << "step " << s + 1;
    compiled = result.compiled;
  }
  EXPECT_TRUE(compiled) << twins.report().to_string();
}

/// loss = 2a, and 3b as a further output where `with_output`.
auto unused_trainer(bool with_output) {
  return [=] {
    auto module = bag();
    const auto a = module->register_parameter("a", torch::ones({})), b = module->register_parameter("b", torch::ones({}));
    return Trainer{module, sgd({a, b}, 0.1, 0.9), [=] {
                     std::vector<at::Tensor> out{a * 2};
                     if (with_output) out.push_back(b * 3);
                     return out;
                   }};
  };
}

TEST(BugBank, UNU_1_AnOutputWithoutBackwardLeavesItsGradientUndefined) {
  Twins twins(unused_trainer(true)), without(unused_trainer(false));
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  ASSERT_TRUE(without.warm_up()) << without.report().to_string();
  for (int s = 0; s < 3; s++) {
    EXPECT_EQ(far(twins.compiled_step().returned[1], {3}), "");
    EXPECT_EQ(far(twins.gradient("a"), {2}), "");
    EXPECT_FALSE(twins.gradient("b").defined());
  }
  const auto backward_nodes = [](const auto& of) { return of.report().plans.back().nodes_backward; };
  EXPECT_GT(backward_nodes(twins), 0);
  EXPECT_EQ(backward_nodes(twins), backward_nodes(without)) << "work for a gradient that nobody asked for";
}

TEST(BugBank, UNU_1_ATermTimesZeroHasADefinedGradient) {
  Twins twins([] {
    auto module = bag();
    const auto a = module->register_parameter("a", torch::ones({})), c = module->register_parameter("c", torch::ones({}));
    return Trainer{module, sgd({a, c}, 0.1, 0.9), [=] { return a * 2 + c * 0; }};
  });
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  twins.compiled_step();
  EXPECT_EQ(far(twins.gradient("a"), {2}), "");
  EXPECT_EQ(far(twins.gradient("c"), {0}), "");
}

TEST(BugBank, DET_1_StraightThroughEstimator) {
  Twins twins([] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::tensor({0.3f, 1.7f}));
    return Trainer{module, sgd({x}, 0.1), [x] {
                     const auto y = x + (x.round() - x).detach();
                     return std::make_pair(y.sum(), y);
                   }};
  });
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  const auto result = twins.compiled_step();
  EXPECT_EQ(far(result.returned[1], {0, 2}), "");
  EXPECT_EQ(far(twins.gradient("x"), {1, 1}), "");
  twins.compiled_step();
}

}  // namespace
}  // namespace tandem::test
