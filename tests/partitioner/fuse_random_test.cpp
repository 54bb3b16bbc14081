// Fused order on random steps: complete, sound, and with the same bits when it is run node by node.
#include "tests/partitioner/fuse_checks.h"
#include "tests/partitioner/random_step.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

/// The graph's nodes in the order in which their groups run.
Graph in_order_of(const Graph& g, const std::vector<Group>& groups) {
  std::unordered_map<NodeId, const Node*> nodes;
  for (const Node& n : g.nodes) nodes[n.id] = &n;
  Graph out = g;
  out.nodes.clear();
  for (const Group& group : groups)
    for (NodeId id : group.nodes) out.nodes.push_back(*nodes.at(id));
  return out;
}

TEST(FuseRandom, GivesEagersBits) {
  std::size_t merged = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Graph g = test::RandomStep(seed).make();
    const auto groups = test::fused(g);
    for (const Group& group : groups) merged += group.kind == Group::Kind::kernel ? group.nodes.size() - 1 : 0;
    const Graph moved = in_order_of(g, groups);
    ASSERT_EQ(moved.nodes.size(), g.nodes.size()) << seed;
    EXPECT_EQ(test::first_different(test::run(moved), test::run(g)), -1) << seed;
  }
  EXPECT_GT(merged, 300u);
}

TEST(FuseRandom, IsTheSameEachTime) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Graph g = test::RandomStep(seed).make();
    EXPECT_EQ(fuse(g, {}), fuse(g, {})) << seed;
  }
}

TEST(FuseRandom, ThousandsOfNodesInOneSide) {
  const Graph g = test::RandomStep(1).make(2000, 500, 500);
  EXPECT_EQ(in_order_of(g, test::fused(g)).nodes.size(), g.nodes.size());
}

}  // namespace
}  // namespace tandem
