#include "bench/support/step_figures.h"

#include "bench/support/counting_allocator.h"
#include "bench/support/statistics.h"
#include "bench/support/workloads.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <tandem/tandem.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <chrono>
#include <functional>
#include <vector>

namespace tandem::bench {
namespace {

constexpr std::uint64_t seed = 0;
constexpr int warm_steps = 10, most_warm_steps = 20;
constexpr int most_counted_steps = 4;  // a shadow step runs eager; at most one falls among these

/// The same workload with the same parameters as every other Model of this name.
struct Model {
  Workload workload;
  std::unique_ptr<torch::optim::Optimizer> optimizer;

  explicit Model(const std::string& name) {
    at::manual_seed(seed);
    workload = make_workload(name);
    optimizer = workload.make_optimizer(workload.module->parameters());
  }

  at::Tensor eager_step(const at::Tensor& x, const at::Tensor& y) {
    optimizer->zero_grad();
    const at::Tensor loss = workload.loss(x, y);
    loss.backward();
    optimizer->step();
    return loss.detach();  // what a step returns
  }
};

/// One of the two competitors. Both are run, timed and counted by the same code.
struct Side {
  std::function<bool(const at::Tensor&, const at::Tensor&)> step;  // whether it ran what this side stands for
  CountingAllocator& counter;
  std::vector<double> ms;
  std::int64_t held = 0;  // bytes that its calls have left alive so far

  double timed(const at::Tensor& x, const at::Tensor& y) {
    const std::int64_t live = counter.live_bytes();
    const auto start = std::chrono::steady_clock::now();
    step(x, y);
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    held += counter.live_bytes() - live;
    return spent.count();
  }

  std::optional<Allocated> counted(const at::Tensor& x, const at::Tensor& y) {
    for (int i = 0; i < most_counted_steps; i++) {
      bool ran = false;
      const std::int64_t live = counter.live_bytes();
      const Allocated allocated = count_allocations(counter, [&] { ran = step(x, y); });
      held += counter.live_bytes() - live;
      if (ran) return allocated;
    }
    return std::nullopt;
  }
};

void time_in_turn(Side& eager, Side& compiled, const at::Tensor& x, const at::Tensor& y, std::int64_t steps) {
  for (std::int64_t i = 0; i < steps; i++) {
    // Each is first in every other round: the second one finds the caches as the first one left them.
    for (Side* side : i % 2 == 0 ? std::array{&eager, &compiled} : std::array{&compiled, &eager}) side->ms.push_back(side->timed(x, y));
  }
}

/// The active plan that has run most steps, when it may be quoted.
const PlanReport* quotable_plan(const Report& report) {
  const PlanReport* found = nullptr;
  for (const PlanReport& plan : report.plans) {
    if (plan.active && plan.max_error_ratio <= 1 && (found == nullptr || plan.steps > found->steps)) found = &plan;
  }
  return report.active ? found : nullptr;
}

CompiledFigures figures_of(const PlanReport& plan) {
  CompiledFigures f;
  f.compile_ms = plan.compile_ms;
  f.check_ms = plan.check_ms;
  f.check_peak_bytes = plan.check_peak_bytes;
  f.max_error_ratio = plan.max_error_ratio;
  f.nodes = plan.nodes_forward + plan.nodes_backward + plan.nodes_update;
  f.groups = plan.groups;
  f.kernels = plan.kernels;
  f.launches = plan.launches;
  f.library_calls = plan.library_calls;
  f.barriers = plan.barriers;
  f.saved_bytes = plan.saved_bytes;
  f.recomputed_bytes = plan.recomputed_bytes;
  f.arena_bytes = plan.arena_bytes;
  f.replay = plan.replay;
  f.replay_us = plan.replay_us;
  f.guard_us = plan.guard_us;
  f.host_ops = plan.host_ops;
  return f;
}

}  // namespace

StepFigures measure_step(const std::string& name, std::int64_t steps, Replay replay) {
  CountingAllocator& counter = CountingAllocator::install();
  Model eager_model(name), compiled_model(name);
  TrainStep train(compiled_model.workload.module, *compiled_model.optimizer, compiled_model.workload.loss, {.replay = replay});
  const auto [x, y] = eager_model.workload.data(eager_model.workload.batch);
  const auto [small_x, small_y] = eager_model.workload.data(eager_model.workload.small_batch);

  const auto eager_step = [&](const at::Tensor& a, const at::Tensor& b) { return eager_model.eager_step(a, b), true; };
  Side eager{eager_step, counter, {}, 0};
  Side compiled{[&](const at::Tensor& a, const at::Tensor& b) { return train(a, b).compiled; }, counter, {}, 0};

  // What the process pays once (threads, primitive caches) belongs to neither first step.
  {
    Model other(name);
    for (int i = 0; i < 2; i++) other.eager_step(x, y);
  }

  StepFigures figures;
  figures.workload = name;
  figures.threads = at::get_num_threads();
  figures.steps = steps;
  figures.eager_first_step_ms = eager.timed(x, y);
  const double first_step_ms = compiled.timed(x, y);
  for (int i = 1; i < warm_steps || (i < most_warm_steps && !train.report().active); i++) {
    eager.timed(x, y);
    compiled.timed(x, y);
  }
  time_in_turn(eager, compiled, x, y, steps);
  figures.eager_ms = median(eager.ms);
  figures.eager_best_ms = best(eager.ms);

  // The gradients count as part of the step on both sides: the eager loop keeps them until its next step, the compiled one does not.
  const std::int64_t with_gradients = counter.live_bytes();
  eager_model.optimizer->zero_grad();
  eager.held += counter.live_bytes() - with_gradients;
  const std::int64_t eager_held = eager.held;
  const Allocated eager_allocated = eager.counted(x, y).value();
  figures.eager_peak_bytes = eager_allocated.peak_bytes;
  figures.eager_allocations_per_step = eager_allocated.allocations;

  const std::optional<Allocated> allocated = compiled.counted(x, y);
  const std::int64_t extra_held = compiled.held - eager_held;
  const Report report = train.report();
  const PlanReport* plan = quotable_plan(report);
  if (plan == nullptr || !allocated) {
    figures.reason = report.reason.empty() ? "no plan with a passed check has run" : report.reason;
    return figures;
  }
  CompiledFigures f = figures_of(*plan);
  f.ms = median(compiled.ms);
  f.best_ms = best(compiled.ms);
  f.first_step_ms = first_step_ms;
  f.peak_bytes = allocated->peak_bytes + plan->arena_bytes;  // it lives between steps too, and counts as in use all step
  f.allocations_per_step = allocated->allocations;
  f.held_bytes = extra_held;
  f.reshape_ms = compiled.timed(small_x, small_y);
  figures.compiled = f;
  return figures;
}

}  // namespace tandem::bench
