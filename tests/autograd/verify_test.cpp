// Each rule of verify() against a good graph in which just that rule is broken.
#include "autograd/verify.h"

#include "autograd/text.h"
#include "tests/autograd/graph_samples.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem {
namespace {

constexpr std::int64_t big = std::numeric_limits<std::int64_t>::max();

/// What verify() says of the small step after one change.
template <class Change>
std::string after(Change&& change) {
  Graph g = parse_graph(test::small_step);
  change(g);
  return verify(g);
}

void expect_broken(const std::string& label, const std::string& sentence, const std::string& part = {}) {
  EXPECT_EQ(sentence.substr(0, label.size()), label) << sentence;
  EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
}

Argument tensor(ValueId v) {
  Argument a;
  a.kind = Argument::Kind::tensor;
  a.values = {v};
  return a;
}

Node node(NodeId id, Side side, std::vector<Argument> args, std::vector<Argument> results) {
  Node n;
  n.id = id;
  n.op = "aten::x";
  n.side = side;
  n.args = std::move(args);
  n.results = std::move(results);
  return n;
}

/// A value of the same geometry as another one, perhaps at another version.
ValueId add_value(Graph& g, ValueId like, std::int32_t version) {
  Value v = g.values[like];
  v.version = version;
  g.values.push_back(v);
  return static_cast<ValueId>(g.values.size()) - 1;
}

TEST(Verify, AGoodGraphHolds) { EXPECT_EQ(verify(parse_graph(test::small_step)), ""); }

TEST(Verify, AnEmptyGraphHolds) { EXPECT_EQ(verify(Graph{}), ""); }

// ---- [ids] ----

TEST(VerifyIds, AValueNamesAStorage) {
  expect_broken("[ids]", after([](Graph& g) { g.values[3].storage = 99; }), "value %3 names storage s99");
  expect_broken("[ids]", after([](Graph& g) { g.values[3].storage = -1; }));
}

TEST(VerifyIds, ArgumentsAndResultsNameValues) {
  expect_broken("[ids]", after([](Graph& g) { g.nodes[1].args[0].values[0] = 99; }), "node 1 aten::mm (forward) names value %99");
  expect_broken("[ids]", after([](Graph& g) { g.nodes[1].args[0].values[0] = -2; }));
  expect_broken("[ids]", after([](Graph& g) { g.nodes[1].results[0].values[0] = 13; }));
}

TEST(VerifyIds, UndefinedTensorsNameNothing) {
  EXPECT_EQ(after([](Graph& g) { g.nodes[1].args.push_back(tensor(-1)); }), "");
}

TEST(VerifyIds, ATensorArgumentNamesOneValue) {
  expect_broken("[ids]", after([](Graph& g) { g.nodes[1].args[0].values.clear(); }), "names 0 values");
  expect_broken("[ids]", after([](Graph& g) { g.nodes[1].args[0].values = {0, 2}; }), "names 2 values");
}

TEST(VerifyIds, AConstantNamesNoValue) {
  expect_broken("[ids]", after([](Graph& g) { g.nodes[2].args[1].values = {0}; }), "a constant that names a value");
}

TEST(VerifyIds, ScalarsExist) {
  expect_broken("[ids]", after([](Graph& g) { g.nodes[10].args[2].scalar = 1; }), "names scalar $1");
  expect_broken("[ids]", after([](Graph& g) { g.nodes[10].args[2].scalar = -2; }));
  expect_broken("[ids]", after([](Graph& g) { g.nodes[10].args[0].scalar = 0; }));
}

TEST(VerifyIds, WrittenStoragesExist) {
  expect_broken("[ids]", after([](Graph& g) { g.nodes[10].writes = {99}; }), "writes storage s99");
}

TEST(VerifyIds, NodeNumbersAreUnique) {
  expect_broken("[ids]", after([](Graph& g) { g.nodes[3].id = 1; }), "two nodes have the number 1");
}

TEST(VerifyIds, NodeNumbersNeedNoOrder) {
  EXPECT_EQ(after([](Graph& g) { std::swap(g.nodes[3].id, g.nodes[1].id); }), "");
}

TEST(VerifyIds, TheEndsNameValues) {
  expect_broken("[ids]", after([](Graph& g) { g.loss = 99; }), "the loss names value %99");
  expect_broken("[ids]", after([](Graph& g) { g.outputs[1] = 99; }), "an output");
  expect_broken("[ids]", after([](Graph& g) { g.gradients[0].value = 99; }), "a gradient names");
  expect_broken("[ids]", after([](Graph& g) { g.gradients[0].before = 99; }), "a gradient before the update");
  expect_broken("[ids]", after([](Graph& g) { g.grad_norm = -2; }), "the norm of the gradients");
}

// ---- [geometry] ----

TEST(VerifyGeometry, SizesAndStridesHaveEqualLengths) {
  expect_broken("[geometry]", after([](Graph& g) { g.values[2].strides.pop_back(); }), "value %2");
}

TEST(VerifyGeometry, NothingIsNegative) {
  expect_broken("[geometry]", after([](Graph& g) { g.values[2].sizes[0] = -1; }), "negative");
  expect_broken("[geometry]", after([](Graph& g) { g.values[2].strides[0] = -3; }), "negative");
  expect_broken("[geometry]", after([](Graph& g) { g.values[2].offset = -1; }), "negative");
  expect_broken("[geometry]", after([](Graph& g) { g.storages[1].bytes = -1; }), "storage s1 has -1 bytes");
}

TEST(VerifyGeometry, AViewLiesInsideItsStorage) {
  expect_broken("[geometry]", after([](Graph& g) { g.storages[1].bytes = 23; }), "does not lie inside");
  expect_broken("[geometry]", after([](Graph& g) { g.values[2].offset = 1; }), "does not lie inside");
  expect_broken("[geometry]", after([](Graph& g) { g.values[2].dtype = c10::ScalarType::Double; }), "does not lie inside");
}

TEST(VerifyGeometry, HugeViewsDoNotWrapAround) {
  expect_broken("[geometry]", after([](Graph& g) { g.values[2].offset = big; }), "does not lie inside");
  expect_broken("[geometry]", after([](Graph& g) { g.values[2].strides = {big, big}; }), "does not lie inside");
  expect_broken("[geometry]", after([](Graph& g) { g.values[2].sizes = {big, big}; }), "does not lie inside");
}

TEST(VerifyGeometry, AnEmptyViewTouchesNothing) {
  EXPECT_EQ(after([](Graph& g) {
              add_value(g, 2, 0);
              g.values.back().sizes = {0, 3};
              g.values.back().offset = 6;
            }),
            "");
}

TEST(VerifyGeometry, AValueHasADtype) {
  expect_broken("[geometry]", after([](Graph& g) { g.values[2].dtype = c10::ScalarType::Undefined; }), "no dtype");
}

// ---- [version] ----

TEST(VerifyVersion, VersionsAreNotNegative) {
  expect_broken("[version]", after([](Graph& g) { g.values[2].version = -1; }), "value %2");
}

TEST(VerifyVersion, TheFirstOneIsZero) {
  expect_broken("[version]", after([](Graph& g) { g.values[3].version = 1; }), "returns %3 at version 1 of s2, which is at version 0");
  expect_broken("[version]", after([](Graph& g) { g.values[2].version = 1; }), "reads %2 at version 1 of s1, which is at version 0");
}

TEST(VerifyVersion, AReadSeesTheCurrentOne) {
  auto stale = [](Graph& g) { g.nodes[10].args[1].values[0] = 10; };  // %10 is what n9 wrote over
  expect_broken("[version]", after(stale), "node 10 aten::add_.Tensor (update) reads %10 at version 0 of s5, which is at version 1 here");
}

TEST(VerifyVersion, AWriterReadsTheOldOne) {
  expect_broken("[version]", after([](Graph& g) { g.nodes[9].args[0].values[0] = 11; }), "reads %11 at version 1");
}

TEST(VerifyVersion, AWriterReturnsTheNewOne) {
  expect_broken("[version]", after([](Graph& g) { g.nodes[10].results[0].values[0] = 0; }),
                "returns %0 at version 0 of s0, which is at version 1");
}

TEST(VerifyVersion, OnlyWritesRaiseIt) {
  expect_broken("[version]", after([](Graph& g) { g.nodes[10].writes.clear(); }), "returns %12 at version 1 of s0, which is at version 0");
}

TEST(VerifyVersion, WritesAreSortedAndUnique) {
  expect_broken("[version]", after([](Graph& g) { g.nodes[10].writes = {1, 0}; }), "lists s0 after s1");
  expect_broken("[version]", after([](Graph& g) { g.nodes[10].writes = {0, 0}; }), "lists s0 after s0");
}

TEST(VerifyVersion, AnAliasThatNoNodeReturnsIsReadAtTheCurrentOne) {
  auto read_alias = [](std::int32_t version) {
    return after([&](Graph& g) {
      ValueId alias = add_value(g, 8, version);  // the base of %11, which n9 writes through a view
      g.nodes.push_back(node(11, Side::update, {tensor(alias)}, {}));
    });
  };
  EXPECT_EQ(read_alias(1), "");
  expect_broken("[version]", read_alias(0), "node 11");
  expect_broken("[version]", read_alias(2), "node 11");
}

TEST(VerifyVersion, ValuesBesideTheOutputsExistAtSomeTime) {
  expect_broken("[version]", after([](Graph& g) { g.grad_norm = add_value(g, 4, 1); }), "the norm of the gradients");
  expect_broken("[version]", after([](Graph& g) { g.gradients[0].before = add_value(g, 10, 2); }), "whose versions end at 1");
}

// ---- [producer] ----

TEST(VerifyProducer, AnInternalStorageComesFromANode) {
  expect_broken("[producer]", after([](Graph& g) { g.nodes[1].results.clear(); }),
                "node 2 aten::sum (forward) reads %3 of the internal storage s2");
}

TEST(VerifyProducer, ANodeDoesNotReadItsOwnResult) {
  expect_broken("[producer]", after([](Graph& g) { g.storages[0].role = Role::internal; }), "node 0 aten::t (forward) reads %0");
}

TEST(VerifyProducer, ANodeDoesNotReadWhatALaterOneReturns) {
  expect_broken("[producer]", after([](Graph& g) { std::swap(g.nodes[1], g.nodes[2]); }), "node 2 aten::sum (forward) reads %3");
}

TEST(VerifyProducer, ANodeDoesNotWriteBeforeTheStorageIsReturned) {
  expect_broken("[producer]", after([](Graph& g) { g.nodes[1].writes = {2}; }), "node 1 aten::mm (forward) writes the internal storage s2");
}

TEST(VerifyProducer, OutputsHaveOne) {
  expect_broken("[producer]", after([](Graph& g) {
                  g.storages.push_back(g.storages[2]);
                  g.outputs[0] = add_value(g, 3, 0);
                  g.values.back().storage = 7;
                }),
                "an output is %13");
}

TEST(VerifyProducer, OutsideStoragesNeedNone) {
  for (Role role : {Role::input, Role::parameter, Role::gradient, Role::buffer, Role::optimizer_state, Role::captured})
    EXPECT_EQ(after([&](Graph& g) { g.storages[1].role = role; }), "") << name_of(role);
}

TEST(VerifyProducer, WhatNothingNamesNeedsNone) {
  EXPECT_EQ(after([](Graph& g) { g.storages.emplace_back(); }), "");
}

// ---- [effects] ----

TEST(VerifyEffects, ANodeWithEffectsIsNotFolded) {
  expect_broken("[effects]", after([](Graph& g) { g.nodes[7].effects.random = true; }), "node 7");
  expect_broken("[effects]", after([](Graph& g) { g.nodes[7].effects.collective = true; }), "node 7");
  expect_broken("[effects]", after([](Graph& g) { g.nodes[7].effects.opaque = true; }), "node 7");
  expect_broken("[effects]", after([](Graph& g) { g.nodes[7].writes = {1}; }), "folded though it writes s1");
}

TEST(VerifyEffects, AFoldedNodeReadsNothingOfTheStep) {
  expect_broken("[effects]", after([](Graph& g) { g.nodes[7].args.push_back(tensor(2)); }), "folded though it reads %2");
  expect_broken("[effects]", after([](Graph& g) { g.nodes[7].args.push_back(tensor(8)); }), "folded though it reads %8");
  expect_broken("[effects]", after([](Graph& g) { g.nodes[7].args[1].scalar = 0; }), "run-time scalar $0");
}

TEST(VerifyEffects, AFoldedNodeReadsWhatAFoldedOneMade) {
  EXPECT_EQ(after([](Graph& g) {
              Node n = node(11, Side::backward, {tensor(9)}, {tensor(9)});
              n.folded = true;
              g.nodes.insert(g.nodes.begin() + 8, n);
            }),
            "");
}

TEST(VerifyEffects, AFoldedNodeReturnsStoragesOfItsOwn) {
  expect_broken("[effects]", after([](Graph& g) { g.nodes[7].results.push_back(tensor(2)); }), "folded though it returns %2");
}

TEST(VerifyEffects, NobodyWritesWhatAFoldedNodeMade) {
  expect_broken("[effects]", after([](Graph& g) { g.nodes[9].writes = {5, 6}; }), "writes s6, which a folded node made");
}

// ---- [side] ----

TEST(VerifySide, NothingFollowsTheUpdateButTheUpdate) {
  expect_broken("[side]", after([](Graph& g) { g.nodes.push_back(node(11, Side::backward, {}, {})); }), "node 11");
  expect_broken("[side]", after([](Graph& g) { g.nodes.push_back(node(11, Side::forward, {}, {})); }), "node 11");
  EXPECT_EQ(after([](Graph& g) { g.nodes.push_back(node(11, Side::update, {}, {})); }), "");
}

TEST(VerifySide, ForwardMayFollowBackward) {
  EXPECT_EQ(after([](Graph& g) { g.nodes.insert(g.nodes.begin() + 8, node(11, Side::forward, {tensor(8)}, {})); }), "");
}

TEST(VerifySide, ForwardDoesNotReadWhatBackwardMakesLater) {
  expect_broken("[side]", after([](Graph& g) { g.nodes[2].args.push_back(tensor(8)); }),
                "reads %8, which only a node of the backward makes");
}

// ---- [outputs] ----

TEST(VerifyOutputs, TheLossHasOneElement) {
  expect_broken("[outputs]", after([](Graph& g) { g.loss = 3; }), "the loss is %3, float32 [2, 1], expected one element");
  EXPECT_EQ(after([](Graph& g) { g.values[4].sizes = g.values[4].strides = {1, 1}; }), "");
}

TEST(VerifyOutputs, AreAtTheLastVersion) {
  expect_broken("[outputs]", after([](Graph& g) { g.outputs[1] = 0; }), "an output is %0 at version 0 of s0, whose last version is 1");
  expect_broken("[outputs]", after([](Graph& g) { g.gradients[0].value = 10; }), "a gradient is %10");
  auto written_loss = [](Graph& g) {
    g.nodes.push_back(node(11, Side::update, {tensor(4)}, {}));
    g.nodes.back().writes = {3};
  };
  expect_broken("[outputs]", after(written_loss), "the loss is %4");
}

TEST(VerifyOutputs, MayBeUndefined) {
  EXPECT_EQ(after([](Graph& g) {
              g.loss = g.grad_norm = g.outputs[1] = -1;
              g.gradients[0].value = g.gradients[0].before = -1;
            }),
            "");
}

}  // namespace
}  // namespace tandem
