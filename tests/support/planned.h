// A recorded program with its plan, ready to run.
#pragma once

#include "tests/support/recorded.h"

#include <gtest/gtest.h>

#include <utility>

namespace tandem::test {

struct Planned {
  Recorded recorded;
  Plan plan;

  const Graph& graph() const { return recorded.recording.graph; }
  RunInputs inputs() const { return private_copy(plan.graph, recorded.eager.before); }
};

inline Planned planned(Program p, const PlanSwitches& switches = {}) {
  record(p);
  auto first = record(p);
  auto second = record(p, &first.recording);
  EXPECT_EQ(second.recording.refusal, "");
  auto plan = make_plan(second.recording.graph, switches);
  second.eager.before.storages.resize(plan.graph.storages.size());  // the plan's own storages are internal
  return {std::move(second), std::move(plan)};
}

/// Two layers with a row-local and a transcendental op, a mask, a library call between kernels, and gradients for five leaves.
inline Program small_net(std::int64_t rows = 6) {
  auto leaf = [](at::IntArrayRef sizes) { return torch::randn(sizes).requires_grad_(true); };
  const auto w1 = leaf({8, 5}), b1 = leaf({8}), g = leaf({8}), w2 = leaf({3, 8}), b2 = leaf({3});
  const auto x = torch::randn({rows, 5}), y = torch::randn({rows, 3});
  return {{w1, b1, g, w2, b2}, [=] {
            auto h = torch::gelu(torch::addmm(b1, x, w1.t()));
            h = torch::layer_norm(h, {8}, g, b1);
            h = torch::relu(h) * torch::sigmoid(h);
            const auto out = torch::addmm(b2, h, w2.t());
            return (torch::softmax(out, 1) - y).square().mean();
          }};
}

}  // namespace tandem::test
