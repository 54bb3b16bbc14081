// Sizes that change, memory over many steps, threads, and what compiling costs.
#include "bench/support/counting_allocator.h"
#include "tests/support/bugbank.h"

#include <thread>

namespace tandem::test {
namespace {

namespace nn = torch::nn;

TEST(BugBank, DYN_1_TheDivisorIsTheStepsOwn) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones(1));
    return Trainer{module, sgd({w}, 0), [w](const at::Tensor& x) { return (x * w).mean(); }};
  });
  for (int round = 0; round < 4; round++)
    for (const auto& [n, expected] : std::vector<std::pair<int, double>>{{4, 2.5}, {4, 2.5}, {3, 2}, {4, 2.5}, {1, 1}}) {
      twins.step(torch::arange(1, n + 1).to(at::kFloat));
      EXPECT_EQ(far(twins.gradient("w"), {expected}, 1e-6), "") << n << " numbers in round " << round;
    }
  EXPECT_TRUE(twins.report().active) << twins.report().to_string();
}

TEST(BugBank, DYN_1_ARaggedBatchNeedsNoMoreMemoryThanAFullOne) {
  Twins twins([] {
    torch::manual_seed(1);
    nn::Linear head(16, 2000);
    return Trainer{head.ptr(), sgd(head->parameters(), 0.1),
                   [m = head.get()](const at::Tensor& x, const at::Tensor& y) { return torch::cross_entropy_loss(m->forward(x), y); }};
  });
  for (int round = 0; round < 5; round++)
    for (const int rows : {32, 32, 20, 32}) twins.step(torch::randn({rows, 16}), torch::randint(2000, {rows}, at::kLong));
  std::int64_t full = 0, ragged = 0;
  for (const auto& plan : twins.report().plans) {
    EXPECT_TRUE(plan.active) << plan.guard << ": " << plan.reason;
    (plan.guard.find("[32, 16]") != std::string::npos ? full : ragged) = plan.compiled_peak_bytes;
  }
  EXPECT_EQ(twins.report().plans.size(), 2u);
  EXPECT_GT(ragged, 0);
  EXPECT_LE(ragged, full);
}

auto convolution_trainer() {
  torch::manual_seed(1);
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)), nn::ReLU(), nn::AdaptiveAvgPool2d(1), nn::Flatten(),
                     nn::Linear(4, 3));
  auto optimizer = sgd(net->parameters(), 0.05, 0.9);
  return Trainer{net.ptr(), std::move(optimizer), [net](const at::Tensor& x) mutable { return net->forward(x).square().mean(); }};
}

TEST(BugBank, MEM_4_SizesThatComeInTurnAreAsEagerAndBounded) {
  Twins twins(convolution_trainer, {.keep_grads = true, .shadow_every = 1000, .max_plans = 4});
  for (int s = 0; s < 60; s++) {
    const int side = 4 + s % 10;
    twins.step(torch::randn({2, 2, side, side}));
    EXPECT_LE(twins.report().plans.size(), 4u);
  }
}

TEST(BugBank, MEM_4_MemoryIsFlatAfterTheFirstRounds) {
  auto& counter = bench::CountingAllocator::install();
  for (const int max_plans : {4, 16}) {
    auto trainer = convolution_trainer();
    TrainStep step(trainer.module, *trainer.optimizer, trainer.loss, as_tested({.shadow_every = 1000, .max_plans = max_plans}));
    const auto cycle = [&] {
      for (int side = 4; side < 14; side++) step(torch::ones({2, 2, side, side}));
    };
    for (int n = 0; n < 8; n++) cycle();
    const auto before = counter.live_bytes();
    for (int n = 0; n < 12; n++) cycle();
    EXPECT_LE(counter.live_bytes(), before) << max_plans << " plans";
  }
}

TEST(BugBank, MEM_2_ACompiledPeakIsNotAboveEagers) {
  torch::manual_seed(1);
  nn::Sequential net;
  for (int i = 0; i < 5; i++) {
    net->push_back(nn::Linear(128, 128));
    net->push_back(nn::LayerNorm(nn::LayerNormOptions({128})));
    net->push_back(nn::GELU());
  }
  const auto optimizer = sgd(net->parameters(), 0.01);
  TrainStep step(
      net, *optimizer, [net](const at::Tensor& x) mutable { return net->forward(x).square().mean(); }, as_tested({}));
  for (int s = 0; s < 6; s++) step(torch::randn({64, 128}));
  const auto plan = step.report().plans.back();
  ASSERT_TRUE(plan.active) << plan.reason;
  EXPECT_GT(plan.compiled_peak_bytes, 0);
  EXPECT_LE(plan.compiled_peak_bytes, plan.eager_peak_bytes);
}

TEST(BugBank, DBL_2_TheSameBufferInBothSlots) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones(4));
    return Trainer{module, sgd({w}, 0), [w](const at::Tensor& x, const at::Tensor& y) {
                     x.mul_(3);
                     const auto sum = (x + y) * w;
                     return std::make_pair(sum.sum(), sum);
                   }};
  });
  bool compiled = false;
  for (int s = 0; s < 6; s++) {
    const auto mine = torch::ones(4), eagers = torch::ones(4);
    const auto outcome = twins.step_each({mine, mine}, {eagers, eagers});
    compiled = outcome.compiled;
    EXPECT_EQ(far(outcome.returned[1], {6, 6, 6, 6}), "");
    EXPECT_EQ(far(mine, {3, 3, 3, 3}), "");
  }
  EXPECT_TRUE(compiled) << twins.report().to_string();
}

TEST(BugBank, GRD_2_WarmUpWithoutGradientsThenTraining) {
  Twins twins([] {
    nn::Linear linear(2, 1);
    const at::NoGradGuard no_grad;
    linear->weight.fill_(1);
    linear->bias.fill_(0);
    return Trainer{linear.ptr(), sgd(linear->parameters(), 0), [m = linear.get()](const at::Tensor& x) { return m->forward(x).sum(); }};
  });
  const auto x = torch::ones({1, 2});
  bool compiled = false;
  for (int s = 0; s < 6; s++) {
    twins.for_both([&](nn::Module& m, torch::optim::Optimizer&) {
      const at::NoGradGuard no_grad;
      EXPECT_FALSE(m.as<nn::Linear>()->forward(x).requires_grad());
    });
    compiled = twins.step(x).compiled;
    EXPECT_EQ(far(twins.gradient("weight"), {1, 1}), "");
  }
  EXPECT_TRUE(compiled) << twins.report().to_string();
  at::Tensor inference;
  {
    const c10::InferenceMode on;
    inference = torch::ones({1, 2});
  }
  EXPECT_NE(twins.step(inference).error.find("Inference tensors cannot be saved for backward"), std::string::npos);
  twins.compiled_step(x);
}

/// A model of its own, trained for 200 steps; the parameters afterwards.
std::vector<at::Tensor> trained_alone(int width) {
  static std::mutex seeding;
  nn::Sequential net{nullptr};
  {
    const std::lock_guard<std::mutex> lock(seeding);
    torch::manual_seed(width);
    net = nn::Sequential(nn::Linear(6, width), nn::Tanh(), nn::Linear(width, 3));
  }
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-2));
  TrainStep step(
      net, optimizer, [net](const at::Tensor& x) mutable { return net->forward(x).square().mean(); }, as_tested({.shadow_every = 50}));
  auto generator = at::detail::createCPUGenerator(std::uint64_t(width));
  for (int s = 0; s < 200; s++) step(torch::randn({5, 6}, generator));
  EXPECT_TRUE(step.report().active) << step.report().to_string();
  return net->parameters();
}

TEST(BugBank, THR_1_TwoModelsInTwoThreadsAreAsEachAlone) {
  std::vector<std::vector<at::Tensor>> alone{trained_alone(7), trained_alone(12)}, together(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; t++) threads.emplace_back([&, t] { together[std::size_t(t)] = trained_alone(t == 0 ? 7 : 12); });
  for (auto& t : threads) t.join();
  for (std::size_t t = 0; t < 2; t++)
    for (std::size_t i = 0; i < alone[t].size(); i++)
      EXPECT_TRUE(torch::equal(together[t][i], alone[t][i])) << "model " << t << ", parameter " << i;
}

TEST(BugBank, CMP_1_ACompiledTinyStepIsNotSlowerAndItsCostIsTold) {
  torch::manual_seed(1);
  nn::Sequential net(nn::Linear(20, 64), nn::ReLU(), nn::Linear(64, 5));
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3)),
      eagers(net->parameters(), torch::optim::AdamOptions(1e-3));
  const auto loss = [net](const at::Tensor& x) mutable { return net->forward(x).square().mean(); };
  TrainStep step(net, optimizer, loss, as_tested({.shadow_every = 1000})), eager(net, eagers, loss, {.compile = false});
  const auto x = torch::randn({32, 20});
  for (int s = 0; s < 300; s++) {
    step(x);
    eager(x);
  }
  const auto report = step.report();
  ASSERT_TRUE(report.active) << report.to_string();
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they slow our side down alone
  EXPECT_LT(report.compiled_ms, eager.report().eager_ms);
#endif
  EXPECT_GT(report.plans.back().record_ms, 0);
  EXPECT_GT(report.plans.back().check_ms, 0);
}

}  // namespace
}  // namespace tandem::test
