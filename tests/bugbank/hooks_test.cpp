// Hooks on parameters and on tensors inside the loss; host reads inside the loss; inputs that are overwritten before backward.
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

using Counter = std::shared_ptr<int>;

TEST(BugBank, HOK_1_AParameterHookRunsOnceForBothUses) {
  std::vector<Counter> calls;
  Twins twins([&] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({}));
    calls.push_back(std::make_shared<int>(0));
    w.register_hook([n = calls.back()](const at::Tensor& g) {
      ++*n;
      return g * 10;
    });
    return Trainer{module, sgd({w}, 0), [=] { return w * 2 + w * 3; }};
  });
  for (int s = 1; s <= 6; s++) {
    twins.step();
    EXPECT_EQ(far(twins.gradient("w"), {50}), "") << "the hook sees the sum of both uses";
    for (const auto& n : calls) EXPECT_EQ(*n, s);
  }
}

TEST(BugBank, HOK_2_RetainedGradientOfAnIntermediateWithAHook) {
  std::vector<std::shared_ptr<at::Tensor>> kept;
  Twins twins([&] {
    auto module = bag();
    const auto z = module->register_parameter("z", torch::ones({}));
    kept.push_back(std::make_shared<at::Tensor>());
    return Trainer{module, sgd({z}, 0), [z, last = kept.back()] {
                     auto h = z * 2;
                     h.retain_grad();
                     h.register_hook([](const at::Tensor& g) { return g + 1; });
                     *last = h;
                     return h * h;
                   }};
  });
  for (int s = 1; s <= 6; s++) {
    twins.step();
    EXPECT_EQ(far(twins.gradient("z"), {10}), "");
    for (const auto& h : kept) EXPECT_EQ(far(h->grad(), {5}), "") << "step " << s;
  }
}

TEST(BugBank, BN_2_CumulativeMomentum) {
  Twins twins([] {
    torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(1).momentum(std::nullopt));
    return Trainer{norm.ptr(), sgd(norm->parameters(), 0.1), [m = norm.get()](const at::Tensor& x) { return m->forward(x).pow(2).sum(); }};
  });
  for (int s = 1; s <= 8; s++) {
    twins.step(torch::tensor({{float(s)}, {float(s + 2)}}));
    EXPECT_EQ(far(twins.buffer("running_mean"), {1.5 + 0.5 * s}, 1e-6), "") << "step " << s;
    EXPECT_EQ(far(twins.buffer("running_var"), {2}, 1e-6), "");
    EXPECT_EQ(far(twins.buffer("num_batches_tracked"), {double(s)}), "");
  }
}

TEST(BugBank, BRK_1_TheLossIsReadInTheMiddleOfTheStep) {
  std::vector<std::shared_ptr<std::vector<double>>> reads;
  Twins twins([&] {
    torch::manual_seed(2);
    auto module = bag();
    torch::nn::BatchNorm1d norm(3);
    torch::nn::Linear linear(3, 1);
    module->register_module("norm", norm);
    module->register_module("linear", linear);
    reads.push_back(std::make_shared<std::vector<double>>());
    return Trainer{module, sgd(module->parameters(), 0.1, 0.9), [=, seen = reads.back()](const at::Tensor& x) mutable {
                     const auto loss = torch::dropout(linear(norm(x)), 0.3, true).pow(2).mean();
                     seen->push_back(loss.item<double>());
                     return loss;
                   }};
  });
  torch::manual_seed(3);
  for (int s = 1; s <= 8; s++) {
    const auto x = torch::randn({6, 3});
    const auto outcome = twins.step(x);
    for (const auto& seen : reads) ASSERT_EQ(seen->size(), std::size_t(s)) << "the closure runs once a step";
    EXPECT_NEAR(reads[0]->back(), outcome.returned[0].item<double>(), 1e-9) << "what was read is this step's loss";
    EXPECT_EQ(far(twins.buffer("norm.num_batches_tracked"), {double(s)}), "");
  }
}

template <class F>
void without_grad(F f) {
  const at::NoGradGuard no_grad;
  f();
}

/// The product x w, whose operand is written by `spoil` before its backward.
template <class Spoil>
void expect_throws_in_backward(std::vector<std::int64_t> sizes, Spoil spoil) {
  Twins twins([=] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({3, 3}));
    return Trainer{module, sgd({w}, 0.1), [=](const at::Tensor& x) {
                     const auto y = x.dim() == 2 ? x.matmul(w) : torch::linear(x, w);
                     without_grad([&] { spoil(x, w); });
                     return y.sum();
                   }};
  });
  for (int s = 0; s < 6; s++) {
    const auto error = twins.step_each({torch::ones(sizes)}, {torch::ones(sizes)}).error;
    EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
  }
}

TEST(BugBank, VIEW_4_AnInputThatIsOverwrittenBeforeBackwardThrows) {
  const auto next_batch = [](const at::Tensor& x, const at::Tensor&) { x.copy_(torch::full_like(x, 7)); };
  expect_throws_in_backward({2, 3}, next_batch);
  expect_throws_in_backward({2, 2, 3}, next_batch);
}

TEST(BugBank, VIEW_4_AWeightThatIsOverwrittenBeforeBackwardThrows) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({3, 3})), v = module->register_parameter("v", torch::ones({3, 3}));
    return Trainer{module, sgd({w, v}, 0.1), [=](const at::Tensor& x) {
                     const auto y = (x * v.sum()).matmul(w);
                     without_grad([&] { w.mul_(2); });
                     return y.sum();
                   }};
  });
  for (int s = 0; s < 6; s++) {
    const auto error = twins.step(torch::ones({2, 3})).error;
    EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
  }
}

TEST(BugBank, VIEW_4_WithoutAWriteNothingThrows) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({3, 3}));
    return Trainer{module, sgd({w}, 0.1), [=](const at::Tensor& x) { return x.matmul(w).sum(); }};
  });
  bool compiled = false;
  for (int s = 0; s < 6; s++) {
    const auto outcome = twins.step(torch::ones({2, 3}));
    EXPECT_EQ(outcome.error, "");
    compiled = outcome.compiled;
  }
  EXPECT_TRUE(compiled) << twins.report().to_string();
}

}  // namespace
}  // namespace tandem::test
