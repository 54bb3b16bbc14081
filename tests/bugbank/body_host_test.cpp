// Bodies whose host code reads, branches, counts and hooks.
#include "tests/support/bodies.h"

namespace tandem::test {
namespace {

std::shared_ptr<torch::optim::Optimizer> shared_sgd(std::vector<at::Tensor> p, double lr = 0, double momentum = 0) {
  return std::shared_ptr<torch::optim::Optimizer>(sgd(std::move(p), lr, momentum));
}

TEST(BugBankBody, BRK_1_TheLossIsReadInTheMiddleOfTheStep) {
  std::vector<std::shared_ptr<std::vector<double>>> reads;
  BodyTwins twins([&] {
    torch::manual_seed(2);
    auto module = bag();
    torch::nn::BatchNorm1d norm(3);
    torch::nn::Linear linear(3, 1);
    module->register_module("norm", norm);
    module->register_module("linear", linear);
    const auto optimizer = shared_sgd(module->parameters(), 0.1, 0.9);
    reads.push_back(std::make_shared<std::vector<double>>());
    return Loop{module, {optimizer}, [=, seen = reads.back()](const Inputs& in) mutable -> Inputs {
                  optimizer->zero_grad();
                  const auto loss = torch::dropout(linear(norm(in[0])), 0.3, true).pow(2).mean();
                  seen->push_back(loss.item<double>());
                  loss.backward();
                  optimizer->step();
                  return {loss};
                }};
  });
  torch::manual_seed(3);
  bool compiled = false;
  for (int s = 1; s <= 10; s++) {
    const auto outcome = twins.step(torch::randn({6, 3}));
    compiled = outcome.compiled;
    for (const auto& seen : reads) ASSERT_EQ(seen->size(), std::size_t(s)) << "the body runs once a step";
    EXPECT_EQ(reads[0]->back(), outcome.returned[0].item<double>()) << "what was read is this step's loss";
    EXPECT_EQ(far(twins.buffer("norm.num_batches_tracked"), {double(s)}), "");
  }
  EXPECT_TRUE(compiled) << twins.report().to_string();
  EXPECT_FALSE(twins.report().plans.back().breaks.empty()) << "a break is reported";
}

/// loss = sum(w x), so that the gradient is x; then the norm is clipped.
auto clipped_loop(std::vector<std::shared_ptr<double>>& norms, bool strict) {
  return [&norms, strict] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones(2));
    const auto optimizer = shared_sgd({w});
    norms.push_back(std::make_shared<double>(-1));
    return Loop{module, {optimizer}, [=, norm = norms.back()](const Inputs& in) -> Inputs {
                  optimizer->zero_grad();
                  const auto loss = (w * in[0]).sum();
                  loss.backward();
                  *norm = torch::nn::utils::clip_grad_norm_(std::vector<at::Tensor>{w}, 1, 2, strict);
                  optimizer->step();
                  return {loss};
                }};
  };
}

TEST(BugBankBody, BRK_2_ClippingBetweenBackwardAndStep) {
  std::vector<std::shared_ptr<double>> norms;
  BodyTwins twins(clipped_loop(norms, false));
  const auto large = torch::tensor({3.f, 4.f}), small = torch::tensor({0.03f, 0.04f}), infinite = torch::tensor({HUGE_VALF, 1.f});
  twins.activate(large);
  for (int round = 0; round < 2; round++) {
    twins.compiled_step(large);
    for (const auto& n : norms) EXPECT_NEAR(*n, 5, 1e-6);
    EXPECT_EQ(far(twins.gradient("w"), {0.6, 0.8}, 1e-6), "");
    twins.compiled_step(small);
    for (const auto& n : norms) EXPECT_NEAR(*n, 0.05, 1e-8);
    EXPECT_EQ(far(twins.gradient("w"), {0.03, 0.04}, 1e-8), "");
    twins.compiled_step(infinite);
    for (const auto& n : norms) EXPECT_EQ(*n, HUGE_VAL);
    EXPECT_EQ(far(twins.gradient("w"), {NAN, 0}), "");
  }
}

TEST(BugBankBody, BRK_2_ANormThatIsNotFiniteThrowsWhereAsked) {
  std::vector<std::shared_ptr<double>> norms;
  BodyTwins twins(clipped_loop(norms, true));
  twins.activate(torch::tensor({3.f, 4.f}));
  for (int round = 0; round < 2; round++) {
    EXPECT_NE(twins.step(torch::tensor({HUGE_VALF, 1.f})).error.find("non-finite"), std::string::npos);
    EXPECT_EQ(far(twins.gradient("w"), {HUGE_VAL, 1}), "");
    twins.step(torch::tensor({3.f, 4.f}));
    EXPECT_EQ(far(twins.gradient("w"), {0.6, 0.8}, 1e-6), "");
  }
}

TEST(BugBankBody, BN_2_CumulativeMomentum) {
  BodyTwins twins([] {
    torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(1).momentum(std::nullopt));
    const auto optimizer = shared_sgd(norm->parameters(), 0.1);
    return Loop{norm.ptr(), {optimizer}, [=, m = norm.get()](const Inputs& in) -> Inputs {
                  optimizer->zero_grad();
                  const auto loss = m->forward(in[0]).pow(2).sum();
                  loss.backward();
                  optimizer->step();
                  return {loss};
                }};
  });
  bool compiled = false;
  for (int s = 1; s <= 10; s++) {
    compiled = twins.step(torch::tensor({{float(s)}, {float(s + 2)}})).compiled;
    EXPECT_EQ(far(twins.buffer("running_mean"), {1.5 + 0.5 * s}, 1e-6), "") << "step " << s;
    EXPECT_EQ(far(twins.buffer("running_var"), {2}, 1e-6), "");
  }
  EXPECT_TRUE(compiled) << twins.report().to_string();
}

TEST(BugBankBody, HOK_1_AHookSeesEachBackwardsOwnGradient) {
  std::vector<std::shared_ptr<int>> calls;
  BodyTwins twins([&] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({}));
    calls.push_back(std::make_shared<int>(0));
    w.register_hook([n = calls.back()](const at::Tensor& g) {
      ++*n;
      return g * 10;
    });
    return Loop{module, {shared_sgd({w})}, [w](const Inputs&) -> Inputs {
                  w.mutable_grad() = at::Tensor();
                  (w * 2 + w * 3).backward();
                  const auto first = w.grad().clone();
                  (w * 1).backward();
                  return {first};
                }};
  });
  for (int s = 1; s <= 6; s++) {
    EXPECT_EQ(far(twins.step().returned[0], {50}), "");
    EXPECT_EQ(far(twins.gradient("w"), {60}), "");
    for (const auto& n : calls) EXPECT_EQ(*n, 2 * s);
  }
}

/// Doubles, and counts in a buffer when its backward runs.
struct Counted : torch::autograd::Function<Counted> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& count) {
    context->saved_data["count"] = count;
    return x * 2;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context, torch::autograd::tensor_list g) {
    context->saved_data["count"].toTensor().add_(g[0]);
    return {g[0] * 2, at::Tensor()};
  }
};

TEST(BugBankBody, FUN_2_AWriteThatBelongsToBackward) {
  BodyTwins twins([] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::ones({})), count = module->register_buffer("count", torch::zeros({}));
    return Loop{module, {shared_sgd({x})}, [=](const Inputs& in) -> Inputs {
                  x.mutable_grad() = at::Tensor();
                  count.zero_();
                  Inputs seen;
                  for (int n = 0; n < 2; n++) {
                    const auto y = Counted::apply(x, count);
                    seen.push_back(count.clone());
                    if (in[0].size(0) == 1) y.backward();
                    seen.push_back(count.clone());
                  }
                  return seen;
                }};
  });
  for (int s = 0; s < 6; s++) {
    const auto seen = twins.step(torch::ones(1)).returned;
    EXPECT_EQ(far(torch::stack(seen), {0, 1, 1, 2}), "");
    EXPECT_EQ(far(twins.gradient("x"), {4}), "");
  }
  for (int s = 0; s < 6; s++)
    EXPECT_EQ(far(torch::stack(twins.step(torch::ones(2)).returned), {0, 0, 0, 0}), "") << "without backward the count stays";
}

TEST(BugBankBody, GRD_3_AMemberThatChanges) {
  auto beta = std::make_shared<double>(0);
  auto square = std::make_shared<bool>(false);
  BodyTwins twins([&] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({}));
    return Loop{module, {shared_sgd({w})}, [=](const Inputs&) -> Inputs {
                  w.mutable_grad() = at::Tensor();
                  auto loss = w * 3 + *beta * w * w;
                  if (*square) loss = loss + w * w;
                  loss.backward();
                  return {loss};
                }};
  });
  for (int round = 0; round < 4; round++)
    for (const auto& [b, expected] : std::vector<std::pair<double, double>>{{0, 3}, {1, 5}, {0.5, 4}}) {
      *beta = b;
      twins.step();
      EXPECT_EQ(far(twins.gradient("w"), {expected}), "") << "beta " << b << " in round " << round;
    }
  *beta = 0;
  for (int round = 0; round < 4; round++)
    for (const bool on : {false, true, false}) {
      *square = on;
      twins.step();
      EXPECT_EQ(far(twins.gradient("w"), {on ? 5. : 3.}), "");
    }
}

TEST(BugBankBody, DYN_2_ALoopCountThatChanges) {
  auto count = std::make_shared<int>(1);
  BodyTwins twins([&] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::full({}, 2.));
    return Loop{module, {shared_sgd({w})}, [=](const Inputs&) -> Inputs {
                  w.mutable_grad() = at::Tensor();
                  auto y = torch::ones({});
                  for (int k = 0; k < *count; k++) y = y * w;
                  y.backward();
                  return {y};
                }};
  });
  for (int round = 0; round < 5; round++)
    for (const auto& [k, expected] : std::vector<std::pair<int, double>>{{1, 1}, {3, 12}, {2, 4}}) {
      *count = k;
      twins.step();
      EXPECT_EQ(far(twins.gradient("w"), {expected}), "") << k << " turns in round " << round;
    }
}

TEST(BugBankBody, OPT_1_ALearningRateThatIsSetInTheBody) {
  std::vector<std::shared_ptr<int>> steps;
  BodyTwins twins([&] {
    auto module = bag();
    const auto p = module->register_parameter("p", torch::zeros(1));
    const auto optimizer = shared_sgd({p}, 0.1, 0.9);
    steps.push_back(std::make_shared<int>(0));
    return Loop{module, {optimizer}, [=, n = steps.back()](const Inputs&) -> Inputs {
                  optimizer->zero_grad();
                  p.sum().backward();
                  if (++*n == 3) group<torch::optim::SGDOptions>(*optimizer).lr(0.01);
                  optimizer->step();
                  return {};
                }};
  });
  for (const double expected : {-0.1, -0.29, -0.3171}) {
    twins.step();
    EXPECT_EQ(far(twins.parameter("p"), {expected}, 1e-6), "");
  }
  bool compiled = false;
  for (int s = 0; s < 6; s++) compiled = twins.step().compiled;
  EXPECT_TRUE(compiled) << twins.report().to_string();
}

TEST(BugBankBody, OPT_3_AnAdamWrittenByHandThatReadsItsStepTensor) {
  BodyTwins twins([] {
    auto module = bag();
    const auto p = module->register_parameter("p", torch::zeros(1));
    const auto step = module->register_buffer("step", torch::zeros({})), m = module->register_buffer("m", torch::zeros(1)),
               v = module->register_buffer("v", torch::zeros(1));
    return Loop{module, {}, [=](const Inputs& in) -> Inputs {
                  p.mutable_grad() = at::Tensor();
                  (in[0] * p).sum().backward();
                  const at::NoGradGuard no_grad;
                  step.add_(1);
                  const double t = step.item<double>();
                  const auto g = p.grad();
                  m.mul_(0.9).add_(g, 1 - 0.9);
                  v.mul_(0.999).addcmul_(g, g, 1 - 0.999);
                  p.addcdiv_(m, (v.sqrt() / std::sqrt(1 - std::pow(0.999, t))).add_(1e-8), -0.1 / (1 - std::pow(0.9, t)));
                  return {};
                }};
  });
  const auto q = torch::zeros(1).requires_grad_();
  const auto library = adam({q}, 0.1);
  bool compiled = false;
  for (int s = 1; s <= 10; s++) {
    const auto scale = torch::full({1}, double(s));
    compiled = twins.step(scale).compiled;
    library->zero_grad();
    (scale * q).sum().backward();
    library->step();
    EXPECT_EQ(far(twins.parameter("p"), {q.item<double>()}, 1e-6), "") << "step " << s;
  }
  EXPECT_TRUE(compiled) << twins.report().to_string();
}

TEST(BugBankBody, EXC_1_ABadLabelInTheMiddleOfTheBody) {
  BodyTwins twins([] {
    torch::manual_seed(4);
    auto module = bag();
    torch::nn::BatchNorm1d norm(1);
    torch::nn::Linear linear(1, 3);
    module->register_module("norm", norm);
    module->register_module("linear", linear);
    const auto optimizer = shared_sgd(module->parameters(), 0.1, 0.9);
    return Loop{module, {optimizer}, [=](const Inputs& in) mutable -> Inputs {
                  optimizer->zero_grad();
                  const auto loss = torch::cross_entropy_loss(linear(norm(in[0])), in[1]);
                  loss.backward();
                  optimizer->step();
                  return {loss};
                }};
  });
  const auto x = torch::tensor({{1.f}, {3.f}}), good = torch::tensor({0, 2}, at::kLong), bad = torch::tensor({0, 7}, at::kLong);
  EXPECT_FALSE(twins.step(x, bad).error.empty());
  EXPECT_EQ(far(twins.buffer("norm.running_mean"), {0.2}, 1e-7), "");
  EXPECT_EQ(far(twins.buffer("norm.num_batches_tracked"), {1}), "");
  EXPECT_FALSE(twins.gradient("linear.weight").defined());
  twins.activate(x, good);
  EXPECT_FALSE(twins.step(x, bad).error.empty());
  EXPECT_FALSE(twins.gradient("linear.weight").defined());
  twins.step(x, good);
}

}  // namespace
}  // namespace tandem::test
