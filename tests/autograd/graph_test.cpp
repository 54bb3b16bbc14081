#include "autograd/graph.h"

#include "autograd/text.h"
#include "tests/autograd/graph_samples.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Graph sample() { return parse_graph(test::small_step); }

Argument number(Constant c, std::int32_t scalar = -1) {
  Argument a;
  a.constant = std::move(c);
  a.scalar = scalar;
  return a;
}

/// What first_difference says after one change.
template <class Change>
std::string difference_after(Change&& change) {
  Graph a = sample(), b = sample();
  change(b);
  return first_difference(a, b);
}

TEST(Constants, NanIsTheSameAsItself) {
  EXPECT_TRUE(same(nan, nan));
  EXPECT_TRUE(same(std::vector<double>{1, nan}, std::vector<double>{1, nan}));
  EXPECT_TRUE(same(c10::complex<double>(nan, 0), c10::complex<double>(nan, 0)));
}

TEST(Constants, SignsOfZeroAndNanCount) {
  EXPECT_FALSE(same(0.0, -0.0));
  EXPECT_FALSE(same(nan, -nan));
  EXPECT_FALSE(same(std::vector<double>{0.0}, std::vector<double>{-0.0}));
  EXPECT_FALSE(same(c10::complex<double>(1, 0.0), c10::complex<double>(1, -0.0)));
}

TEST(Constants, EqualNumbersOfDifferentTypesAreNotTheSame) {
  EXPECT_FALSE(same(std::int64_t{1}, 1.0));
  EXPECT_FALSE(same(true, std::int64_t{1}));
  EXPECT_FALSE(same(std::vector<std::int64_t>{}, std::vector<double>{}));
}

TEST(Constants, ListsOfDifferentLengthAreNotTheSame) {
  EXPECT_FALSE(same(std::vector<double>{1.0}, std::vector<double>{1.0, 2.0}));
  EXPECT_FALSE(same(std::vector<std::int64_t>{1}, std::vector<std::int64_t>{}));
}

TEST(Arguments, ConstantsCompareBitForBit) {
  EXPECT_EQ(number(nan), number(nan));
  EXPECT_FALSE(number(0.0) == number(-0.0));
}

TEST(Arguments, RuntimeScalarsCompareByTheirIndexAndType) {
  EXPECT_EQ(number(0.1, 3), number(0.2, 3));
  EXPECT_FALSE(number(0.1, 3) == number(0.1, 4));
  EXPECT_FALSE(number(0.1, 3) == number(std::int64_t{0}, 3));
}

TEST(Arguments, WrappedNumbersDifferFromPlainOnes) {
  Argument a = number(1.0), b = number(1.0);
  b.wrapped = true;
  EXPECT_FALSE(a == b);
}

TEST(Arguments, TensorsCompareByTheirValues) {
  Argument a, b;
  a.kind = b.kind = Argument::Kind::tensors;
  a.values = {1, -1};
  b.values = {1, -1};
  EXPECT_EQ(a, b);
  b.values = {1, 2};
  EXPECT_FALSE(a == b);
}

TEST(FirstDifference, EqualGraphsHaveNone) { EXPECT_EQ(first_difference(sample(), sample()), ""); }

TEST(FirstDifference, TheMakerAndRecordedScalarsDoNotCount) {
  EXPECT_EQ(difference_after([](Graph& g) {
              g.made_by = "another";
              g.scalars[0].recorded = 7;
              g.nodes[10].args[2].constant = 7.0;
            }),
            "");
}

TEST(FirstDifference, NamesTheStorage) {
  EXPECT_EQ(difference_after([](Graph& g) { g.storages[1].bytes = 28; }),
            "storage 1: expected input 0 \"x\" of 24 bytes on cpu, found input 0 \"x\" of 28 bytes on cpu");
}

TEST(FirstDifference, NamesTheValue) {
  EXPECT_EQ(difference_after([](Graph& g) { g.values[2].offset = 1; }),
            "value 2: expected float32 [2, 3] with strides [3, 1] at s1@0+0, found float32 [2, 3] with strides [3, 1] at s1@0+1");
}

TEST(FirstDifference, NamesTheFirstCallThatGivesSomethingElse) {
  EXPECT_EQ(difference_after([](Graph& g) { g.values[5].sizes = {7}; }).find("the result of node "), 0U)
      << difference_after([](Graph& g) { g.values[5].sizes = {7}; });
  EXPECT_EQ(difference_after([](Graph& g) {
              g.nodes[1].op = "aten::relu";
              g.storages[2].bytes = 1;
            }).find("node at position 1: expected node 1 "),
            0U);
}

TEST(FirstDifference, NamesTheNodeByItsText) {
  EXPECT_EQ(difference_after([](Graph& g) { g.nodes[4].args[2].constant = true; }),
            "node at position 4: expected `n4 backward (%6) = aten::expand(%5, [2, 1], false) {for \"SumBackward0#2\"}`, found "
            "`n4 backward (%6) = aten::expand(%5, [2, 1], true) {for \"SumBackward0#2\"}`");
}

TEST(FirstDifference, CountsMissingNodes) {
  EXPECT_EQ(difference_after([](Graph& g) { g.nodes.pop_back(); }), "expected 11 nodes, found 10");
}

TEST(FirstDifference, SeesEachFieldOfANode) {
  const std::pair<const char*, void (*)(Node&)> changes[] = {
      {"id", [](Node& n) { n.id = 99; }},
      {"op", [](Node& n) { n.op = "aten::relu"; }},
      {"args", [](Node& n) { n.args.pop_back(); }},
      {"results", [](Node& n) { n.results.clear(); }},
      {"writes", [](Node& n) { n.writes = {0}; }},
      {"side", [](Node& n) { n.side = Side::update; }},
      {"random", [](Node& n) { n.effects.random = true; }},
      {"collective", [](Node& n) { n.effects.collective = true; }},
      {"opaque", [](Node& n) { n.effects.opaque = true; }},
      {"folded", [](Node& n) { n.folded = true; }},
      {"stream", [](Node& n) { n.stream = 1; }},
      {"workspace", [](Node& n) { n.workspace = 1; }},
      {"ran_for", [](Node& n) { n.ran_for = "X"; }},
      {"created", [](Node& n) { n.created.clear(); }},
  };
  for (auto& [field, change] : changes)
    EXPECT_NE(difference_after([&](Graph& g) { change(g.nodes[1]); }).find("node at position 1"), std::string::npos) << field;
}

TEST(FirstDifference, SeesTheEndsOfTheStep) {
  EXPECT_EQ(difference_after([](Graph& g) { g.loss = 3; }), "loss: expected %4, found %3");
  EXPECT_EQ(difference_after([](Graph& g) { g.outputs[1] = 2; }), "output 1: expected %3, found %2");
  EXPECT_EQ(difference_after([](Graph& g) { g.outputs.clear(); }), "expected 2 outputs, found 0");
  EXPECT_NE(difference_after([](Graph& g) { g.gradients[0].before = 3; }).find("gradient 0"), std::string::npos);
  EXPECT_EQ(difference_after([](Graph& g) { g.grad_norm = -1; }), "norm of the gradients: expected %4, found %-1");
}

TEST(Bytes, AreElementsTimesTheirSize) {
  Value v;
  v.sizes = {3, 5};
  EXPECT_EQ(bytes_of(v), 60);
  v.dtype = c10::ScalarType::Double;
  EXPECT_EQ(bytes_of(v), 120);
  v.sizes = {};
  EXPECT_EQ(bytes_of(v), 8);
  v.sizes = {std::int64_t{1} << 40, 0};
  EXPECT_EQ(bytes_of(v), 0);
}

TEST(Bytes, DoNotWrapAround) {
  Value v;
  v.sizes = {std::int64_t{1} << 40, std::int64_t{1} << 40};
  EXPECT_EQ(bytes_of(v), std::numeric_limits<std::int64_t>::max());
}

TEST(Describe, SaysDtypeAndSizes) {
  Value v;
  v.sizes = {32, 20};
  EXPECT_EQ(describe(v), "float32 [32, 20]");
}

TEST(Describe, SaysNumberOpAndSideOfANode) { EXPECT_EQ(describe(sample().nodes[6]), "node 6 aten::mm (backward)"); }

}  // namespace
}  // namespace tandem
