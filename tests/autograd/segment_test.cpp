// Parts of a graph: each holds by itself, and one after another they do what the whole does.
#include "autograd/segment.h"

#include "autograd/text.h"
#include "autograd/verify.h"
#include "tests/partitioner/random_step.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using test::GraphMaker;
using test::tensor;

/// y = tanh(x); loss = sum(y * w) | backward: y written in place, then read.
Graph two_sides() {
  GraphMaker m;
  const auto x = m.outside(Role::input, {4}), w = m.outside(Role::parameter, {4});
  const auto y = m.make("aten::tanh", {tensor(x)}, {4});
  const auto z = m.make("aten::mul.Tensor", {tensor(y), tensor(w)}, {4});
  m.g.loss = m.sum(z);
  m.side = Side::backward;
  const auto written = m.write("aten::relu_", {tensor(y)}, y);
  const auto gradient = m.make("aten::mul.Tensor", {tensor(written), tensor(w)}, {4});
  m.g.gradients = {{0, "w", gradient, gradient}};
  m.g.outputs = {z};
  return m.g;
}

TEST(Cut, CarriesWhatALaterPartNames) {
  const auto parts = cut(two_sides(), {3});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_TRUE(parts[0].takes.empty());
  EXPECT_EQ(parts[0].hands_on, std::vector<StorageId>({2}));
  EXPECT_EQ(parts[1].takes, std::vector<StorageId>({2}));
  EXPECT_EQ(parts[1].graph.storages[2].role, Role::carried);
  EXPECT_EQ(parts[0].graph.storages[2].role, Role::internal);
  EXPECT_TRUE(parts[1].hands_on.empty());
}

TEST(Cut, EachEndBelongsToThePartThatMakesIt) {
  const auto whole = two_sides();
  const auto parts = cut(whole, {3});
  EXPECT_EQ(parts[0].graph.loss, whole.loss);
  EXPECT_EQ(parts[1].graph.loss, -1);
  EXPECT_EQ(parts[0].graph.outputs, std::vector<ValueId>({whole.outputs[0], 2}));
  EXPECT_EQ(parts[1].graph.outputs, std::vector<ValueId>({-1}));
  EXPECT_EQ(parts[0].graph.gradients[0].value, -1);
  EXPECT_EQ(parts[1].graph.gradients[0].value, whole.gradients[0].value);
}

TEST(Cut, NumbersStayAndVersionsStartAnew) {
  GraphMaker m;
  const auto x = m.outside(Role::input, {4});
  const auto one = m.write("aten::relu_", {tensor(x)}, x);
  const auto two = m.write("aten::relu_", {tensor(one)}, one);
  m.g.loss = m.sum(two);
  const auto parts = cut(m.g, {1});
  EXPECT_EQ(parts[1].graph.values[std::size_t(one)].version, 0);
  EXPECT_EQ(parts[1].graph.values[std::size_t(two)].version, 1);
  EXPECT_EQ(parts[1].graph.nodes[0].id, m.g.nodes[1].id);
  for (const auto& part : parts) EXPECT_EQ(verify(part.graph), "");
}

TEST(Cut, AWriteWithoutAResultIsHandedOnAtItsVersion) {
  GraphMaker m;
  const auto x = m.outside(Role::input, {4});
  const auto y = m.make("aten::tanh", {tensor(x)}, {4});
  m.node("aten::_foreach_zero_", {[&] {
           auto list = tensor(y);
           list.kind = Argument::Kind::tensors;
           return list;
         }()},
         {})
      .writes = {1};
  m.g.loss = m.sum(m.next(y));
  m.g.values[2].version = 1;
  const auto parts = cut(m.g, {2});
  const auto handed = parts[0].graph.outputs.back();
  EXPECT_EQ(parts[0].graph.values[std::size_t(handed)].version, 1);
  for (const auto& part : parts) EXPECT_EQ(verify(part.graph), "");
}

TEST(Cut, AnOutputThatIsAnInputBelongsToTheLastPart) {
  GraphMaker m;
  const auto x = m.outside(Role::input, {4});
  m.g.loss = m.sum(x);
  m.sum(x);
  m.g.outputs = {x};
  const auto parts = cut(m.g, {1});
  EXPECT_EQ(parts[0].graph.outputs[0], -1);
  EXPECT_EQ(parts[1].graph.outputs[0], x);
}

TEST(Cut, WhatTheCallerReadsOnTheWayIsDelivered) {
  const auto whole = two_sides();
  const auto parts = cut(whole, {1}, {2});
  EXPECT_EQ(parts[0].graph.outputs, std::vector<ValueId>({-1, 2, 2}));
  EXPECT_EQ(parts[1].graph.outputs[1], -1);
}

/// Runs the parts one after another, carried storages handed from one to the next; what can be seen, as random_step.h's run().
std::vector<at::Tensor> run_parts(const Graph& whole, const std::vector<Segment>& parts) {
  RunInputs bound;
  bound.storages.resize(whole.storages.size());
  std::vector<at::Tensor> seen, outputs(whole.outputs.size());
  for (std::size_t s = 0; s < whole.storages.size(); ++s) {
    if (whole.storages[s].role == Role::internal) continue;
    seen.push_back(at::linspace(-1.5, 1.0 + static_cast<double>(s), 4));
    bound.storages[s].storage = seen.back().storage();
  }
  at::manual_seed(1);
  at::Tensor loss;
  for (const auto& part : parts) {
    Interpreter interpreter(part.graph);
    interpreter.run(bound);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (part.graph.outputs[i] >= 0) outputs[i] = interpreter.value(part.graph.outputs[i]).clone();
    if (part.graph.loss >= 0) loss = interpreter.value(part.graph.loss).clone();
    for (std::size_t i = 0; i < part.hands_on.size(); ++i)
      bound.storages[std::size_t(part.hands_on[i])].storage = interpreter.value(part.graph.outputs[outputs.size() + i]).storage();
  }
  seen.insert(seen.end(), outputs.begin(), outputs.end());
  seen.push_back(loss);
  return seen;
}

TEST(Cut, PartsOfRandomStepsHoldAndDoWhatTheWholeDoes) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    const Graph whole = test::RandomStep(seed).make();
    ASSERT_EQ(verify(whole), "") << seed;
    std::mt19937 random(seed);
    std::vector<std::size_t> at;
    for (std::size_t i = 1; i < whole.nodes.size(); ++i)
      if (random() % 12 == 0) at.push_back(i);
    const auto parts = cut(whole, at);
    for (const auto& part : parts) {
      ASSERT_EQ(verify(part.graph), "") << seed;
      ASSERT_EQ(print(parse_graph(print(part.graph))), print(part.graph)) << seed;
    }
    ASSERT_EQ(test::first_different(run_parts(whole, parts), test::run(whole)), -1) << seed;
  }
}

}  // namespace
}  // namespace tandem
