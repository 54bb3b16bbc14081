// Modelled time: how many multiply-adds an op has is found from shapes alone.
#include "partitioner/cost.h"

#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using test::GraphMaker;
using test::none;
using test::Sizes;
using test::tensor;

/// Multiply-adds of one library op on operands of these sizes.
double multiply_adds(const std::string& op, const std::vector<Sizes>& operands, const Sizes& result, int flops = 2) {
  GraphMaker m;
  std::vector<Argument> args;
  for (const Sizes& sizes : operands) args.push_back(tensor(m.outside(Role::input, sizes)));
  m.make(op, args, result);
  return arithmetic_seconds(m.g, m.g.nodes[0]) * rates::contraction_flops / flops;
}

TEST(Cost, MatrixProducts) {
  EXPECT_DOUBLE_EQ(multiply_adds("aten::mm", {{3, 5}, {5, 7}}, {3, 7}), 105);
  EXPECT_DOUBLE_EQ(multiply_adds("aten::mv", {{3, 5}, {5}}, {3}), 15);
  EXPECT_DOUBLE_EQ(multiply_adds("aten::dot", {{5}, {5}}, {}), 5);
  EXPECT_DOUBLE_EQ(multiply_adds("aten::bmm", {{2, 3, 5}, {2, 5, 7}}, {2, 3, 7}), 210);
}

TEST(Cost, MatrixProductsWithABias) {
  EXPECT_DOUBLE_EQ(multiply_adds("aten::addmm", {{7}, {3, 5}, {5, 7}}, {3, 7}), 105);
  EXPECT_DOUBLE_EQ(multiply_adds("aten::addmm", {{64, 16}, {64, 4}, {4, 16}}, {64, 16}), 4096);
  EXPECT_DOUBLE_EQ(multiply_adds("aten::baddbmm", {{2, 3, 7}, {2, 3, 5}, {2, 5, 7}}, {2, 3, 7}), 210);
  EXPECT_DOUBLE_EQ(multiply_adds("aten::linear", {{2, 3, 5}, {7, 5}, {7}}, {2, 3, 7}), 210);
}

TEST(Cost, Convolutions) {
  EXPECT_DOUBLE_EQ(multiply_adds("aten::convolution", {{2, 3, 8, 8}, {16, 3, 3, 3}, {16}}, {2, 16, 8, 8}), 2 * 16 * 64 * 27);
  EXPECT_DOUBLE_EQ(multiply_adds("aten::convolution_backward", {{2, 16, 8, 8}, {2, 3, 8, 8}, {16, 3, 3, 3}}, {2, 3, 8, 8}, 4),
                   2 * 16 * 64 * 27);
}

TEST(Cost, ReductionsCountWhatTheyRead) {
  GraphMaker m;
  m.sum(m.outside(Role::input, {1000}));
  EXPECT_DOUBLE_EQ(arithmetic_seconds(m.g, m.g.nodes[0]), 1000 / rates::loop_flops);
}

TEST(Cost, WhatIsBroadcastIsReadOnce) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  EXPECT_EQ(touched_bytes(m.g.values[std::size_t(m.view(x, {1000, 4}, {0, 1}))]), 16);
  EXPECT_EQ(touched_bytes(m.g.values[std::size_t(x)]), 16);
}

TEST(Cost, ATableIsReadWhereItIsLookedUp) {
  GraphMaker m;
  const ValueId table = m.outside(Role::parameter, {1'000'000, 16}), index = m.outside(Role::input, {4}, c10::ScalarType::Long);
  m.make("aten::embedding", {tensor(table), tensor(index)}, {4, 16});
  EXPECT_LT(library_seconds(m.g, m.g.nodes[0]), 2 * rates::library_call);
}

TEST(Cost, ViewsCostTheirCall) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {1 << 20});
  m.node("aten::view", {tensor(x), test::ints({1 << 20})}, {x});
  EXPECT_DOUBLE_EQ(library_seconds(m.g, m.g.nodes[0]), rates::library_call);
}

/// y = exp(x), z = y * w in one kernel.
struct Pair : GraphMaker {
  ValueId x = outside(Role::input, {1 << 20}), w = outside(Role::input, {1 << 20});
  ValueId y = make("aten::neg", {tensor(x)}, {1 << 20}), z = make("aten::mul.Tensor", {tensor(y), tensor(w)}, {1 << 20});
  Group kernel{Group::Kind::kernel, Side::forward, {0, 1}, false};
  std::vector<const Node*> nodes{&g.nodes[0], &g.nodes[1]};
  std::vector<char> absent{false, false, true, false};
  double array = 4.0 * (1 << 20) / rates::bytes;  // seconds
};

TEST(Cost, AKernelReadsAndWritesWhatItSharesWithOthers) {
  const Pair p;
  EXPECT_DOUBLE_EQ(GroupCosts(p.g).of(p.kernel, p.nodes, p.absent).memory, 3 * p.array);
  EXPECT_DOUBLE_EQ(GroupCosts(p.g).of(p.kernel, p.nodes, {false, false, false, false}).memory, 4 * p.array);
}

TEST(Cost, TheShareOfANodeIsItsOperandsLessWhatOthersNeedNotRead) {
  const Pair p;
  const GroupCosts costs(p.g);
  EXPECT_DOUBLE_EQ(costs.share_of({p.nodes[0]}, costs.names_of(p.nodes), p.absent).memory, 0);  // x comes in instead of y
}

}  // namespace
}  // namespace tandem
