// Each rule of validate() against a sound partition in which just that rule is broken.
#include "autograd/text.h"
#include "partitioner/partition.h"
#include "tests/autograd/graph_samples.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

#include <utility>

namespace tandem {
namespace {

using test::GraphMaker;
using test::none;
using test::tensor;

Partition eager(const Graph& g) {
  PartitionSwitches switches;
  switches.recompute = switches.fuse = false;
  return partition(g, switches).partition;
}

/// What validate() says of the small step's partition after one change.
template <class Change>
std::string after(Change&& change) {
  const Graph g = parse_graph(test::small_step);
  Partition p = eager(g);
  EXPECT_EQ(validate(g, p), "");
  change(p);
  return validate(g, p);
}

TEST(Validate, EveryNodeRuns) {
  EXPECT_EQ(after([](Partition& p) { p.groups.erase(p.groups.begin() + 2); }),
            "node 2 aten::sum (forward) is in groups, expected one, found 0");
}

TEST(Validate, NoNodeRunsTwice) {
  EXPECT_EQ(after([](Partition& p) { p.groups.insert(p.groups.begin() + 2, p.groups[1]); }),
            "node 1 aten::mm (forward) is in groups, expected one, found 2");
}

TEST(Validate, GroupsNameNodesOfTheGraph) {
  EXPECT_EQ(after([](Partition& p) { p.groups[1].nodes = {99}; }), "group 1 names node 99, the graph has none of that number");
}

TEST(Validate, GroupsAreNotEmpty) {
  EXPECT_EQ(after([](Partition& p) { p.groups[1].nodes.clear(); }), "group 1 (library) has no node");
}

TEST(Validate, ALibraryGroupIsOneCall) {
  EXPECT_EQ(after([](Partition& p) { p.groups[1].nodes.push_back(2); }), "group 1 is one library call, expected one node, found 2");
}

TEST(Validate, AGroupIsOnTheSideOfItsNodes) {
  EXPECT_EQ(after([](Partition& p) { p.groups[1].side = Side::backward; }), "node 1 aten::mm (forward) is in group 1 of the backward");
}

TEST(Validate, AnUnfoldedNodeDoesNotRunOnce) {
  EXPECT_EQ(after([](Partition& p) { p.groups[1].kind = Group::Kind::once; }),
            "node 1 aten::mm (forward) is not folded, but group 1 is of kind once");
}

TEST(Validate, AFoldedNodeRunsOnce) {
  EXPECT_EQ(after([](Partition& p) { p.groups[7].kind = Group::Kind::library; }),
            "node 7 aten::full (backward) is folded, but group 7 is of kind library");
}

TEST(Validate, AViewGroupHoldsViews) {
  EXPECT_EQ(after([](Partition& p) { p.groups[1].kind = Group::Kind::view; }),
            "node 1 aten::mm (forward) is in group 1 of kind view, but it is more than a view");
}

TEST(Validate, AViewGroupMakesNoMemory) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  m.g.loss = m.sum(m.make("aten::view", {tensor(x), test::ints({4})}, {4}));
  Partition p = eager(m.g);
  p.groups[0].kind = Group::Kind::view;
  EXPECT_EQ(validate(m.g, p), "node 0 aten::view (forward) is in group 0 of kind view, but its result %1 has memory of its own");
}

TEST(Validate, OperandsExistBeforeTheyAreRead) {
  EXPECT_EQ(after([](Partition& p) { std::swap(p.groups[1], p.groups[2]); }), "node 2 aten::sum (forward) reads %3 before s2 is made");
}

TEST(Validate, OperandsHaveTheirVersion) {
  EXPECT_EQ(after([](Partition& p) { std::swap(p.groups[8], p.groups[9]); }),
            "node 8 aten::t (backward) reads %8 at version 0 of s5, which is at version 1 when its group runs");
}

TEST(Validate, WhatRunsOnceRanBeforeEverything) {
  EXPECT_EQ(after([](Partition& p) { std::rotate(p.groups.begin() + 7, p.groups.begin() + 8, p.groups.end()); }), "");
}

TEST(Validate, WhatCrossesIsSaved) {
  EXPECT_EQ(after([](Partition& p) { p.saved.clear(); }), "s3 is read after the forward, but it is not saved");
}

TEST(Validate, WhatIsSavedCrosses) {
  EXPECT_EQ(after([](Partition& p) { p.saved = {2, 3}; }), "s2 is saved, but nothing after the forward reads what the forward made there");
}

TEST(Validate, SavedIsAscending) {
  EXPECT_EQ(after([](Partition& p) { p.saved = {3, 3}; }), "saved lists s3 after s3, expected ascending numbers");
}

TEST(Validate, SavedNamesStoragesOfTheGraph) {
  EXPECT_EQ(after([](Partition& p) { p.saved = {-1}; }), "saved names s-1, there are 7 storages");
}

TEST(Validate, SavedBytesAreTheirSum) {
  EXPECT_EQ(after([](Partition& p) { p.saved_bytes = 5; }), "the saved storages have 4 bytes, the partition says 5");
}

TEST(Validate, RandomNodesKeepTheirOrder) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  for (int i = 0; i < 2; ++i) m.make("aten::rand_like", {tensor(x), none(), none(), none(), none(), none()}, {4});
  m.g.loss = m.sum(x);
  Partition p = eager(m.g);
  std::swap(p.groups[0], p.groups[1]);
  EXPECT_EQ(validate(m.g, p), "node 0 aten::rand_like (forward) runs after node 1 aten::rand_like (forward), in the graph it comes before");
}

// ---- kernels ----

/// y = exp(x), z = neg(x), y += z, as two kernels.
struct Kernels {
  GraphMaker m;
  ValueId x = m.outside(Role::input, {4}), y = m.make("aten::exp", {tensor(x)}, {4}), z = m.make("aten::neg", {tensor(x)}, {4});
  Partition p;

  Kernels() { p.groups = {kernel({0}), kernel({1})}; }
  static Group kernel(std::vector<NodeId> nodes, bool joined = false) {
    return {Group::Kind::kernel, Side::forward, std::move(nodes), joined};
  }
  std::string verdict() const { return validate(m.g, p); }
};

TEST(Validate, AKernelHoldsSeveralNodesInOrder) {
  Kernels k;
  k.m.make("aten::tanh", {tensor(k.y)}, {4});
  k.p.groups = {Kernels::kernel({0, 1, 2})};
  EXPECT_EQ(k.verdict(), "");
  k.p.groups = {Kernels::kernel({2, 0, 1})};
  EXPECT_EQ(k.verdict(), "node 2 aten::tanh (forward) reads %1 before s1 is made");
}

TEST(Validate, AKernelDrawsNothingAndDoesNotThrow) {
  const std::string sentence = " (forward) is in group 1 of kind kernel, but it draws random numbers, may throw, has effects or is unknown";
  for (const std::string op : {"aten::bernoulli", "aten::index_select", "mine::thing"}) {
    Kernels k;
    k.m.g.nodes[1].op = op;
    EXPECT_EQ(k.verdict(), "node 1 " + op + sentence);
  }
}

TEST(Validate, IndependentKernelsMayBeJoined) {
  Kernels k;
  k.p.groups[1].joined = true;
  EXPECT_EQ(k.verdict(), "");
}

TEST(Validate, JoinedKernelsDoNotReadEachOthersResults) {
  Kernels k;
  k.m.make("aten::tanh", {tensor(k.y)}, {4});
  k.p.groups = {Kernels::kernel({0}), Kernels::kernel({1}, true), Kernels::kernel({2}, true)};
  EXPECT_EQ(k.verdict(), "groups 0 and 2 are joined, but one writes s1 and the other names it");
}

TEST(Validate, JoinedKernelsDoNotOverwriteEachOthersOperands) {
  Kernels k;
  k.m.make("aten::tanh", {tensor(k.y)}, {4});
  k.m.write("aten::relu_", {tensor(k.y)}, k.y);
  k.p.groups = {Kernels::kernel({0}), Kernels::kernel({1}), Kernels::kernel({2}), Kernels::kernel({3}, true)};
  EXPECT_EQ(k.verdict(), "groups 2 and 3 are joined, but one writes s1 and the other names it");
  k.p.groups[3].joined = false;
  EXPECT_EQ(k.verdict(), "");
}

TEST(Validate, OnlyKernelsAreJoined) {
  Kernels k;
  k.p.groups[0].joined = true;
  EXPECT_EQ(k.verdict(), "group 0 (kernel) is joined, but it and the group before it are not both kernels");
  k.p.groups[0] = {Group::Kind::library, Side::forward, {0}};
  k.p.groups[1].joined = true;
  EXPECT_EQ(k.verdict(), "group 1 (kernel) is joined, but it and the group before it are not both kernels");
}

TEST(Validate, AKernelWritesMemoryInOneGeometry) {
  Kernels k;
  k.m.write("aten::relu_", {tensor(k.y)}, k.y);
  const ValueId half = k.m.next(k.m.view(k.y, {2}, {1}));
  k.m.make("aten::tanh", {tensor(half)}, {2});
  k.p.groups = {Kernels::kernel({0, 1, 2}), Kernels::kernel({3})};
  EXPECT_EQ(k.verdict(), "");
  k.p.groups = {Kernels::kernel({0, 1, 2, 3})};
  EXPECT_EQ(k.verdict(), "group 0 of kind kernel writes s1 and names it with two geometries");
}

TEST(Validate, TheSamePlaceInOtherDimsIsOneGeometry) {
  Kernels k;
  const ValueId square = k.m.view(k.y, {2, 1, 2}, {2, 7, 1});
  k.m.write("aten::relu_", {tensor(k.y)}, k.y);
  k.m.make("aten::tanh", {tensor(k.m.next(square))}, {2, 1, 2});
  k.p.groups = {Kernels::kernel({0, 1, 2, 3})};
  EXPECT_EQ(k.verdict(), "");
}

}  // namespace
}  // namespace tandem
