// Eager's own choice on small graphs, and the choice on random ones.
#include "partitioner/partition.h"

#include "autograd/pass.h"
#include "autograd/text.h"
#include "autograd/verify.h"
#include "partitioner/candidates.h"
#include "partitioner/fuse.h"
#include "tests/autograd/graph_samples.h"
#include "tests/partitioner/random_step.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using test::GraphMaker;
using test::number;
using test::tensor;

/// Node by node, nothing recomputed.
PartitionSwitches eager() {
  PartitionSwitches switches;
  switches.recompute = switches.fuse = switches.fuse_update = false;
  return switches;
}

Partitioned all_of(const Graph& g, const PartitionSwitches& switches) {
  EXPECT_EQ(verify(g), "");
  Partitioned out = partition(g, switches);
  EXPECT_EQ(verify(out.graph), "");
  EXPECT_EQ(validate(out.graph, out.partition), "");
  EXPECT_EQ(parse_partition(print(out.partition)), out.partition);
  return out;
}

Partition of(const Graph& g, const PartitionSwitches& switches = eager()) { return all_of(g, switches).partition; }

TEST(Partition, OfASmallStepAsText) {
  EXPECT_EQ(print(of(parse_graph(test::small_step))), R"(tandem partition 1
saved 4 bytes s3
recomputed 0 bytes
view forward n0
library forward n1
library forward n2
library backward n3
view backward n4
view backward n5
library backward n6
once backward n7
view backward n8
library update n9
library update n10
)");
}

TEST(Partition, HoldsAfterEveryPass) {
  PassSwitches all;
  all.decompose = true;
  of(run_passes(parse_graph(test::small_step), all), {});
}

TEST(Partition, CallsViewOpsWhenViewsAreNotSkipped) {
  PartitionSwitches switches = eager();
  switches.skip_views = false;
  for (const Group& g : of(parse_graph(test::small_step), switches).groups) EXPECT_NE(g.kind, Group::Kind::view);
}

TEST(Partition, SavesEachActivationThatTheBackwardReads) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::exp", {tensor(x)}, {4});
  const ValueId b = m.make("aten::tanh", {tensor(a)}, {4});
  m.g.loss = m.sum(b);
  m.side = Side::backward;
  const ValueId c = m.make("aten::mul.Tensor", {tensor(b), tensor(x)}, {4});
  m.make("aten::mul.Tensor", {tensor(c), tensor(b)}, {4});
  const Partition p = of(m.g);
  EXPECT_EQ(p.saved, (std::vector<StorageId>{m.g.values[b].storage}));
  EXPECT_EQ(p.saved_bytes, 16);
}

TEST(Partition, SavesWhatTheUpdateReads) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::exp", {tensor(x)}, {4});
  m.g.loss = m.sum(x);
  m.side = Side::update;
  m.make("aten::neg", {tensor(a)}, {4});
  EXPECT_EQ(of(m.g).saved, (std::vector<StorageId>{m.g.values[a].storage}));
}

TEST(Partition, CountsAStorageOnceHoweverManyViewsAreRead) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::exp", {tensor(x)}, {4});
  const ValueId half = m.view(a, {2}, {1});
  m.node("aten::slice.Tensor", {tensor(a), number(0), number(0), number(2), number(1)}, {half});
  m.g.loss = m.sum(a);
  m.side = Side::backward;
  m.make("aten::neg", {tensor(a)}, {4});
  m.make("aten::neg", {tensor(half)}, {2});
  EXPECT_EQ(of(m.g).saved_bytes, 16);
}

TEST(Partition, AFoldedConstantIsNotASavedActivation) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId c = m.full({4}, 2.0);
  m.g.loss = m.sum(x);
  m.side = Side::backward;
  m.make("aten::mul.Tensor", {tensor(x), tensor(c)}, {4});
  EXPECT_EQ(of(fold(m.g)).saved, std::vector<StorageId>{});
  EXPECT_EQ(of(m.g).saved, (std::vector<StorageId>{m.g.values[c].storage}));
}

TEST(Partition, AViewOpWithMemoryOfItsOwnIsALibraryCall) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId y = m.make("aten::view", {tensor(x), test::ints({4})}, {4});
  m.g.loss = m.sum(y);
  EXPECT_EQ(of(m.g).groups.front().kind, Group::Kind::library);
}

TEST(Partition, AnEmptyGraphHasAnEmptyPartition) {
  EXPECT_EQ(of(Graph{}), Partition{});
  EXPECT_EQ(of(Graph{}, {}), Partition{});
}

TEST(Partition, WithoutRecomputationTheGraphIsKept) {
  PartitionSwitches switches;
  switches.recompute = false;
  const Graph g = test::RandomStep(3).make();
  EXPECT_EQ(first_difference(all_of(g, switches).graph, g), "");
}

TEST(Partition, RecomputesWhatIsCheapAndSaysSo) {
  constexpr std::int64_t n = 1 << 18;
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {n}), w = m.outside(Role::parameter, {1024, 1024});
  const ValueId y = m.make("aten::neg", {tensor(x)}, {n});
  m.make("aten::mm", {tensor(w), tensor(w)}, {1024, 1024});
  m.g.loss = m.sum(y);
  m.side = Side::backward;
  m.make("aten::mm", {tensor(w), tensor(w)}, {1024, 1024});  // the peak, at which y would be alive
  m.make("aten::neg", {tensor(y)}, {n});
  PartitionSwitches switches;
  switches.fuse = false;
  const Partitioned out = all_of(m.g, switches);
  EXPECT_EQ(out.partition.recomputed, (std::vector<Recomputed>{{0, 5}}));
  EXPECT_EQ(out.partition.recomputed_bytes, 4 * n);
  EXPECT_EQ(out.partition.saved, std::vector<StorageId>{});
}

TEST(Partition, OfEqualLayersAsManyRunAgainAsTheTimeAllows) {
  constexpr std::int64_t n = 1 << 18;
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {n}), w = m.outside(Role::parameter, {1024, 1024});
  std::vector<ValueId> layers;
  for (int i = 0; i < 8; ++i) layers.push_back(m.make("aten::neg", {tensor(x)}, {n}));
  for (int i = 0; i < 3; ++i) m.make("aten::mm", {tensor(w), tensor(w)}, {1024, 1024});
  m.g.loss = m.sum(x);
  m.side = Side::backward;
  for (std::size_t i = layers.size(); i-- > 0;) m.make("aten::neg", {tensor(layers[i])}, {n});
  PartitionSwitches switches;
  switches.fuse = false;
  const Partitioned out = all_of(m.g, switches);
  const std::size_t again = out.partition.recomputed.size();
  EXPECT_GT(again, 0u);
  EXPECT_LT(again, layers.size());
  EXPECT_LE(evaluate(out.graph, out.partition.groups).seconds, 1.01 * evaluate(m.g, unfused(m.g, switches)).seconds);
}

TEST(Partition, IsNeverAboveEagersPeakAndComputesTheSameBits) {
  std::size_t recomputed = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    const Graph g = test::RandomStep(seed).make();
    const Partitioned out = all_of(g, {});
    EXPECT_LE(evaluate(out.graph, out.partition.groups).peak_bytes, evaluate(g, unfused(g, {})).peak_bytes) << seed;
    ASSERT_EQ(test::first_different(test::run(g), test::run(out.graph)), -1) << seed;
    recomputed += out.partition.recomputed.size();
  }
  EXPECT_GT(recomputed, 0u);
}

TEST(Partition, IsTheSameEachTime) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Partitioned a = partition(test::RandomStep(seed).make()), b = partition(test::RandomStep(seed).make());
    EXPECT_EQ(print(a.graph), print(b.graph));
    EXPECT_EQ(print(a.partition), print(b.partition));
  }
}

TEST(Partition, TheBestIsTheLowestPeakAmongTheFast) {
  auto candidate = [](std::int64_t peak, double seconds, std::int64_t saved) {
    Candidate c;
    c.figures = {peak, seconds};
    c.saved_bytes = saved;
    return c;
  };
  EXPECT_EQ(
      best_of({candidate(100, 2, 9), candidate(90, 1.005, 9), candidate(95, 1, 9), candidate(10, 1.02, 9), candidate(200, 0.5, 9)}, 100),
      1u);
  EXPECT_EQ(best_of({candidate(100, 1, 9), candidate(100, 1, 8), candidate(100, 1, 8)}, 100), 1u);
  EXPECT_EQ(best_of({candidate(100, 9, 9), candidate(101, 1, 0)}, 100), 0u);
}

}  // namespace
}  // namespace tandem
