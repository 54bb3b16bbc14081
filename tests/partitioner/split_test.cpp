// Kernels that hold too much memory are split, others are left alone.
#include "partitioner/split.h"

#include "partitioner/evaluate.h"
#include "partitioner/fuse.h"
#include "tests/partitioner/random_step.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tandem {
namespace {

using test::GraphMaker;
using test::number;
using test::tensor;

constexpr std::int64_t width = 8, product_bytes = 4 * width * width;

/// A sum of eight matrix products, as the gradient of a weight that is used eight times; all sums are in one kernel, which runs at the end.
struct Sum : GraphMaker {
  std::vector<Group> groups;

  Sum() {
    const ValueId w = outside(Role::parameter, {width, width});
    ValueId sum = w;
    Group kernel{Group::Kind::kernel, Side::forward, {}, false};
    for (int i = 0; i < 8; ++i) {
      const ValueId product = make("aten::mm", {tensor(w), tensor(w)}, {width, width});
      groups.push_back({Group::Kind::library, Side::forward, {g.nodes.back().id}, false});
      sum = make("aten::add.Tensor", {tensor(sum), tensor(product), number(1)}, {width, width});
      kernel.nodes.push_back(g.nodes.back().id);
    }
    groups.push_back(kernel);
    g.outputs = {sum};
  }
};

TEST(SplitToFit, LeavesAloneWhatFits) {
  const Sum s;
  EXPECT_EQ(evaluate(s.g, s.groups).peak_bytes, 9 * product_bytes);
  EXPECT_EQ(split_to_fit(s.g, s.groups, 9 * product_bytes, {}), s.groups);
}

TEST(SplitToFit, SplitsAKernelThatKeepsItsOperandsWaiting) {
  const Sum s;
  const std::int64_t bound = evaluate(s.g, unfused(s.g, {})).peak_bytes;
  EXPECT_EQ(bound, 3 * product_bytes);
  const std::vector<Group> groups = split_to_fit(s.g, s.groups, bound, {});
  Partition p;
  p.groups = groups;
  EXPECT_EQ(validate(s.g, p), "");
  EXPECT_LE(evaluate(s.g, groups).peak_bytes, bound);
}

TEST(SplitToFit, SplitsNoMoreThanItMust) {
  const Sum s;
  const std::vector<Group> groups = split_to_fit(s.g, s.groups, 6 * product_bytes, {});
  EXPECT_LE(evaluate(s.g, groups).peak_bytes, 6 * product_bytes);
  EXPECT_EQ(std::count_if(groups.begin(), groups.end(), [](const Group& x) { return x.kind == Group::Kind::kernel; }), 2);
}

TEST(SplitToFit, DoesNotSplitWhereTheLastNodeHoldsTheMemory) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4}), waits = m.make("aten::exp", {tensor(x)}, {4}), y = m.make("aten::neg", {tensor(x)}, {4});
  m.g.outputs = {m.make("aten::mul.Tensor", {tensor(y), tensor(waits)}, {4})};
  const std::vector<Group> groups{{Group::Kind::library, Side::forward, {0}, false}, {Group::Kind::kernel, Side::forward, {1, 2}, false}};
  EXPECT_EQ(split_to_fit(m.g, groups, 0, {}), groups);
}

TEST(SplitToFit, TakesApartWhatIsJoined) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4}), used_up = m.make("aten::exp", {tensor(x)}, {4});
  m.g.outputs = {m.make("aten::neg", {tensor(used_up)}, {4}), m.make("aten::neg", {tensor(x)}, {4})};
  auto kernel = [](NodeId n, bool joined) { return Group{Group::Kind::kernel, Side::forward, {n}, joined}; };
  const std::vector<Group> groups{kernel(0, false), kernel(1, false), kernel(2, true)};
  EXPECT_EQ(evaluate(m.g, groups).peak_bytes, 48);
  EXPECT_EQ(split_to_fit(m.g, groups, 32, {}), (std::vector<Group>{kernel(0, false), kernel(1, false), kernel(2, false)}));
}

TEST(SplitToFit, WhatItMakesOfRandomGraphsHolds) {
  int split = 0, fit = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    const Graph g = test::RandomStep(seed).make();
    Partition p = partition(g, {.recompute = false, .fuse = false}).partition;
    const std::int64_t bound = evaluate(g, p.groups).peak_bytes;
    const std::vector<Group> fused = fuse(g, {});
    if (evaluate(g, fused).peak_bytes <= bound) continue;
    p.groups = split_to_fit(g, fused, bound, {});
    ASSERT_EQ(validate(g, p), "") << seed;
    EXPECT_LE(evaluate(g, p.groups).peak_bytes, evaluate(g, fused).peak_bytes) << seed;
    ++split;
    fit += evaluate(g, p.groups).peak_bytes <= bound;
  }
  EXPECT_GT(split, 10);
  EXPECT_GT(fit, split / 2);
}

TEST(SplitToFit, ViewsThatAreCalledKeepTheirPlaces) {
  const PartitionSwitches called{.skip_views = false}, alone{.skip_views = false, .recompute = false, .fuse = false};
  int split = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    const Graph g = test::RandomStep(seed).make();
    Partition p = partition(g, alone).partition;
    const std::int64_t bound = evaluate(g, p.groups).peak_bytes;
    p.groups = fuse(g, called);
    if (evaluate(g, p.groups).peak_bytes <= bound) continue;
    p.groups = split_to_fit(g, p.groups, bound, called);
    ASSERT_EQ(validate(g, p), "") << seed;
    ++split;
  }
  EXPECT_GT(split, 10);
}

}  // namespace
}  // namespace tandem
