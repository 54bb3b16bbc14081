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

/// What validate() says of the small step's partition after one change.
template <class Change>
std::string after(Change&& change) {
  const Graph g = parse_graph(test::small_step);
  Partition p = partition(g);
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
  Partition p = partition(m.g);
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
  Partition p = partition(m.g);
  std::swap(p.groups[0], p.groups[1]);
  EXPECT_EQ(validate(m.g, p), "node 0 aten::rand_like (forward) runs after node 1 aten::rand_like (forward), in the graph it comes before");
}

// ---- recomputation ----

/// loss = sum(exp(x)); the backward reads exp(x), which it makes again.
struct Recomputing {
  Graph g;
  Partition p;

  explicit Recomputing(const std::string& op = "aten::exp") {
    GraphMaker m;
    const ValueId x = m.outside(Role::input, {4});
    const ValueId y = m.make(op, {tensor(x)}, {4});
    m.g.loss = m.sum(y);
    m.side = Side::backward;
    m.make("aten::neg", {tensor(y)}, {4});
    g = m.g;
    p = partition(g);
    p.saved.clear();
    p.saved_bytes = 0;
    p.recomputed = {0};
    p.groups.insert(p.groups.begin() + 2, Group{Group::Kind::library, Side::backward, {0}});
  }
};

TEST(Validate, ARecomputedActivationIsNotSaved) {
  Recomputing r;
  EXPECT_EQ(validate(r.g, r.p), "");
  r.p.saved = {1};
  r.p.saved_bytes = 16;
  EXPECT_EQ(validate(r.g, r.p), "s1 is saved, but nothing after the forward reads what the forward made there");
}

TEST(Validate, ARecomputedNodeRunsOnBothSides) {
  Recomputing r;
  r.p.groups.erase(r.p.groups.begin() + 2);
  EXPECT_EQ(validate(r.g, r.p),
            "node 0 aten::exp (forward) is recomputed and is in groups, expected one of the forward and one of the backward, found 1");
}

TEST(Validate, RecomputedTooLateDoesNotHelp) {
  Recomputing r;
  std::swap(r.p.groups[2], r.p.groups[3]);
  EXPECT_EQ(validate(r.g, r.p), "s1 is read after the forward, but it is not saved");
}

TEST(Validate, RecomputedNamesANodeOnce) {
  Recomputing r;
  r.p.recomputed = {0, 0};
  EXPECT_EQ(validate(r.g, r.p), "node 0 aten::exp (forward) is recomputed twice");
}

TEST(Validate, RecomputedNamesNodesOfTheGraph) {
  Recomputing r;
  r.p.recomputed = {7};
  EXPECT_EQ(validate(r.g, r.p), "recomputed names node 7, the graph has none of that number");
}

TEST(Validate, OnlyForwardNodesAreRecomputed) {
  Recomputing r;
  r.p.recomputed = {2};
  EXPECT_EQ(validate(r.g, r.p), "node 2 aten::neg (backward) is recomputed, but only forward nodes may be");
}

TEST(Validate, RandomAndUnknownNodesAreNotRecomputed) {
  for (const std::string op : {"aten::bernoulli", "mine::thing"}) {
    const Recomputing r(op);
    EXPECT_EQ(validate(r.g, r.p), "node 0 " + op + " (forward) is recomputed, but it draws random numbers, has effects or is unknown");
  }
}

TEST(Validate, FoldedNodesAreNotRecomputed) {
  Recomputing r;
  r.g.nodes[0].folded = true;
  EXPECT_EQ(validate(r.g, r.p), "node 0 aten::exp (forward) is recomputed, but it runs once for all steps");
}

TEST(Validate, WritesAreNotRecomputed) {
  GraphMaker m;
  const ValueId w = m.outside(Role::buffer, {4});
  m.g.loss = m.sum(m.write("aten::exp_", {tensor(w)}, w));
  Partition p = partition(m.g);
  p.recomputed = {0};
  EXPECT_EQ(validate(m.g, p), "node 0 aten::exp_ (forward) is recomputed, but it writes s0");
}

}  // namespace
}  // namespace tandem
