// Numbers that move from step to step: which ones there are, which moved, and how later ones follow from earlier ones.
#include "autograd/numbers.h"
#include "autograd/stops.h"
#include "autograd/text.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::test {
namespace {

/// A forward that multiplies by `weight` and adds `shift` (an integer), a backward that multiplies by `back`.
Graph step(double weight, std::int64_t shift, double back) {
  GraphMaker m;
  const auto x = m.outside(Role::input, {4});
  const auto y = m.make("aten::mul.Scalar", {tensor(x), number(weight)}, {4});
  m.make("aten::add.Scalar", {tensor(y), number(Constant(shift)), number(1)}, {4});
  m.side = Side::backward;
  m.make("aten::mul.Scalar", {tensor(x), number(back)}, {4});
  return m.g;
}

TEST(Numbers, ScalarsAndFloatsAreNumbersAndSizesAreNot) {
  GraphMaker m;
  const auto x = m.outside(Role::input, {4, 2});
  m.make("aten::mul.Scalar", {tensor(x), number(0.5)}, {4, 2});                              // Scalar
  m.make("aten::add.Tensor", {tensor(x), tensor(x), number(1)}, {4, 2});                     // alpha
  m.make("aten::native_dropout", {tensor(x), number(0.1), number(Constant(true))}, {4, 2});  // float, bool
  m.node("aten::select.int", {tensor(x), number(0), number(3)}, {m.view(x, {2}, {1}, 6)});   // dims and positions
  EXPECT_EQ(numbers_of(m.g), (std::vector<NumberPlace>{{0, 1}, {1, 2}, {2, 1}}));
}

TEST(Numbers, AnIntegerThatADoubleCannotHoldIsNoNumber) {
  EXPECT_EQ(numbers_of(step(1, (std::int64_t{1} << 53) + 1, 1)).size(), 3u);  // weight, alpha, back
  EXPECT_EQ(numbers_of(step(1, std::int64_t{1} << 53, 1)).size(), 4u);
}

TEST(Numbers, TheOnesThatDifferAreTold) {
  const auto moved = moved_numbers(step(0.5, 3, 1), step(0.25, 3, 1));
  EXPECT_EQ(moved.difference, "");
  EXPECT_EQ(moved.numbers, (std::vector<std::size_t>{0}));
  EXPECT_EQ(moved_numbers(step(0.5, 3, 1), step(0.5, 4, 1)).numbers, (std::vector<std::size_t>{1}));
}

TEST(Numbers, ZeroAndMinusZeroDifferAndNaNEqualsItself) {
  EXPECT_EQ(moved_numbers(step(0.0, 3, 1), step(-0.0, 3, 1)).numbers.size(), 1u);
  EXPECT_EQ(moved_numbers(step(NAN, 3, 1), step(NAN, 3, 1)).numbers.size(), 0u);
}

TEST(Numbers, AnotherOpIsNoNumber) {
  auto other = step(0.5, 3, 1);
  other.nodes[0].op = "aten::div.Scalar";
  EXPECT_NE(moved_numbers(step(0.5, 3, 1), other).difference, "");
}

TEST(Numbers, OneThatMovesInTheBackwardFollowsFromTheForward) {
  for (const auto& [back_a, back_b, how] : std::vector<std::tuple<double, double, Derived::How>>{
           {0.3, 0.7, Derived::How::same}, {-0.3, -0.7, Derived::How::negated}, {1 / 0.3, 1 / 0.7, Derived::How::reciprocal}}) {
    const auto a = step(0.3, 3, back_a), b = step(0.7, 3, back_b);
    const auto found = derive_numbers(a, b, moved_numbers(a, b).numbers, 2);
    ASSERT_TRUE(found.has_value());
    ASSERT_EQ(found->size(), 1u);
    EXPECT_EQ((*found)[0].how, how);
    EXPECT_EQ((*found)[0].from, 0u);
    EXPECT_TRUE(same_bits(derive(how, 0.7), back_b));
  }
}

TEST(Numbers, OneThatFollowsFromNothingKnownIsNotDerived) {
  const auto a = step(0.3, 3, 0.09), b = step(0.7, 3, 0.49);
  EXPECT_FALSE(derive_numbers(a, b, moved_numbers(a, b).numbers, 2).has_value());
}

TEST(Numbers, OneWithTwoPossibleSourcesIsNotDerived) {
  GraphMaker m, n;
  for (auto [maker, value] : {std::pair(&m, 0.3), std::pair(&n, 0.7)}) {
    const auto x = maker->outside(Role::input, {4});
    for (int i = 0; i < 3; i++) maker->make("aten::mul.Scalar", {tensor(x), number(value)}, {4});
  }
  EXPECT_FALSE(derive_numbers(m.g, n.g, moved_numbers(m.g, n.g).numbers, 2).has_value());
}

TEST(Stops, AReadOfWhatTheStepComputesCutsIt) {
  GraphMaker m;
  const auto x = m.outside(Role::input, {4});
  const auto y = m.make("aten::mul.Scalar", {tensor(x), number(0.5)}, {});
  m.node("aten::_local_scalar_dense", {tensor(y)}, {}).effects.host_read = true;
  m.make("aten::mul.Scalar", {tensor(y), number(0.5)}, {});
  Recording r;
  r.graph = m.g;
  r.alive = {{1, {y}}};
  const auto parts = parts_of(r, false);
  ASSERT_EQ(parts.parts.size(), 3u);
  EXPECT_TRUE(parts.parts[1].host);
  EXPECT_EQ(parts.stops, (std::vector<std::size_t>{1}));
  const auto segments = cut(r.graph, parts);
  EXPECT_EQ(segments[0].hands_on.size(), 1u);
  EXPECT_EQ(segments[2].takes.size(), 1u);
}

TEST(Stops, AReadOfAnInputIsInNoPart) {
  GraphMaker m;
  const auto x = m.outside(Role::input, {});
  m.node("aten::_local_scalar_dense", {tensor(x)}, {}).effects.host_read = true;
  m.make("aten::mul.Scalar", {tensor(x), number(0.5)}, {});
  Recording r;
  r.graph = m.g;
  const auto parts = parts_of(r, false);
  EXPECT_EQ(parts.parts.size(), 1u);
  EXPECT_EQ(cut(r.graph, parts)[0].graph.nodes.size(), 1u);
}

TEST(Stops, AForwardThatMayThrowRunsBeforeTheBackwardBegins) {
  GraphMaker m;
  const auto table = m.outside(Role::parameter, {4, 2}), at = m.outside(Role::input, {3}, c10::ScalarType::Long);
  m.make("aten::embedding", {tensor(table), tensor(at), number(-1), number(Constant(false)), number(Constant(false))}, {3, 2});
  m.side = Side::backward;
  m.make("aten::mul.Scalar", {tensor(table), number(0.5)}, {4, 2});
  Recording r;
  r.graph = m.g;
  r.forward_end = 1;
  EXPECT_EQ(parts_of(r, true).parts.size(), 2u);
  EXPECT_EQ(parts_of(r, false).parts.size(), 1u);
}

TEST(Text, MarksOfAReplayPrintAndParse) {
  GraphMaker m;
  const auto x = m.outside(Role::carried, {4});
  m.g.scalars.push_back({"turns", 3, true});
  m.make("aten::mul.Scalar", {tensor(x), number(Constant(std::int64_t{3}), 0)}, {4});
  m.node("aten::_local_scalar_dense", {tensor(x)}, {}).effects.host_read = true;
  const auto text = print(m.g);
  EXPECT_NE(text.find("carried"), std::string::npos);
  EXPECT_NE(text.find(" integral"), std::string::npos);
  EXPECT_NE(text.find("host_read"), std::string::npos);
  EXPECT_EQ(print(parse_graph(text)), text);
}

}  // namespace
}  // namespace tandem::test
