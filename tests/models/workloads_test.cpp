// Compiled training of whole models against plain eager loops: every step, up to rounding; every bit of it without generated kernels.
#include "bench/support/workloads.h"

#include "autograd/support/error.h"
#include "tests/support/train_state.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <tandem/tandem.h>

#include <algorithm>

namespace {

using tandem::Options;
using tandem::bench::Workload;
using tandem::test::difference;
using tandem::test::generator_state;
using tandem::test::set_generator_state;
using tandem::test::train_state;

Workload fresh(const std::string& name) {
  at::manual_seed(1);
  return tandem::bench::make_workload(name);
}

Options as_tested(Options options) {
  options.fuse = options.fuse && tandem::test::with_kernels();
  return options;
}

/// An eager loop and a TrainStep that start from the same parameters and meet the same batches and random numbers.
struct Race {
  explicit Race(const std::string& name, Options options = {})
      : eager(fresh(name)), compiled(fresh(name)), eager_optimizer(eager.make_optimizer(eager.module->parameters())),
        compiled_optimizer(compiled.make_optimizer(compiled.module->parameters())),
        train(compiled.module, *compiled_optimizer, compiled.loss, as_tested(std::move(options))) {}

  /// One step of each on a new batch. Empty when both have left the same; else what differs.
  std::string step(std::int64_t batch) {
    const auto [x, y] = eager.data(batch);
    const at::Tensor before = generator_state();
    eager_optimizer->zero_grad();
    const at::Tensor loss = eager.loss(x, y);
    loss.backward();
    eager_optimizer->step();
    const at::Tensor after = generator_state();

    set_generator_state(before);
    const tandem::StepResult result = train(x, y);
    compiled_steps += result.compiled;
    if (const std::string text = difference(result.loss, loss.detach()); !text.empty()) return "loss: " + text;
    if (const std::string text = difference(generator_state(), after); !text.empty()) return "generator: " + text;
    const auto mine = train_state(*compiled.module, *compiled_optimizer), eagers = train_state(*eager.module, *eager_optimizer);
    const std::string text = difference(mine, eagers);
    tandem::test::follow(mine, eagers);
    return text;
  }

  Workload eager, compiled;
  std::unique_ptr<torch::optim::Optimizer> eager_optimizer, compiled_optimizer;
  tandem::TrainStep train;
  int compiled_steps = 0;
};

/// The wide transformer takes most of a second for each step.
int steps_for(const std::string& workload, int steps) { return workload == "gpt_wide" ? std::min(steps, 4) : steps; }

class Workloads : public testing::TestWithParam<std::string> {};

TEST_P(Workloads, EveryStepEqualsEager) {
  Race race(GetParam());
  for (int i = 0; i < steps_for(GetParam(), 20); i++) ASSERT_EQ(race.step(race.eager.batch), "") << "in step " << i + 1;
  EXPECT_TRUE(race.train.report().active) << race.train.report().to_string();
  EXPECT_GT(race.compiled_steps, 0);
}

TEST_P(Workloads, KeptGradientsEqualEager) {
  Race race(GetParam(), {.keep_grads = true});
  for (int i = 0; i < steps_for(GetParam(), 8); i++) {
    ASSERT_EQ(race.step(race.eager.batch), "") << "in step " << i + 1;
    ASSERT_EQ(difference(tandem::test::gradients(*race.compiled.module), tandem::test::gradients(*race.eager.module)), "")
        << "in step " << i + 1;
  }
  EXPECT_GT(race.compiled_steps, 0) << race.train.report().to_string();
}

TEST_P(Workloads, AnotherBatchSizeEqualsEager) {
  Race race(GetParam());
  const int steps = steps_for(GetParam(), 6);
  for (int i = 0; i < steps; i++) ASSERT_EQ(race.step(race.eager.batch), "") << "in step " << i + 1;
  const int compiled_before = race.compiled_steps;
  for (int i = 0; i < steps; i++) ASSERT_EQ(race.step(race.eager.small_batch), "") << "in step " << i + 1 << " with the small batch";
  EXPECT_GT(race.compiled_steps, compiled_before) << race.train.report().to_string();
  EXPECT_EQ(race.step(race.eager.batch), "") << "in the step after the small batches";
}

TEST_P(Workloads, CompiledTrainingReducesTheLossOfOneBatch) {
  Workload workload = fresh(GetParam());
  const auto optimizer = workload.make_optimizer(workload.module->parameters());
  tandem::TrainStep train(workload.module, *optimizer, workload.loss);
  const auto [x, y] = workload.data(workload.batch);
  const double first = train(x, y).loss.item().toDouble();
  tandem::StepResult result;
  for (int i = 0; i < steps_for(GetParam(), 30); i++) result = train(x, y);
  EXPECT_TRUE(result.compiled) << train.report().to_string();
  EXPECT_LT(result.loss.item().toDouble(), first);
}

TEST(WorkloadThreads, TwoThreadsEqualEager) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  Race race("mlp_mnist");
  for (int i = 0; i < 6; i++) EXPECT_EQ(race.step(race.eager.batch), "") << "in step " << i + 1;
  EXPECT_GT(race.compiled_steps, 0) << race.train.report().to_string();
  at::set_num_threads(before);
}

INSTANTIATE_TEST_SUITE_P(All, Workloads, testing::ValuesIn(tandem::bench::workload_names()),
                         [](const testing::TestParamInfo<std::string>& info) { return info.param; });

TEST(WorkloadNames, AnUnknownNameIsRefusedWithTheKnownOnes) {
  try {
    tandem::bench::make_workload("mlp_huge");
    FAIL() << "expected an Error";
  } catch (const tandem::Error& error) {
    EXPECT_STREQ(error.what(),
                 "workload: expected one of mlp_tiny, mlp_mnist, resnet_cifar, gpt_char, gpt_wide, lstm_cell, pinn, found 'mlp_huge'");
  }
}

}  // namespace
