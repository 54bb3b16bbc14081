// Dinic's method against two other algorithms on random networks.
#include "partitioner/max_flow.h"

#include <gtest/gtest.h>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/edmonds_karp_max_flow.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>

#include <algorithm>
#include <random>
#include <tuple>

namespace tandem {
namespace {

using Capacity = MaxFlow::Capacity;
using EdgeList = std::vector<std::tuple<int, int, Capacity>>;

EdgeList random_edges(std::mt19937& random, int vertices, int edges, Capacity most) {
  EdgeList list;
  for (int i = 0; i < edges; ++i)
    list.emplace_back(int(random() % unsigned(vertices)), int(random() % unsigned(vertices)), Capacity(random() % std::uint64_t(most + 1)));
  return list;
}

MaxFlow network(int vertices, const EdgeList& edges) {
  MaxFlow flow(static_cast<std::size_t>(vertices));
  for (const auto& [from, to, capacity] : edges) flow.edge(from, to, capacity);
  return flow;
}

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using BoostGraph = boost::adjacency_list<
    boost::vecS, boost::vecS, boost::directedS,
    boost::property<boost::vertex_color_t, boost::default_color_type,
                    boost::property<boost::vertex_distance_t, long, boost::property<boost::vertex_predecessor_t, Traits::edge_descriptor>>>,
    boost::property<
        boost::edge_capacity_t, Capacity,
        boost::property<boost::edge_residual_capacity_t, Capacity, boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>>;

BoostGraph boost_network(int vertices, const EdgeList& edges) {
  BoostGraph g(static_cast<std::size_t>(vertices));
  for (const auto& [from, to, capacity] : edges) {
    if (from == to) continue;
    const auto there = boost::add_edge(std::size_t(from), std::size_t(to), g).first,
               back = boost::add_edge(std::size_t(to), std::size_t(from), g).first;
    boost::put(boost::edge_capacity, g, there, capacity);
    boost::put(boost::edge_capacity, g, back, 0);
    boost::put(boost::edge_reverse, g, there, back);
    boost::put(boost::edge_reverse, g, back, there);
  }
  return g;
}

/// What the cut between the two sides lets through.
Capacity cut_value(const EdgeList& edges, const std::vector<char>& source_side) {
  Capacity sum = 0;
  for (const auto& [from, to, capacity] : edges)
    if (source_side[std::size_t(from)] && !source_side[std::size_t(to)]) sum += capacity;
  return sum;
}

TEST(MaxFlow, EqualsTwoOtherAlgorithmsOnRandomNetworks) {
  std::mt19937 random(1);
  int positive = 0;
  for (int round = 0; round < 400; ++round) {
    const int vertices = 2 + int(random() % 40);
    const EdgeList edges = random_edges(random, vertices, int(random() % 200), round % 2 ? 5 : 1'000'000'000'000);
    const Capacity found = network(vertices, edges).run(0, 1);
    BoostGraph a = boost_network(vertices, edges), b = boost_network(vertices, edges);
    ASSERT_EQ(found, boost::push_relabel_max_flow(a, 0, 1)) << round;
    ASSERT_EQ(found, boost::edmonds_karp_max_flow(b, 0, 1)) << round;
    positive += found > 0;
  }
  EXPECT_GT(positive, 200);
}

TEST(MaxFlow, TheCutHasTheValueOfTheFlow) {
  std::mt19937 random(2);
  for (int round = 0; round < 400; ++round) {
    const int vertices = 2 + int(random() % 30);
    const EdgeList edges = random_edges(random, vertices, int(random() % 150), 9);
    MaxFlow flow = network(vertices, edges);
    const Capacity value = flow.run(0, 1);
    const std::vector<char> side = flow.source_side();
    EXPECT_TRUE(side[0]);
    EXPECT_FALSE(side[1]);
    ASSERT_EQ(value, cut_value(edges, side)) << round;
  }
}

TEST(MaxFlow, OfEqualCutsTheOneNearestTheSourceIsTaken) {
  MaxFlow flow = network(4, {{0, 2, 3}, {2, 3, 3}, {3, 1, 3}});
  EXPECT_EQ(flow.run(0, 1), 3);
  EXPECT_EQ(flow.source_side(), (std::vector<char>{true, false, false, false}));
}

TEST(MaxFlow, TheCutDoesNotDependOnTheOrderOfTheEdges) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const int vertices = 2 + int(random() % 30);
    EdgeList edges = random_edges(random, vertices, 120, 3);
    MaxFlow flow = network(vertices, edges);
    flow.run(0, 1);
    std::shuffle(edges.begin(), edges.end(), random);
    MaxFlow shuffled = network(vertices, edges);
    shuffled.run(0, 1);
    ASSERT_EQ(flow.source_side(), shuffled.source_side()) << round;
  }
}

TEST(MaxFlow, ALongChainNeedsNoStack) {
  constexpr int length = 200'000;
  MaxFlow flow(length + 2);
  flow.edge(0, 2, 7);
  for (int v = 2; v <= length; ++v) flow.edge(v, v + 1, 5);
  flow.edge(length + 1, 1, 6);
  EXPECT_EQ(flow.run(0, 1), 5);
}

}  // namespace
}  // namespace tandem
