// Which nodes become one kernel: one test per rule.
#include "partitioner/fuse.h"

#include "tests/partitioner/fuse_checks.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using test::fused_text;
using test::GraphMaker;
using test::ints;
using test::none;
using test::number;
using test::Sizes;
using test::tensor;

const Argument keep = number(Constant(true)), drop = number(Constant(false));

struct Maker : GraphMaker {
  ValueId x = outside(Role::input, {8, 6});

  ValueId unary(const std::string& op, ValueId of) { return make("aten::" + op, {tensor(of)}, at(of).sizes); }
  ValueId mul(ValueId a, ValueId b) { return make("aten::mul.Tensor", {tensor(a), tensor(b)}, at(a).sizes); }
  ValueId call(ValueId of) { return make("aten::cumsum", {tensor(of), number(0), none()}, at(of).sizes); }  // a library call
  ValueId sum(ValueId of, Sizes dims, Sizes result) {
    return make("aten::sum.dim_IntList", {tensor(of), ints(std::move(dims)), keep, none()}, result);
  }
  ValueId softmax(ValueId of) { return make("aten::_softmax", {tensor(of), number(-1), drop}, at(of).sizes); }
  ValueId in_place(const std::string& op, ValueId of) { return write("aten::" + op, {tensor(of)}, of); }
  ValueId flat(ValueId of) { return viewed(of, {48}, {1}); }
  ValueId viewed(ValueId of, const Sizes& sizes, const Sizes& strides) {
    const ValueId v = view(of, sizes, strides);
    node("aten::view", {tensor(of), ints(sizes)}, {v});
    return v;
  }
  const Value& at(ValueId v) const { return g.values[static_cast<std::size_t>(v)]; }
  std::string text(const PartitionSwitches& switches = {}) {
    g.outputs.push_back(static_cast<ValueId>(g.values.size() - 1));
    return fused_text(g, switches);
  }
};

// ---- who meets whom ----

TEST(Fuse, MakersAndReadersAreOneKernel) {
  Maker m;
  const ValueId a = m.unary("exp", m.x), b = m.unary("tanh", m.x);
  m.mul(a, b);
  EXPECT_EQ(m.text(), "exp+tanh+mul");
}

TEST(Fuse, ALoneLoopIsAKernel) {
  Maker m;
  m.unary("exp", m.call(m.x));
  EXPECT_EQ(m.text(), "!cumsum; exp");
}

TEST(Fuse, ReadersOfALargeOperandAreOneKernel) {
  Maker m;
  m.unary("exp", m.x);
  m.unary("tanh", m.x);
  EXPECT_EQ(m.text(), "exp+tanh");
}

TEST(Fuse, ReadersOfASmallOperandAreNot) {
  Maker m;
  const ValueId bias = m.outside(Role::parameter, {6}), y = m.outside(Role::input, {8, 6});
  m.mul(m.x, bias);
  m.mul(y, bias);
  EXPECT_EQ(m.text(), "mul; &mul");
}

TEST(Fuse, ReadersOfTwoPartsOfOneStorageAreNot) {
  Maker m;
  m.unary("exp", m.view(m.x, {4, 6}, {6, 1}, 0));
  m.unary("tanh", m.view(m.x, {4, 6}, {6, 1}, 24));
  EXPECT_EQ(m.text(), "exp; &tanh");
}

TEST(Fuse, ReadersWithManyCallsBetweenAreNot) {
  Maker m;
  m.unary("exp", m.x);
  const ValueId other = m.outside(Role::input, {8, 6});
  ValueId y = other;
  for (int i = 0; i < 5; ++i) y = m.call(y);
  m.unary("tanh", m.x);
  EXPECT_EQ(m.text(), "exp; !cumsum; !cumsum; !cumsum; !cumsum; !cumsum; tanh");
}

TEST(Fuse, ACallBetweenKeepsMakerAndReaderApart) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.mul(a, m.call(a));
  EXPECT_EQ(m.text(), "exp; !cumsum; mul");
}

TEST(Fuse, ACallThatReadsTheMakerDoesNotKeepAnotherReaderApart) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.call(a);
  m.unary("tanh", a);
  EXPECT_EQ(m.text(), "exp+tanh; !cumsum");
}

TEST(Fuse, DoesNotReachAcrossSides) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.side = Side::backward;
  const ValueId b = m.unary("tanh", a);
  m.side = Side::update;
  m.unary("neg", b);
  EXPECT_EQ(m.text(), "exp; tanh; neg");
}

TEST(Fuse, StretchesOfASideStayApart) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.side = Side::backward;
  m.unary("tanh", a);
  m.side = Side::forward;
  m.unary("neg", a);
  EXPECT_EQ(m.text(), "exp; tanh; neg");
}

TEST(Fuse, WithoutTheSwitchEachNodeStandsAlone) {
  Maker m;
  m.unary("tanh", m.flat(m.unary("exp", m.x)));
  PartitionSwitches off;
  off.fuse = false;
  EXPECT_EQ(m.text(off), "!exp; [view]; !tanh");
}

// ---- views and what runs once ----

TEST(Fuse, AViewBetweenDoesNotSeparate) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.unary("tanh", m.viewed(a, {8, 6}, {6, 1}));
  EXPECT_EQ(m.text(), "exp+tanh; [view]");
}

TEST(Fuse, AViewComesBeforeACallThatReadsIt) {
  Maker m;
  const ValueId a = m.unary("exp", m.x), b = m.unary("tanh", a);
  m.call(m.flat(a));
  m.unary("neg", b);
  EXPECT_EQ(m.text(), "exp+tanh+neg; [view]; !cumsum");
}

TEST(Fuse, AViewComesBeforeWhatItNamesIsOverwritten) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.flat(a);
  m.in_place("relu_", a);
  EXPECT_EQ(m.text(), "exp; [view]; relu_");
}

TEST(Fuse, WhatRunsOnceStandsFirstAndAlone) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  const ValueId c = m.full({8, 6}, 2);
  m.g.nodes.back().folded = true;
  m.mul(a, c);
  EXPECT_EQ(m.text(), "{full}; exp+mul");
}

// ---- what fits into one loop ----

TEST(Fuse, OtherSizesAreOtherKernels) {
  Maker m;
  m.unary("exp", m.x);
  m.unary("exp", m.outside(Role::input, {6, 8}));
  EXPECT_EQ(m.text(), "exp; &exp");
}

TEST(Fuse, AnotherShapeOfTheSameElementsFits) {
  Maker m;
  m.unary("tanh", m.flat(m.unary("exp", m.x)));
  EXPECT_EQ(m.text(), "exp+tanh; [view]");
}

TEST(Fuse, AnotherComputeDtypeIsAnotherKernel) {
  Maker m;
  const ValueId d =
      m.make("aten::_to_copy", {tensor(m.x), number(7), none(), none(), none(), drop, none()}, {8, 6}, {}, c10::ScalarType::Double);
  m.make("aten::exp", {tensor(d)}, {8, 6}, {}, c10::ScalarType::Double);
  EXPECT_EQ(m.text(), "_to_copy; exp");
}

TEST(Fuse, ATransposedReaderOfAMemberIsAnotherKernel) {
  Maker m;
  const ValueId square = m.outside(Role::input, {8, 8}), a = m.unary("exp", square);
  m.unary("tanh", m.viewed(a, {8, 8}, {1, 8}));
  EXPECT_EQ(m.text(), "exp; [view]; tanh");
}

TEST(Fuse, WritingInPlaceFitsWhereEverybodyMeansTheSameElement) {
  Maker m;
  const ValueId a = m.call(m.x);
  m.unary("exp", m.in_place("relu_", a));
  EXPECT_EQ(m.text(), "!cumsum; relu_+exp");
}

TEST(Fuse, WritingInPlaceWhatIsReadInAnotherGeometryIsAnotherKernel) {
  Maker m;
  const ValueId a = m.outside(Role::buffer, {8, 8}), other = m.outside(Role::input, {8, 8});
  const ValueId b = m.mul(other, m.view(a, {8, 8}, {1, 8}));
  m.write("aten::copy_", {tensor(a), tensor(b), drop}, a);
  EXPECT_EQ(m.text(), "mul; copy_");
}

TEST(Fuse, AReaderOfTheOldVersionComesFirst) {
  Maker m;
  const ValueId a = m.call(m.x);
  m.call(a);
  m.in_place("relu_", a);
  EXPECT_EQ(m.text(), "!cumsum; !cumsum; relu_");
}

// ---- reductions ----

TEST(Fuse, ElementsThenARowReductionThenElements) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.make("aten::div.Tensor", {tensor(a), tensor(m.sum(a, {1}, {8, 1}))}, {8, 6});
  EXPECT_EQ(m.text(), "exp+sum+div");
}

TEST(Fuse, RowReductionsOverTheSameDimsMeet) {
  Maker m;
  m.unary("exp", m.softmax(m.softmax(m.x)));
  EXPECT_EQ(m.text(), "_softmax+_softmax+exp");
}

TEST(Fuse, RowReductionsOverOtherDimsDoNot) {
  Maker m;
  const ValueId cube = m.outside(Role::input, {4, 3, 5}), a = m.softmax(cube);
  m.make("aten::sub.Tensor", {tensor(a), tensor(m.sum(a, {1, 2}, {4, 1, 1})), number(1)}, {4, 3, 5});
  EXPECT_EQ(m.text(), "_softmax; sum+sub");
}

TEST(Fuse, AColumnReductionIsALastMember) {
  Maker m;
  const ValueId a = m.softmax(m.x);
  m.sum(a, {0}, {1, 6});
  EXPECT_EQ(m.text(), "_softmax+sum");
}

TEST(Fuse, NoMemberReadsAColumnReduction) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.make("aten::sub.Tensor", {tensor(a), tensor(m.sum(a, {0}, {1, 6})), number(1)}, {8, 6});
  EXPECT_EQ(m.text(), "exp+sum; sub");
}

TEST(Fuse, NoMemberReadsATotal) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.make("aten::sub.Tensor", {tensor(a), tensor(m.sum(a, {0, 1}, {1, 1})), number(1)}, {8, 6});
  EXPECT_EQ(m.text(), "exp+sum; sub");
}

TEST(Fuse, ASoftmaxOverOuterDimsIsALibraryCall) {
  Maker m;
  m.make("aten::_softmax", {tensor(m.x), number(0), drop}, {8, 6});
  EXPECT_EQ(m.text(), "!_softmax");
}

TEST(Fuse, ColumnSumsOfLayerNormBackwardMeetRowSums) {
  Maker m;
  const ValueId mean = m.outside(Role::input, {8, 1}), a = m.unary("exp", m.x), r = m.fresh({8, 6});
  m.node("aten::native_layer_norm_backward",
         {tensor(a), tensor(m.x), ints({6}), tensor(mean), tensor(mean), tensor(-1), tensor(-1),
          number(Constant(std::vector<bool>{true, true, true}))},
         {r, m.fresh({6}), m.fresh({6})});
  m.unary("neg", r);
  EXPECT_EQ(m.text(), "exp+native_layer_norm_backward+neg");
}

// ---- limits ----

TEST(Fuse, AKernelHasAtMost64Nodes) {
  Maker m;
  ValueId v = m.x;
  for (int i = 0; i < 100; ++i) v = m.unary("exp", v);
  std::size_t most = 0;
  const auto groups = test::fused(m.g);
  for (const Group& group : groups) most = std::max(most, group.nodes.size());
  EXPECT_EQ(most, 64u);
  EXPECT_EQ(groups.size(), 2u);
}

TEST(Fuse, AKernelHasAtMost24OperandsOutside) {
  Maker m;
  ValueId v = m.x;
  for (int i = 0; i < 40; ++i) v = m.mul(v, m.outside(Role::input, {8, 6}));
  m.g.outputs = {v};
  const auto groups = test::fused(m.g);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups.front().nodes.size(), 22u);  // 23 operands and a result
}

// ---- joined ----

TEST(Fuse, KernelsOfTheUpdateAreBroughtTogether) {
  Maker m;
  m.side = Side::update;
  const ValueId p = m.outside(Role::parameter, {4}), q = m.outside(Role::parameter, {6});
  m.in_place("relu_", m.in_place("neg_", p));
  m.flat(m.x);
  m.in_place("relu_", m.in_place("neg_", q));
  EXPECT_EQ(m.text(), "[view]; neg_+relu_; &neg_+relu_");
}

TEST(Fuse, WithoutTheSwitchKernelsOfTheUpdateAreNotJoined) {
  Maker m;
  m.side = Side::update;
  m.in_place("neg_", m.outside(Role::parameter, {4}));
  m.in_place("neg_", m.outside(Role::parameter, {6}));
  PartitionSwitches off;
  off.fuse_update = false;
  EXPECT_EQ(m.text(off), "neg_; neg_");
}

TEST(Fuse, DependentKernelsAreNotJoined) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.sum(m.unary("tanh", m.outside(Role::input, {5})), {0}, {1});
  m.unary("neg", m.make("aten::mul.Tensor", {tensor(m.sum(a, {0}, {1, 6})), tensor(m.outside(Role::input, {1, 6}))}, {1, 6}));
  EXPECT_EQ(m.text(), "tanh+sum; &exp+sum; mul+neg");
}

TEST(Fuse, CallsKeepTheirOrderWhereAKernelStandsLate) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.make("aten::cumprod", {tensor(a), number(0), none()}, {8, 6});
  m.call(m.x);
  m.unary("tanh", a);
  EXPECT_EQ(m.text(), "exp+tanh; !cumprod; !cumsum");
}

TEST(Fuse, AKernelRunsWhereItsLastMemberStandsUnlessSomethingWaits) {
  Maker m;
  const ValueId a = m.unary("exp", m.x);
  m.call(m.x);
  m.make("aten::cumprod", {tensor(a), number(0), none()}, {8, 6});
  m.unary("tanh", a);
  EXPECT_EQ(m.text(), "!cumsum; exp+tanh; !cumprod");
}

TEST(Fuse, AWriteThatOutlivesTheStepDoesNotPassACallThatMayThrow) {
  Maker m;
  const ValueId buffer = m.outside(Role::buffer, {8, 6}), labels = m.outside(Role::input, {8}, c10::ScalarType::Long);
  const auto lookup = [&] { m.make("aten::embedding", {tensor(m.x), tensor(labels), number(-1), drop, drop}, {8, 6}); };
  const ValueId after = m.in_place("relu_", buffer);
  lookup();
  m.unary("exp", after);
  EXPECT_EQ(m.text(), "relu_+exp; !embedding");
  lookup();
  m.in_place("relu_", after);
  m.unary("neg", m.x);
  EXPECT_EQ(m.text(), "relu_+exp; !embedding; !embedding; relu_; &neg");
}

TEST(Fuse, OfAnEmptyGraphIsNothing) { EXPECT_TRUE(fuse(Graph{}, {}).empty()); }

}  // namespace
}  // namespace tandem
