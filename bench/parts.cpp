// build/bench/parts: single costs of the library, by Google Benchmark. `step` is the program for whole models.
#include "bench/support/workloads.h"

#include <ATen/Context.h>
#include <benchmark/benchmark.h>
#include <tandem/tandem.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <optional>

namespace {

using tandem::bench::Workload;

// The mean is quoted here, so no shadow step may fall into it.
const tandem::Options without_shadows{.shadow_every = std::int64_t{1} << 40};
constexpr int warm_steps = 8;

/// Adds time per node of the plan; fails the benchmark when there is no plan, so that an eager time is never taken for a compiled one.
void time_compiled(benchmark::State& state, tandem::TrainStep& train, const std::vector<at::Tensor>& inputs) {
  for (int i = 0; i < warm_steps; i++) train.run(inputs);
  if (const tandem::Report report = train.report(); !report.active) return state.SkipWithError(report.reason.c_str());
  bool compiled = true;
  for (auto _ : state) compiled = train.run(inputs).compiled && compiled;
  if (!compiled) return state.SkipWithError("a step did not run the plan");
  for (const tandem::PlanReport& plan : train.report().plans) {
    if (!plan.active) continue;
    const auto nodes = static_cast<double>(plan.nodes_forward + plan.nodes_backward + plan.nodes_update);
    state.counters["nodes"] = nodes;
    state.counters["time/node"] = benchmark::Counter(nodes, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  }
}

void time_eager(benchmark::State& state, torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& loss) {
  const auto step = [&] {
    optimizer.zero_grad();
    loss().backward();
    optimizer.step();
  };
  for (int i = 0; i < warm_steps; i++) step();
  for (auto _ : state) step();
}

struct Mlp {
  Workload workload = [] {
    at::manual_seed(0);
    return tandem::bench::make_workload("mlp_tiny");
  }();
  std::unique_ptr<torch::optim::Optimizer> optimizer = workload.make_optimizer(workload.module->parameters());
  std::pair<at::Tensor, at::Tensor> batch = workload.data(workload.batch);
};

void mlp_tiny_eager(benchmark::State& state) {
  Mlp mlp;
  time_eager(state, *mlp.optimizer, [&] { return mlp.workload.loss(mlp.batch.first, mlp.batch.second); });
}
BENCHMARK(mlp_tiny_eager)->Unit(benchmark::kMicrosecond)->UseRealTime();

void mlp_tiny_compiled(benchmark::State& state) {
  Mlp mlp;
  tandem::TrainStep train(mlp.workload.module, *mlp.optimizer, mlp.workload.loss, without_shadows);
  time_compiled(state, train, {mlp.batch.first, mlp.batch.second});
}
BENCHMARK(mlp_tiny_compiled)->Unit(benchmark::kMicrosecond)->UseRealTime();

/// `ops` pointwise ops on 16 numbers: the kernels cost next to nothing, what remains is the price of a node.
struct Chain : torch::nn::Module {
  explicit Chain(std::int64_t ops) : ops(ops) { weight = register_parameter("weight", torch::full({16}, 0.5)); }

  at::Tensor loss(const at::Tensor& x) const {
    at::Tensor h = weight;
    for (std::int64_t i = 0; i < ops; i++) {
      switch (i % 4) {
        case 0: h = h * x; break;
        case 1: h = h.tanh(); break;
        case 2: h = h + x; break;
        default: h = h.sigmoid(); break;
      }
    }
    return h.sum();
  }

  std::int64_t ops;
  at::Tensor weight;
};

void chain_eager(benchmark::State& state) {
  const Chain chain(state.range(0));
  torch::optim::SGD optimizer(chain.parameters(), torch::optim::SGDOptions(1e-3));
  const at::Tensor x = torch::full({16}, 0.25);
  time_eager(state, optimizer, [&] { return chain.loss(x); });
}
BENCHMARK(chain_eager)->Arg(10)->Arg(50)->Arg(200)->Unit(benchmark::kMicrosecond)->UseRealTime();

void chain_compiled(benchmark::State& state) {
  Chain chain(state.range(0));
  torch::optim::SGD optimizer(chain.parameters(), torch::optim::SGDOptions(1e-3));
  tandem::TrainStep train(
      chain, optimizer, [&chain](const at::Tensor& x) { return chain.loss(x); }, without_shadows);
  time_compiled(state, train, {torch::full({16}, 0.25)});
}
BENCHMARK(chain_compiled)->Arg(10)->Arg(50)->Arg(200)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
