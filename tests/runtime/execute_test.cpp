// The executor with generated kernels and an arena.
#include "runtime/execute.h"

#include "autograd/interpret.h"
#include "tests/support/planned.h"

#include <ATen/Parallel.h>

#include <stdexcept>

namespace tandem {
namespace {

using test::planned;
using test::Planned;
using test::small_net;

/// Loss and gradients of one run.
std::vector<at::Tensor> results(const Planned& p, Executor& executor) {
  executor.run(p.inputs());
  std::vector<at::Tensor> out{executor.value(p.plan.graph.loss).clone()};
  for (const auto& g : p.plan.graph.gradients) out.push_back(executor.value(g.value).clone());
  executor.end();
  return out;
}

std::vector<at::Tensor> eager_results(const Planned& p) {
  std::vector<at::Tensor> out{p.recorded.eager.loss};
  out.insert(out.end(), p.recorded.eager.gradients.begin(), p.recorded.eager.gradients.end());
  return out;
}

void expect_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); i++) EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-5, 1e-6)) << "result " << i;
}

TEST(Executor, RunsGeneratedKernels) {
  const auto p = planned(small_net());
  EXPECT_GT(p.plan.program.kernels.size(), 0U);
  Executor executor(p.plan);
  expect_close(results(p, executor), eager_results(p));
}

TEST(Executor, EachSwitchOffGivesTheSame) {
  const PlanSwitches off[] = {
      {.partition = {.recompute = false}}, {.partition = {.fuse = false}}, {.partition = {.skip_views = false}},
      {.memory = {.arena = false}},        {.memory = {.blas = false}},    {.passes = {.movement = false}},
  };
  for (std::size_t i = 0; i < std::size(off); i++) {
    SCOPED_TRACE(i);
    const auto p = planned(small_net(), off[i]);
    Executor executor(p.plan);
    expect_close(results(p, executor), eager_results(p));
  }
}

TEST(Executor, ReadsNothingThatTheStepHasNotWritten) {
  const auto p = planned(small_net());
  Executor executor(p.plan);
  executor.poison(true);
  expect_close(results(p, executor), eager_results(p));
}

TEST(Executor, RunsAgainAndAgainBitForBit) {
  const auto p = planned(small_net());
  Executor executor(p.plan);
  const auto first = results(p, executor);
  for (int i = 0; i < 5; i++) {
    const auto again = results(p, executor);
    for (std::size_t k = 0; k < first.size(); k++) EXPECT_TRUE(bit_equal(first[k], again[k])) << k;
  }
}

TEST(Executor, TheNumberOfThreadsChangesNoBitOfAKernel) {
  // Without library calls, whose own sums may depend on the threads.
  const auto w = torch::randn({300, 400}).requires_grad_(true), b = torch::randn({400}).requires_grad_(true);
  const auto p = planned({{w, b}, [=] { return (torch::gelu(w + b) * w).mean(); }});
  const int before = at::get_num_threads();
  Executor executor(p.plan);
  at::set_num_threads(1);
  const auto one = results(p, executor);
  at::set_num_threads(2);
  const auto two = results(p, executor);
  at::set_num_threads(before);
  for (std::size_t k = 0; k < one.size(); k++) EXPECT_TRUE(bit_equal(one[k], two[k])) << k;
}

TEST(Executor, WhatItHandedOutStaysAsItWas) {
  const auto p = planned(small_net());
  Executor executor(p.plan);
  executor.run(p.inputs());
  const auto loss = executor.value(p.plan.graph.loss).detach();
  executor.end();
  const auto copy = loss.clone();
  auto other = p.inputs();
  for (std::size_t s = 0; s < p.plan.graph.storages.size(); s++)
    if (p.plan.graph.storages[s].role == Role::parameter) {
      auto t = tensor_on(p.plan.graph, StorageId(s), other.storages[s]).clone().mul_(2);
      other.storages[s] = {t.storage(), 0};
    }
  for (int i = 0; i < 4; i++) {
    executor.run(other);
    EXPECT_NE(executor.value(p.plan.graph.loss).item<float>(), copy.item<float>());
    executor.end();
  }
  EXPECT_TRUE(bit_equal(loss, copy));
}

TEST(Executor, UsesABufferAgainOnceTheCallerHasLetGo) {
  const auto p = planned(small_net());
  Executor executor(p.plan);
  const void* seen[4];
  for (const void*& at : seen) {
    executor.run(p.inputs());
    at = executor.value(p.plan.graph.loss).const_data_ptr();
    executor.end();
  }
  EXPECT_EQ(seen[2], seen[1]);
  EXPECT_EQ(seen[3], seen[1]);
}

TEST(Executor, NamesTheNodesThatAKernelCovers) {
  const auto p = planned(small_net());
  bool found = false;
  for (std::size_t k = 0; k < p.plan.program.calls.size(); k++) {
    if (p.plan.program.calls[k].kind != Call::Kind::kernel) continue;
    const auto text = describe_call(p.plan, k);
    found |= text.find("kernel k") == 0 && text.find(", nodes ") != std::string::npos;
  }
  EXPECT_TRUE(found);
}

TEST(PlanText, RoundTripsWithKernelsAndMemory) {
  const auto p = planned(small_net());
  const auto text = print(p.plan);
  EXPECT_EQ(print(parse_plan(text)), text);
}

TEST(PlanText, RefusesLaunchesThatItsPartitionDoesNotGive) {
  auto p = planned(small_net());
  for (auto& call : p.plan.program.calls)
    if (!call.launches.empty()) {
      std::swap(call.launches[0].operands.front(), call.launches[0].operands.back());
      break;
    }
  EXPECT_THROW(parse_plan(print(p.plan)), std::invalid_argument);
}

}  // namespace
}  // namespace tandem
