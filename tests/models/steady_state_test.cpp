// What a warm compiled step asks of LibTorch's allocator: nothing where all of it is planned, and never more bytes than an eager step.
#include "bench/support/counting_allocator.h"
#include "bench/support/workloads.h"
#include "tests/support/state_equal.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <tandem/tandem.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace {

using tandem::bench::Allocated;
using tandem::bench::CountingAllocator;
using tandem::bench::Workload;

constexpr int warm_steps = 2, most_steps = 8;

/// The same workload with the same parameters as every other Model of this name.
struct Model {
  Workload workload;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  at::Tensor x, y;

  explicit Model(const std::string& name) {
    at::manual_seed(0);
    workload = tandem::bench::make_workload(name);
    optimizer = workload.make_optimizer(workload.module->parameters());
    std::tie(x, y) = workload.data(workload.batch);
  }
};

Allocated eager_step(const std::string& name) {
  CountingAllocator& counter = CountingAllocator::install();
  Model m(name);
  const auto step = [&] {
    m.optimizer->zero_grad();
    const at::Tensor loss = m.workload.loss(m.x, m.y);
    loss.backward();
    m.optimizer->step();
  };
  for (int i = 0; i < warm_steps; i++) step();
  m.optimizer->zero_grad();  // the gradients count as part of the step
  return count_allocations(counter, step);
}

struct CompiledStep {
  Allocated allocated;
  std::int64_t arena_bytes = 0;
};

CompiledStep compiled_step(const std::string& name) {
  CountingAllocator& counter = CountingAllocator::install();
  Model m(name);
  tandem::TrainStep train(m.workload.module, *m.optimizer, m.workload.loss);
  for (int i = 0, compiled = 0; i < most_steps && compiled < warm_steps; i++) compiled += train(m.x, m.y).compiled;
  bool compiled = false;
  CompiledStep out;
  out.allocated = count_allocations(counter, [&] { compiled = train(m.x, m.y).compiled; });
  const tandem::Report report = train.report();
  EXPECT_TRUE(compiled) << report.to_string();
  for (const tandem::PlanReport& plan : report.plans)
    if (plan.active) out.arena_bytes = std::max(out.arena_bytes, plan.arena_bytes);
  return out;
}

class SteadyState : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!tandem::test::with_kernels()) GTEST_SKIP() << "this run is without generated kernels";
  }
};

/// Workloads all of whose nodes are kernels, views, BLAS calls or calls that write into given memory.
class PlannedWhole : public SteadyState {};
TEST_P(PlannedWhole, ACompiledStepAllocatesNothing) { EXPECT_EQ(compiled_step(GetParam()).allocated.allocations, 0); }

TEST_P(SteadyState, ACompiledStepAndItsArenaNeedNoMoreThanAnEagerStep) {
  const Allocated eager = eager_step(GetParam());
  const CompiledStep compiled = compiled_step(GetParam());
  EXPECT_GT(eager.peak_bytes, 0);
  EXPECT_LE(compiled.allocated.peak_bytes + compiled.arena_bytes, eager.peak_bytes) << "of which the arena is " << compiled.arena_bytes;
}

std::string name_of(const testing::TestParamInfo<std::string>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(All, SteadyState, testing::ValuesIn(tandem::bench::workload_names()), name_of);
INSTANTIATE_TEST_SUITE_P(All, PlannedWhole, testing::Values("mlp_tiny", "mlp_mnist", "pinn"), name_of);

}  // namespace
