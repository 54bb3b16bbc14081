// Memory over a step, against a recount by hand and by definition.
#include "partitioner/evaluate.h"
#include "partitioner/fuse.h"

#include "tests/partitioner/random_step.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace tandem {
namespace {

using test::GraphMaker;
using test::tensor;

/// loss = sum(tanh(exp(x))), with kernels in which the given nodes are together.
struct Chain : GraphMaker {
  ValueId x = outside(Role::input, {4}), y = make("aten::exp", {tensor(x)}, {4}), z = make("aten::tanh", {tensor(y)}, {4});
  Chain() { g.loss = sum(z); }
};

Group kernel(std::vector<NodeId> nodes, bool joined = false) { return {Group::Kind::kernel, Side::forward, std::move(nodes), joined}; }

TEST(Evaluate, NodeByNodeTheOperandAndTheResultAreAlive) {
  const Chain c;
  EXPECT_EQ(evaluate(c.g, unfused(c.g, {})).peak_bytes, 32);
}

TEST(Evaluate, WhatStaysInsideAKernelHasNoMemory) {
  const Chain c;
  const std::vector<Group> groups{kernel({0, 1}), kernel({2})};
  EXPECT_EQ(evaluate(c.g, groups).peak_bytes, 16 + 4);
  EXPECT_TRUE(lifetimes(c.g, groups).absent[std::size_t(c.g.values[std::size_t(c.y)].storage)]);
}

TEST(Evaluate, WhatAnotherGroupReadsHasMemory) {
  Chain c;
  c.make("aten::neg", {tensor(c.y)}, {4});
  EXPECT_EQ(evaluate(c.g, {kernel({0, 1}), kernel({2}), kernel({3})}).peak_bytes, 16 + 16 + 4);
}

TEST(Evaluate, OutputsHaveMemoryToTheEnd) {
  Chain c;
  c.g.outputs = {c.y};
  EXPECT_EQ(evaluate(c.g, {kernel({0, 1, 2})}).peak_bytes, 16 + 4);
  c.make("aten::neg", {tensor(c.x)}, {4});
  EXPECT_EQ(evaluate(c.g, {kernel({0, 1, 2}), {Group::Kind::library, Side::forward, {3}}}).peak_bytes, 16 + 4 + 16);
}

TEST(Evaluate, GradientsLiveUntilTheUpdateBegins) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  m.g.loss = m.sum(x);
  m.side = Side::backward;
  const ValueId gradient = m.make("aten::exp", {tensor(x)}, {4});
  m.make("aten::neg", {tensor(x)}, {4});
  EXPECT_EQ(evaluate(m.g, unfused(m.g, {})).peak_bytes, 4 + 16);
  m.g.gradients = {{0, "x", -1, gradient}};
  EXPECT_EQ(evaluate(m.g, unfused(m.g, {})).peak_bytes, 4 + 16 + 16);
}

TEST(Evaluate, JoinedGroupsAreAliveTogether) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4}), used_up = m.make("aten::exp", {tensor(x)}, {4});
  m.g.outputs = {m.make("aten::neg", {tensor(used_up)}, {4}), m.make("aten::neg", {tensor(x)}, {4})};
  const Figures apart = evaluate(m.g, {kernel({0}), kernel({1}), kernel({2})});
  const Figures joined = evaluate(m.g, {kernel({0}), kernel({1}), kernel({2}, true)});
  EXPECT_EQ(apart.peak_bytes, 32);
  EXPECT_EQ(joined.peak_bytes, 48);
  EXPECT_LT(joined.seconds, apart.seconds);
}

TEST(Evaluate, ViewsAndFoldedValuesTakeNothing) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  m.full({1000}, 1.0);
  m.g.nodes.back().folded = true;
  const ValueId y = m.make("aten::exp", {tensor(x)}, {4});
  m.g.loss = m.sum(y);
  const std::int64_t before = evaluate(m.g, unfused(m.g, {})).peak_bytes;
  EXPECT_EQ(before, 20);
  m.make("aten::exp", {tensor(x)}, {4});
  m.node("aten::view", {tensor(y), test::ints({2, 2})}, {m.view(y, {2, 2}, {2, 1})});  // nobody reads it
  EXPECT_EQ(evaluate(m.g, unfused(m.g, {})).peak_bytes, 20);
}

TEST(Evaluate, AFusedGroupReadsItsOperandsOnce) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {1 << 20});
  const ValueId y = m.make("aten::neg", {tensor(x)}, {1 << 20}), z = m.make("aten::mul.Tensor", {tensor(y), tensor(x)}, {1 << 20});
  m.g.outputs = {z};
  const double apart = evaluate(m.g, {kernel({0}), kernel({1})}).seconds, together = evaluate(m.g, {kernel({0, 1})}).seconds;
  EXPECT_NEAR(together / apart, 2.0 / 5.0, 0.01);  // x in, z out; instead of x in, y out, y in, x in, z out
}

/// Bytes at each step, storage by storage: alive from the first node that names it to the last.
std::int64_t recount(const Graph& g, const std::vector<Group>& groups) {
  std::vector<const Node*> steps;
  for (const Group& group : groups)
    for (const Node& n : g.nodes)
      if (n.id == group.nodes.front() && group.kind == Group::Kind::library) steps.push_back(&n);
  auto names = [&](const Node& n, StorageId s) {
    bool named = false;
    for (const auto* list : {&n.args, &n.results})
      for_each_value(*list, [&](ValueId v) { named |= g.values[std::size_t(v)].storage == s; });
    return named;
  };
  auto escapes = [&](StorageId s) {
    bool out = g.values[std::size_t(g.loss)].storage == s;
    for (ValueId v : g.outputs) out |= v >= 0 && g.values[std::size_t(v)].storage == s;
    return out;
  };
  std::int64_t peak = 0;
  for (std::size_t k = 0; k < steps.size(); ++k) {
    std::int64_t live = 0;
    for (std::size_t s = 0; s < g.storages.size(); ++s) {
      if (g.storages[s].role != Role::internal) continue;
      bool before = false, after = escapes(StorageId(s));
      for (std::size_t i = 0; i < steps.size(); ++i) {
        before |= i <= k && names(*steps[i], StorageId(s));
        after |= i >= k && names(*steps[i], StorageId(s));
      }
      if (before && after) live += g.storages[s].bytes;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

TEST(Evaluate, EqualsARecountOnRandomGraphs) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    const Graph g = test::RandomStep(seed).make();
    const std::vector<Group> groups = unfused(g, {});
    ASSERT_EQ(evaluate(g, groups).peak_bytes, recount(g, groups)) << seed;
  }
}

}  // namespace
}  // namespace tandem
