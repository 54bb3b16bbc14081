// The graph in which chosen nodes run again computes the same bits.
#include "partitioner/recompute.h"

#include "autograd/text.h"
#include "autograd/verify.h"
#include "partitioner/cut.h"
#include "partitioner/evaluate.h"
#include "tests/partitioner/random_step.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using test::GraphMaker;
using test::tensor;

Recomputation all_again(const Graph& g) {
  const Activations a = activations_of(g);
  Choice all;
  for (const Unit& u : a.units) all.push_back(!u.pinned);
  return run_again(g, a, needed_only(a, all));
}

/// y = tanh(exp(x)) is read by the last of two nodes of the backward.
struct Small : GraphMaker {
  ValueId x = outside(Role::input, {4}), y = make("aten::tanh", {tensor(make("aten::exp", {tensor(x)}, {4}))}, {4});
  Small() {
    g.nodes[1].ran_for = "Double#1";
    g.nodes[1].created = {"TanhBackward0#2"};
    g.loss = sum(y);
    side = Side::backward;
    make("aten::neg", {tensor(x)}, {4});
    make("aten::neg", {tensor(y)}, {4});
  }
};

TEST(Recompute, CopiesStandRightBeforeTheFirstReader) {
  const Recomputation r = all_again(Small().g);
  EXPECT_EQ(test::ops(r.graph), "exp tanh sum neg exp tanh neg");
  EXPECT_EQ(r.nodes, (std::vector<Recomputed>{{0, 5}, {1, 6}}));
  EXPECT_EQ(verify(r.graph), "");
}

TEST(Recompute, CopiesAreOfTheBackwardAndCreateNothing) {
  const Recomputation r = all_again(Small().g);
  const Node& copy = r.graph.nodes[5];
  EXPECT_EQ(copy.side, Side::backward);
  EXPECT_EQ(copy.ran_for, "Double#1");
  EXPECT_TRUE(copy.created.empty());
}

TEST(Recompute, TheBackwardReadsTheCopyAndTheForwardTheOriginal) {
  const Small s;
  const Graph g = all_again(s.g).graph;
  EXPECT_EQ(g.nodes[6].args[0].values, g.nodes[5].results[0].values);
  EXPECT_EQ(g.nodes[2].args[0].values, (std::vector<ValueId>{s.y}));
}

TEST(Recompute, NothingChosenIsTheGraphItself) {
  const Graph g = Small().g;
  const Activations a = activations_of(g);
  const Recomputation r = run_again(g, a, Choice(a.units.size(), false));
  EXPECT_EQ(first_difference(r.graph, g), "");
  EXPECT_EQ(r.graph.made_by, g.made_by);
  EXPECT_TRUE(r.nodes.empty());
}

TEST(Recompute, ViewsOfTheBackwardLieOnTheCopy) {
  Small s;
  const ValueId view = s.view(s.y, {2, 2}, {2, 1});
  s.node("aten::view", {tensor(s.y), test::ints({2, 2})}, {view});
  s.make("aten::neg", {tensor(view)}, {2, 2});
  const Graph g = all_again(s.g).graph;
  EXPECT_EQ(verify(g), "");
  const Value& read = g.values[std::size_t(g.nodes.back().args[0].values[0])];
  EXPECT_EQ(read.storage, g.values[std::size_t(g.nodes[5].results[0].values[0])].storage);
  EXPECT_EQ(read.sizes, (std::vector<std::int64_t>{2, 2}));
}

TEST(Recompute, WhatIsKeptAnywayIsReadWhereItLies) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4}), out = m.fresh({4}), mean = m.fresh({1}), rstd = m.fresh({1});
  m.node("aten::native_layer_norm", {tensor(x), test::ints({4}), test::none(), test::none(), test::number(1e-5)}, {out, mean, rstd});
  m.g.loss = m.sum(x);
  m.g.outputs = {out};
  m.side = Side::backward;
  m.make("aten::neg", {tensor(mean)}, {1});
  m.make("aten::neg", {tensor(out)}, {4});
  const Recomputation r = all_again(m.g);
  EXPECT_EQ(r.nodes, (std::vector<Recomputed>{{0, 4}}));
  EXPECT_EQ(r.graph.nodes.back().args[0].values, (std::vector<ValueId>{out}));
}

TEST(Recompute, ForTheUpdateRunsBeforeTheUpdate) {
  Small s;
  s.g.nodes.pop_back();
  s.side = Side::update;
  s.make("aten::neg", {tensor(s.x)}, {4});
  s.make("aten::neg", {tensor(s.y)}, {4});
  const Graph g = all_again(s.g).graph;
  EXPECT_EQ(verify(g), "");
  EXPECT_EQ(test::ops(g), "exp tanh sum neg exp tanh neg neg");
}

TEST(Recompute, TheBitsAreTheSameOnRandomGraphs) {
  std::size_t copies = 0, in_place = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Graph g = test::RandomStep(seed).make();
    ASSERT_EQ(verify(g), "") << seed << '\n' << print(g);
    const Recomputation r = all_again(g);
    ASSERT_EQ(verify(r.graph), "") << seed << '\n' << print(g) << print(r.graph);
    ASSERT_EQ(print(parse_graph(print(r.graph))), print(r.graph));
    ASSERT_EQ(test::first_different(test::run(g), test::run(r.graph)), -1) << seed << '\n' << print(g) << print(r.graph);
    copies += r.nodes.size();
    for (const Recomputed& x : r.nodes)
      for (const Node& n : r.graph.nodes) in_place += n.id == x.as && !n.writes.empty();
  }
  EXPECT_GT(copies, 300u);
  EXPECT_GT(in_place, 20u);
}

TEST(Recompute, TheBitsAreTheSameForAnySetOnRandomGraphs) {
  std::mt19937 random(7);
  for (unsigned seed = 300; seed < 600; ++seed) {
    const Graph g = test::RandomStep(seed).make();
    const Activations a = activations_of(g);
    Choice some;
    for (const Unit& u : a.units) some.push_back(!u.pinned && random() % 2);
    const Recomputation r = run_again(g, a, needed_only(a, some));
    ASSERT_EQ(verify(r.graph), "") << seed;
    ASSERT_EQ(test::first_different(test::run(g), test::run(r.graph)), -1) << seed << '\n' << print(g) << print(r.graph);
  }
}

}  // namespace
}  // namespace tandem
