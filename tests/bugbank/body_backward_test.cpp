// Bodies with several backward calls, several optimizers, and inputs that are overwritten.
#include "tests/support/bodies.h"

namespace tandem::test {
namespace {

std::shared_ptr<torch::optim::Optimizer> shared_sgd(std::vector<at::Tensor> p, double lr = 0, double momentum = 0) {
  return std::shared_ptr<torch::optim::Optimizer>(sgd(std::move(p), lr, momentum));
}

TEST(BugBankBody, VIEW_4_AnInputThatIsOverwrittenBeforeBackwardThrows) {
  for (const bool cube : {false, true}) {
    BodyTwins twins([] {
      auto module = bag();
      const auto w = module->register_parameter("w", torch::ones({3, 3}));
      return Loop{module, {shared_sgd({w}, 0.1)}, [=](const Inputs& in) -> Inputs {
                    w.mutable_grad() = at::Tensor();
                    const auto y = in[0].dim() == 2 ? in[0].matmul(w) : torch::linear(in[0], w);
                    in[0].copy_(in[1]);
                    y.sum().backward();
                    return {};
                  }};
    });
    const auto x = cube ? torch::ones({2, 2, 3}) : torch::ones({2, 3});
    for (int s = 0; s < 6; s++) {
      const auto error = twins.step(x, x * 2).error;
      EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
      EXPECT_FALSE(twins.gradient("w").defined());
    }
  }
}

TEST(BugBankBody, VIEW_4_AWeightThatIsOverwrittenBeforeBackwardThrows) {
  BodyTwins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({3, 3})), v = module->register_parameter("v", torch::ones({3, 3}));
    return Loop{module, {shared_sgd({w, v})}, [=](const Inputs& in) -> Inputs {
                  const auto y = (in[0] * v.sum()).matmul(w);
                  {
                    const at::NoGradGuard no_grad;
                    w.mul_(2);
                  }
                  y.sum().backward();
                  return {};
                }};
  });
  for (int s = 0; s < 6; s++) EXPECT_NE(twins.step(torch::ones({2, 3})).error.find("modified by an inplace operation"), std::string::npos);
}

/// loss = w^3 with w = 2; backward as often as the input has elements, the graph kept until the last but one.
auto cube_loop() {
  return [] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::full({}, 2.));
    return Loop{module, {shared_sgd({w})}, [w](const Inputs& in) -> Inputs {
                  w.mutable_grad() = at::Tensor();
                  const auto loss = w.pow(3);
                  loss.backward({}, /*retain_graph=*/true);
                  loss.backward();
                  if (in[0].size(0) == 3) loss.backward();
                  return {loss};
                }};
  };
}

TEST(BugBankBody, RET_1_TwoBackwardsThroughARetainedGraph) {
  BodyTwins twins(cube_loop());
  twins.activate(torch::ones(2));
  for (int s = 0; s < 3; s++) {
    twins.compiled_step(torch::ones(2));
    EXPECT_EQ(far(twins.gradient("w"), {24}), "");
  }
}

TEST(BugBankBody, RET_1_AThirdBackwardThrowsAndLeavesTheGradient) {
  BodyTwins twins(cube_loop());
  for (int s = 0; s < 6; s++) {
    EXPECT_NE(twins.step(torch::ones(3)).error.find("backward through the graph a second time"), std::string::npos);
    EXPECT_EQ(far(twins.gradient("w"), {24}), "");
  }
}

TEST(BugBankBody, RET_2_ADetachedPassThenAnAttachedOne) {
  std::vector<std::shared_ptr<bool>> early;
  BodyTwins twins([&] {
    auto module = bag();
    const auto g = module->register_parameter("g", torch::full({}, 2.)), d = module->register_parameter("d", torch::full({}, 3.));
    const auto optimizer_g = shared_sgd({g}), optimizer_d = shared_sgd({d});
    early.push_back(std::make_shared<bool>(true));
    return Loop{module, {optimizer_g, optimizer_d}, [=, defined = early.back()](const Inputs&) -> Inputs {
                  optimizer_g->zero_grad();
                  optimizer_d->zero_grad();
                  const auto fake = g * 5;
                  (fake.detach() * d).backward();
                  *defined = g.grad().defined();
                  const auto after_first = d.grad().clone();
                  (fake * d).backward();
                  optimizer_g->step();
                  optimizer_d->step();
                  return {fake, after_first};
                }};
  });
  twins.activate();
  for (int s = 0; s < 3; s++) {
    EXPECT_EQ(far(twins.compiled_step().returned[1], {10}), "");
    for (const auto& defined : early) EXPECT_FALSE(*defined);
    EXPECT_EQ(far(twins.gradient("g"), {15}), "");
    EXPECT_EQ(far(twins.gradient("d"), {20}), "");
  }
}

TEST(BugBankBody, RET_2_AStepInPlaceBeforeTheBackwardThatNeedsItThrows) {
  BodyTwins twins([] {
    auto module = bag();
    const auto g = module->register_parameter("g", torch::full({}, 2.)), d = module->register_parameter("d", torch::full({}, 3.));
    return Loop{module, {shared_sgd({g, d})}, [=](const Inputs&) -> Inputs {
                  const auto out = g * 5 * d;
                  {
                    const at::NoGradGuard no_grad;
                    d.add_(1);
                  }
                  out.backward();
                  return {out};
                }};
  });
  for (int s = 0; s < 6; s++) EXPECT_NE(twins.step().error.find("modified by an inplace operation"), std::string::npos);
}

TEST(BugBankBody, RET_2_AGanWithTwoOptimizers) {
  BodyTwins twins([] {
    torch::manual_seed(8);
    auto module = bag();
    torch::nn::Sequential g(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 4));
    torch::nn::Sequential d(torch::nn::Linear(4, 8), torch::nn::LeakyReLU(), torch::nn::Linear(8, 1));
    module->register_module("g", g);
    module->register_module("d", d);
    const std::shared_ptr<torch::optim::Optimizer> optimizer_g(adam(g->parameters(), 1e-3)), optimizer_d(adam(d->parameters(), 1e-3));
    return Loop{module, {optimizer_g, optimizer_d}, [=](const Inputs& in) mutable -> Inputs {
                  const auto ones = torch::ones({in[0].size(0), 1}), zeros = torch::zeros({in[0].size(0), 1});
                  const auto fake = g->forward(in[1]);
                  optimizer_d->zero_grad();
                  const auto loss_d = torch::binary_cross_entropy_with_logits(d->forward(in[0]), ones) +
                                      torch::binary_cross_entropy_with_logits(d->forward(fake.detach()), zeros);
                  loss_d.backward();
                  optimizer_d->step();
                  optimizer_g->zero_grad();
                  const auto loss_g = torch::binary_cross_entropy_with_logits(d->forward(fake), ones);
                  loss_g.backward();
                  optimizer_g->step();
                  return {loss_g, loss_d};
                }};
  });
  bool compiled = false;
  for (int s = 0; s < 10; s++) compiled = twins.step(torch::randn({6, 4}), torch::randn({6, 3})).compiled;
  EXPECT_TRUE(compiled) << twins.report().to_string();
}

TEST(BugBankBody, RET_3_OneBackwardForEachPart) {
  BodyTwins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones(3));
    return Loop{module, {shared_sgd({w})}, [w](const Inputs&) -> Inputs {
                  w.mutable_grad() = at::Tensor();
                  for (const auto& part : (w * 2).unbind(0)) part.backward();
                  return {};
                }};
  });
  twins.activate();
  for (int s = 0; s < 3; s++) {
    twins.compiled_step();
    EXPECT_EQ(far(twins.gradient("w"), {2, 2, 2}), "");
  }
}

TEST(BugBankBody, RET_3_APartWhoseGraphIsGoneThrows) {
  BodyTwins twins([] {
    auto module = bag();
    const auto v = module->register_parameter("v", torch::ones(3));
    return Loop{module, {shared_sgd({v})}, [v](const Inputs&) -> Inputs {
                  v.mutable_grad() = at::Tensor();
                  const auto parts = (v * v).unbind(0);
                  parts[0].backward();
                  parts[1].backward();
                  return {};
                }};
  });
  for (int s = 0; s < 6; s++) {
    EXPECT_FALSE(twins.step().error.empty());
    EXPECT_EQ(far(twins.gradient("v"), {2, 0, 0}), "");
  }
}

TEST(BugBankBody, ACC_1_FourMicroBatchesInOneBody) {
  BodyTwins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({}));
    const auto optimizer = shared_sgd({w});
    return Loop{module, {optimizer}, [=](const Inputs& in) -> Inputs {
                  optimizer->zero_grad();
                  at::Tensor handle;
                  for (int m = 0; m < 4; m++) {
                    (w * in[0][m] / 4).backward();
                    if (m == 0) handle = w.grad();
                  }
                  optimizer->step();
                  return {handle.clone()};
                }};
  });
  const auto m = torch::tensor({1.f, 2.f, 3.f, 4.f});
  twins.activate(m);
  for (int s = 0; s < 3; s++) {
    EXPECT_EQ(far(twins.compiled_step(m).returned[0], {2.5}), "") << "a handle from the first micro-batch";
    EXPECT_EQ(far(twins.gradient("w"), {2.5}), "");
  }
}

TEST(BugBankBody, ACC_1_FourCallsWithoutZeroGrad) {
  BodyTwins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({}));
    return Loop{module, {shared_sgd({w})}, [w](const Inputs& in) -> Inputs {
                  const auto loss = (w * in[0] / 4).sum();
                  loss.backward();
                  return {loss};
                }};
  });
  for (int round = 0; round < 4; round++) {
    twins.for_both([](Loop& l) { l.module->parameters()[0].mutable_grad() = at::Tensor(); });
    at::Tensor handle;
    for (int m = 1; m <= 4; m++) {
      twins.step(torch::full({}, double(m)));
      if (m == 1) handle = twins.gradient("w");
      EXPECT_TRUE(twins.gradient("w").is_alias_of(handle)) << "the gradient keeps its memory";
      EXPECT_EQ(far(handle, {m * (m + 1) / 8.}), "");
    }
  }
}

}  // namespace
}  // namespace tandem::test
