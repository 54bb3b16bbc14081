// What may run again, and that the cut is the cheapest of all sets.
#include "partitioner/cut.h"

#include "autograd/verify.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

namespace tandem {
namespace {

using test::GraphMaker;
using test::none;
using test::number;
using test::tensor;

constexpr double dear = 1.0;  // seconds per byte: whatever may run again does

/// Ops of the nodes that run again when time costs nothing to speak of.
std::string again(const Graph& g) {
  EXPECT_EQ(verify(g), "");
  const Activations a = activations_of(g);
  const Choice choice = cheapest(g, a, std::vector<double>(a.units.size(), 1e-9), dear);
  std::set<std::size_t> nodes;
  for (std::size_t u = 0; u < choice.size(); ++u)
    if (choice[u]) nodes.insert(a.units[u].nodes.begin(), a.units[u].nodes.end());
  std::string out;
  for (std::size_t i : nodes) out += (out.empty() ? "" : " ") + g.nodes[i].op.substr(6);
  return out;
}

std::vector<StorageId> saved(const Graph& g, double seconds, double seconds_per_byte) {
  const Activations a = activations_of(g);
  return saved_under(a, cheapest(g, a, std::vector<double>(a.units.size(), seconds), seconds_per_byte));
}

struct Step : GraphMaker {
  ValueId x = outside(Role::input, {4});

  ValueId exp(ValueId of) { return make("aten::exp", {tensor(of)}, {4}); }
  ValueId mul(ValueId a, ValueId b) { return make("aten::mul.Tensor", {tensor(a), tensor(b)}, {4}); }

  /// Ends the forward; the backward reads the values.
  Graph& read_later(std::initializer_list<ValueId> values) {
    g.loss = sum(x);
    side = Side::backward;
    for (ValueId v : values) make("aten::neg", {tensor(v)}, g.values[std::size_t(v)].sizes);
    return g;
  }
};

TEST(Cut, RecomputesWhatComesFromInputs) {
  Step s;
  EXPECT_EQ(again(s.read_later({s.exp(s.x)})), "exp");
}

TEST(Cut, SavesWhenTimeIsDearer) {
  Step s;
  const ValueId y = s.exp(s.x);
  const Graph& g = s.read_later({y});
  EXPECT_EQ(saved(g, 1e-6, 1e-9), (std::vector<StorageId>{g.values[std::size_t(y)].storage}));
}

TEST(Cut, RecomputesWhereBothCostTheSame) {
  Step s;
  EXPECT_EQ(saved(s.read_later({s.exp(s.x)}), 16e-9, 1e-9), std::vector<StorageId>{});
}

TEST(Cut, RecomputesChainsWithASharedAncestorOnce) {
  Step s;
  const ValueId a = s.exp(s.x), b = s.mul(a, a), c = s.mul(a, s.x);
  EXPECT_EQ(again(s.read_later({b, c})), "exp mul.Tensor mul.Tensor");
}

TEST(Cut, DoesNotRecomputeWhatNobodyNeeds) {
  Step s;
  s.exp(s.x);
  EXPECT_EQ(again(s.read_later({s.mul(s.x, s.x)})), "mul.Tensor");
}

TEST(Cut, NeverRedrawsRandomNumbers) {
  Step s;
  const ValueId out = s.fresh({4}), mask = s.fresh({4}, {}, c10::ScalarType::Bool);
  s.node("aten::native_dropout", {tensor(s.x), number(0.5), number(Constant(true))}, {out, mask}).effects.random = true;
  EXPECT_EQ(again(s.read_later({s.mul(out, s.x), out, mask})), "mul.Tensor");
}

TEST(Cut, NeverRedrawsWhatIsKnownToDrawThoughNotMarked) {
  Step s;
  EXPECT_EQ(again(s.read_later({s.make("aten::rand_like", {tensor(s.x), none(), none(), none(), none(), none()}, {4})})), "");
}

TEST(Cut, NeverRedrawsIntoMemoryMadeBefore) {
  Step s;
  const ValueId empty = s.make("aten::empty_like", {tensor(s.x), none(), none(), none(), none(), none()}, {4});
  const ValueId mask = s.next(empty);
  Node& n = s.node("aten::bernoulli_.float", {tensor(empty), number(0.5), none()}, {mask});
  n.effects.random = true;
  n.writes = {s.g.values[std::size_t(empty)].storage};
  EXPECT_EQ(again(s.read_later({mask})), "");
}

TEST(Cut, LeavesUnknownOpaqueAndThrowingNodesAlone) {
  Step s;
  const ValueId unknown = s.make("aten::not_in_the_table", {tensor(s.x)}, {4});
  const ValueId opaque = s.exp(s.x);
  s.g.nodes.back().effects.opaque = true;
  const ValueId collective = s.exp(s.x);
  s.g.nodes.back().effects.collective = true;
  const ValueId index = s.outside(Role::input, {4}, c10::ScalarType::Long);
  const ValueId picked = s.make("aten::index_select", {tensor(s.x), number(0), tensor(index)}, {4});
  EXPECT_EQ(again(s.read_later({unknown, opaque, collective, picked})), "");
}

TEST(Cut, LeavesWritersOfBuffersAlone) {
  Step s;
  const ValueId mean = s.outside(Role::buffer, {4}), variance = s.outside(Role::buffer, {4});
  const ValueId out = s.fresh({4}), saved_mean = s.fresh({4}), saved_rstd = s.fresh({4});
  s.node("aten::native_batch_norm",
         {tensor(s.x), none(), none(), tensor(mean), tensor(variance), number(Constant(true)), number(0.1), number(1e-5)},
         {out, saved_mean, saved_rstd})
      .writes = {s.g.values[std::size_t(mean)].storage, s.g.values[std::size_t(variance)].storage};
  EXPECT_EQ(again(s.read_later({s.mul(out, out), out, saved_mean})), "mul.Tensor");
}

TEST(Cut, LeavesWritersAloneThatDoNotReadTheBuffer) {
  Step s;
  const ValueId buffer = s.outside(Role::buffer, {4}), y = s.exp(s.x);
  s.g.nodes.back().writes = {s.g.values[std::size_t(buffer)].storage};
  EXPECT_EQ(again(s.read_later({y})), "");
}

TEST(Cut, DoesNotReadABufferAfterItWasWritten) {
  Step s;
  const ValueId buffer = s.outside(Role::buffer, {4});
  const ValueId scale = s.make("aten::mul.Scalar", {tensor(buffer), number(2)}, {4});
  s.write("aten::mul_.Scalar", {tensor(buffer), number(10)}, buffer);
  EXPECT_EQ(again(s.read_later({scale})), "");
}

TEST(Cut, DoesNotReadABufferThatTheBackwardWrites) {
  Step s;
  const ValueId buffer = s.outside(Role::buffer, {4});
  const ValueId scale = s.make("aten::mul.Scalar", {tensor(buffer), number(2)}, {4});
  s.read_later({scale});
  s.write("aten::mul_.Scalar", {tensor(buffer), number(10)}, buffer);
  EXPECT_EQ(again(s.g), "");
}

TEST(Cut, ReadsABufferThatWasWrittenBefore) {
  Step s;
  const ValueId buffer = s.outside(Role::buffer, {4});
  const ValueId written = s.write("aten::mul_.Scalar", {tensor(buffer), number(10)}, buffer);
  EXPECT_EQ(again(s.read_later({s.exp(written)})), "exp");
}

TEST(Cut, ParametersThatTheUpdateWritesAreStillThere) {
  Step s;
  const ValueId w = s.outside(Role::parameter, {4});
  s.read_later({s.exp(w)});
  s.side = Side::update;
  s.write("aten::mul_.Scalar", {tensor(w), number(2)}, w);
  EXPECT_EQ(again(s.g), "exp");
}

TEST(Cut, WhatIsWrittenInPlaceRunsAgainAsAWhole) {
  Step s;
  const ValueId y = s.exp(s.x), z = s.write("aten::relu_", {tensor(y)}, y);
  EXPECT_EQ(again(s.read_later({s.mul(z, z)})), "exp relu_ mul.Tensor");
}

TEST(Cut, AUnitIsNotRecomputedWhereItsMakingIsReadOnTheWay) {
  Step s;
  const ValueId y = s.exp(s.x), middle = s.mul(y, s.x);
  s.write("aten::relu_", {tensor(y)}, y);
  EXPECT_EQ(again(s.read_later({middle})), "");  // exp(x) exists no more when the backward runs
}

TEST(Cut, AnActivationThatTheBackwardWritesIsSaved) {
  Step s;
  const ValueId y = s.exp(s.x);
  s.read_later({y});
  s.write("aten::relu_", {tensor(y)}, y);
  EXPECT_EQ(again(s.g), "");
}

TEST(Cut, ResultsOfOneNodeRunAgainTogether) {
  Step s;
  const ValueId y = s.exp(s.x), out = s.fresh({4}), mean = s.fresh({1}), rstd = s.fresh({1});
  s.node("aten::native_layer_norm", {tensor(y), test::ints({4}), none(), none(), number(1e-5)}, {out, mean, rstd});
  const Graph& g = s.read_later({mean, rstd});
  const Activations a = activations_of(g);
  EXPECT_EQ(a.units[std::size_t(a.unit_of[std::size_t(g.values[std::size_t(mean)].storage)])].storages.size(), 3u);
  EXPECT_EQ(again(g), "exp native_layer_norm");
}

TEST(Cut, AViewIsPricedByItsStorageOnce) {
  Step s;
  const ValueId y = s.exp(s.x);
  const ValueId wide = s.view(y, {1000, 4}, {0, 1});
  s.node("aten::expand", {tensor(y), test::ints({1000, 4}), number(Constant(false))}, {wide});
  const Graph& g = s.read_later({wide, y});
  EXPECT_EQ(saved(g, 17e-9, 1e-9).size(), 1u);  // 16 bytes are cheaper than 17 ns, 16,000 would not be
  EXPECT_EQ(saved(g, 15e-9, 1e-9).size(), 0u);
}

TEST(Cut, WhatOutlivesTheStepIsSavedForNothing) {
  Step s;
  const ValueId y = s.exp(s.x), z = s.exp(y);
  s.read_later({y, z});
  s.g.outputs = {y};
  EXPECT_EQ(again(s.g), "exp");  // z, out of y
}

TEST(Cut, FoldedValuesAreSavedForNothing) {
  Step s;
  const ValueId c = s.full({4}, 2.0);
  s.g.nodes.back().folded = true;
  EXPECT_EQ(again(s.read_later({c, s.mul(s.x, c)})), "mul.Tensor");
}

// ---- against all sets ----

/// A forward of up to 15 nodes with one or two results, in-place writes and nodes that draw; a backward that reads some of it.
Graph random_graph(std::mt19937& random) {
  GraphMaker m;
  auto below = [&](std::size_t n) { return std::size_t(random() % n); };
  std::vector<ValueId> made{m.outside(Role::input, {4})};
  const std::size_t nodes = 3 + below(13);
  auto current = [&] {
    Value v = m.g.values[std::size_t(made[below(made.size())])];
    for (const Node& n : m.g.nodes) v.version += std::int32_t(std::count(n.writes.begin(), n.writes.end(), v.storage)) * (v.version >= 0);
    v.version = 0;
    for (const Node& n : m.g.nodes) v.version += std::int32_t(std::count(n.writes.begin(), n.writes.end(), v.storage));
    m.g.values.push_back(v);
    return ValueId(m.g.values.size() - 1);
  };
  for (std::size_t i = 0; i < nodes; ++i) {
    std::vector<Argument> args;
    for (std::size_t k = 0, n = 1 + below(3); k < n; ++k) args.push_back(tensor(current()));
    if (below(6) == 0 && m.g.storage_of(args[0].values[0]).role == Role::internal) {
      m.write("aten::add_.Tensor", args, args[0].values[0]);
      continue;
    }
    std::vector<ValueId> results;
    for (std::size_t k = 0, n = 1 + (below(4) == 0); k < n; ++k) results.push_back(m.fresh({1 + std::int64_t(below(8))}));
    m.node("aten::add.Tensor", args, results).effects.random = below(8) == 0;
    made.insert(made.end(), results.begin(), results.end());
  }
  m.g.loss = m.sum(made[0]);
  m.side = Side::backward;
  for (std::size_t i = 0, n = 1 + below(4); i < n; ++i) m.make("aten::neg", {tensor(current())}, {1});
  return m.g;
}

/// The cost of a set by its definition: walks back from what the backward reads, node by node. Infinite where a set is not allowed.
double cost_of(const Graph& g, const Activations& a, const std::vector<double>& seconds, double per_byte, const Choice& choice) {
  std::set<StorageId> needed;
  for (const Node& n : g.nodes)
    if (n.side == Side::backward) for_each_value(n.args, [&](ValueId v) { needed.insert(g.values[std::size_t(v)].storage); });
  double cost = 0;
  for (std::size_t u = 0; u < choice.size(); ++u) {
    if (choice[u] && a.units[u].pinned) return std::numeric_limits<double>::infinity();
    if (choice[u]) cost += seconds[u];
  }
  for (bool grows = true; grows;) {
    const std::size_t before = needed.size();
    for (const Node& n : g.nodes) {
      if (n.side != Side::forward) continue;
      bool runs = false;
      auto belongs = [&](StorageId s) {
        const std::int32_t u = a.unit_of[std::size_t(s)];
        runs |= u >= 0 && choice[std::size_t(u)] &&
                std::count(a.units[std::size_t(u)].storages.begin(), a.units[std::size_t(u)].storages.end(), s);
      };
      for_each_value(n.results, [&](ValueId v) { belongs(g.values[std::size_t(v)].storage); });
      if (runs) for_each_value(n.args, [&](ValueId v) { needed.insert(g.values[std::size_t(v)].storage); });
    }
    grows = needed.size() > before;
  }
  for (StorageId s : needed) {
    const std::int32_t u = a.unit_of[std::size_t(s)];
    if (u >= 0 && !choice[std::size_t(u)] && !a.kept[std::size_t(s)]) cost += per_byte * double(g.storages[std::size_t(s)].bytes);
  }
  return cost;
}

TEST(Cut, IsTheCheapestOfAllSetsOnRandomGraphs) {
  std::mt19937 random(4);
  int mixed = 0;
  for (int round = 0; round < 500; ++round) {
    const Graph g = random_graph(random);
    ASSERT_EQ(verify(g), "") << round;
    const Activations a = activations_of(g);
    std::vector<double> seconds;
    for (std::size_t u = 0; u < a.units.size(); ++u) seconds.push_back(1e-6 * double(random() % 30));
    const double per_byte = 1e-6 * double(1 + random() % 3) / 2;
    const Choice found = cheapest(g, a, seconds, per_byte);
    double least = std::numeric_limits<double>::infinity();
    for (unsigned set = 0; set < 1u << a.units.size(); ++set) {
      Choice choice(a.units.size());
      for (std::size_t u = 0; u < choice.size(); ++u) choice[u] = set >> u & 1;
      least = std::min(least, cost_of(g, a, seconds, per_byte, choice));
    }
    ASSERT_NEAR(cost_of(g, a, seconds, per_byte, found), least, 1e-11) << round;
    mixed += std::count(found.begin(), found.end(), true) > 0 && !saved_under(a, found).empty();
  }
  EXPECT_GT(mixed, 50);
}

}  // namespace
}  // namespace tandem
