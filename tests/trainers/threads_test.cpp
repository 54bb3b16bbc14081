// Several threads: each with a step or a function of its own, or one after another with the same one.
#include "tests/trainers/compile_scenario.h"

#include <torch/nn/utils/clip_grad.h>

#include <future>
#include <thread>

namespace tandem {
namespace {

using test::as_tested;
using test::difference;
using test::Inputs;
using test::leaf;
using test::normal;

/// Runs all at once, each on a thread of its own.
void at_once(const std::vector<std::function<void()>>& works) {
  std::vector<std::thread> threads;
  for (const auto& work : works) threads.emplace_back(work);
  for (auto& t : threads) t.join();
}

template <class F>
void on_another_thread(F&& f) {
  std::thread(std::forward<F>(f)).join();
}

/// Draws nothing: the default generator belongs to all threads.
struct Net : torch::nn::Module {
  Net() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("last", last);
    const at::NoGradGuard no_grad;
    std::uint64_t seed = 0;
    for (auto& p : parameters()) p.copy_(normal(p.sizes(), ++seed));
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::relu(norm(torch::tanh(first(x))))); }
  torch::nn::Linear first{6, 8}, last{8, 4};
  torch::nn::BatchNorm1d norm{8};
};

at::Tensor batch(int i) { return normal({5, 6}, std::uint64_t(i) + 100); }
const Options often{.shadow_every = 7};

/// Each trains a net of its own for some steps in one of Tandem's forms; what the net's parameters are then.
Inputs by_step() {
  auto net = std::make_shared<Net>();
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-2));
  auto options = often;
  options.clip_grad_norm = 1;
  TrainStep step(
      net, optimizer, [net](const at::Tensor& x) { return net->forward(x).square().mean(); }, as_tested(options));
  for (int i = 0; i < 40; i++) step(batch(i));
  EXPECT_TRUE(step.report().active) << step.report().to_string();
  return net->parameters();
}

Inputs by_body() {
  auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  TrainStep step(
      [&](const at::Tensor& x) {
        optimizer.zero_grad();
        auto loss = net->forward(x).square().mean();
        loss.backward();
        torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
        optimizer.step();
        return loss;
      },
      as_tested(often));
  for (int i = 0; i < 40; i++) step(batch(i));
  EXPECT_TRUE(step.report().active) << step.report().to_string();
  return net->parameters();
}

Inputs by_function() {
  auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05));
  auto f = compile(net, as_tested(often));
  for (int i = 0; i < 40; i++) {
    optimizer.zero_grad();
    f(batch(i)).square().mean().backward();
    optimizer.step();
  }
  EXPECT_TRUE(f.report().active) << f.report().to_string();
  return net->parameters();
}

TEST(Threads, StepsBodiesAndFunctionsAtOnceAreAsEachAlone) {
  const std::vector<std::function<Inputs()>> forms{by_step, by_body, by_function, by_step};
  std::vector<Inputs> alone, together(forms.size());
  for (const auto& form : forms) alone.push_back(form());
  std::vector<std::function<void()>> works;
  for (std::size_t i = 0; i < forms.size(); i++) works.emplace_back([&, i] { together[i] = forms[i](); });
  at_once(works);
  for (std::size_t i = 0; i < forms.size(); i++)
    for (std::size_t p = 0; p < alone[i].size(); p++)
      EXPECT_EQ(difference(together[i].at(p), alone[i][p]), "") << "form " << i << ", parameter " << p;
}

TEST(Threads, StepsThatDrawAtOnceUseTheirOwnNumbers) {
  // The threads share the generator, so that nobody knows the masks; but forward and backward of a step must have the same one.
  std::vector<std::function<void()>> works(2, [] {
    auto module = test::bag();
    const auto w = module->register_parameter("w", torch::ones(64));
    const auto optimizer = test::sgd({w}, 0);
    TrainStep step(
        *module, *optimizer,
        [w](const at::Tensor& x) {
          const auto kept = torch::dropout(w * x, 0.5, true);
          return std::pair(kept.sum(), kept);
        },
        as_tested({.keep_grads = true, .shadow_every = 10}));
    for (int i = 0; i < 60; i++) {
      const auto kept = step.run({torch::ones(64)}).outputs.at(0);
      EXPECT_TRUE(kept.eq(0).logical_or(kept.eq(2)).all().item<bool>()) << kept;
      ASSERT_TRUE(at::equal(kept, w.grad())) << "step " << i;
    }
  });
  at_once(works);
}

TEST(Threads, AStepIsMadeCalledAndDestroyedOnDifferentThreads) {
  auto net = std::make_shared<Net>(), eager = std::make_shared<Net>();
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-2)),
      eagers(eager->parameters(), torch::optim::AdamOptions(1e-2));
  std::unique_ptr<TrainStep> step;
  on_another_thread([&] {
    step = std::make_unique<TrainStep>(
        net, optimizer, [net](const at::Tensor& x) { return net->forward(x).square().mean(); }, as_tested({.shadow_every = 1000}));
  });
  for (int i = 0; i < 8; i++) {
    const auto x = batch(i);
    eagers.zero_grad();
    eager->forward(x).square().mean().backward();
    eagers.step();
    if (i % 3 == 0)
      (*step)(x);
    else
      on_another_thread([&] { (*step)(x); });
  }
  on_another_thread([&] {
    EXPECT_TRUE(step->report().active) << step->report().to_string();
    step.reset();
  });
  for (std::size_t p = 0; p < net->parameters().size(); p++)
    EXPECT_EQ(difference(net->parameters()[p], eager->parameters()[p]), "") << "parameter " << p;
}

TEST(Threads, AFunctionsCallAndBackwardRunOnDifferentThreads) {
  const auto w = leaf({6, 4}, 1);
  const auto function = [w](const at::Tensor& x) { return torch::tanh(x.matmul(w)); };
  auto f = compile(function, as_tested({.shadow_every = 1000}));
  for (int i = 0; i < 8; i++) {
    const auto x = batch(i).requires_grad_(true);
    const auto expected = torch::autograd::grad({function(x).square().sum()}, {x, w});
    at::Tensor out;
    Inputs found;
    on_another_thread([&] { out = f(x); });
    on_another_thread([&, loss = out.square().sum()] { found = torch::autograd::grad({loss}, {x, w}); });
    for (std::size_t k = 0; k < expected.size(); k++) EXPECT_EQ(difference(found.at(k), expected[k]), "") << "gradient " << k;
  }
  EXPECT_TRUE(f.report().active) << f.report().to_string();
}

TEST(Threads, AFunctionIsRecordedAndCalledBySeveralThreadsAtOnce) {
  const auto w = leaf({6, 4}, 1);
  const auto function = [w](const at::Tensor& x) { return torch::tanh(x.matmul(w)) * x.sum(); };
  auto f = compile(function, as_tested({.shadow_every = 10}));
  const auto work = [&](std::int64_t rows) {
    return [&, rows] {
      for (int i = 0; i < 40; i++) {
        const auto x = normal({rows, 6}, std::uint64_t(i)).requires_grad_(true);
        const auto expected = torch::autograd::grad({function(x).square().sum()}, {x, w});
        const auto found = torch::autograd::grad({f(x).square().sum()}, {x, w});
        for (std::size_t k = 0; k < expected.size(); k++) ASSERT_EQ(difference(found.at(k), expected[k]), "") << "gradient " << k;
        if (i % 8 == 0) {
          EXPECT_FALSE(f.report().plans.empty());
        }
      }
    };
  };
  at_once({work(3), work(3), work(5)});
  EXPECT_EQ(test::active_plans(f.report()), 2) << f.report().to_string();
}

TEST(Threads, ASecondThreadInAStepObjectIsAnErrorAndAReportWaits) {
  auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05));
  std::promise<void> inside, go_on;
  bool waits = false;
  TrainStep step(
      net, optimizer,
      [&](const at::Tensor& x) {
        if (std::exchange(waits, false)) {
          inside.set_value();
          go_on.get_future().wait();
        }
        return net->forward(x).square().mean();
      },
      as_tested(often));
  for (int i = 0; i < 5; i++) step(batch(i));
  waits = true;
  std::thread first([&] { step(batch(5)); });
  inside.get_future().wait();
  Inputs before;
  for (const auto& p : net->parameters()) before.push_back(p.detach().clone());
  std::string sentence;
  try {
    step(batch(6));
  } catch (const Error& e) {
    sentence = e.what();
  }
  EXPECT_EQ(sentence, "step: expected one thread at a time in a step object, found another one inside");
  for (std::size_t p = 0; p < before.size(); p++) EXPECT_EQ(difference(net->parameters()[p].detach(), before[p]), "");
  auto report = std::async(std::launch::async, [&] { return step.report().steps; });
  EXPECT_EQ(report.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  go_on.set_value();
  first.join();
  EXPECT_EQ(report.get(), 6);
  EXPECT_TRUE(step(batch(6)).compiled);
}

}  // namespace
}  // namespace tandem
