// Numbers of a recorded update become run-time scalars, all or none.
#include "trainers/optimizers.h"

#include <gtest/gtest.h>

#include <limits>

namespace tandem {
namespace {

Argument number(Constant constant, bool wrapped = false) {
  Argument a;
  a.constant = std::move(constant);
  a.wrapped = wrapped;
  return a;
}

Argument tensor(ValueId v) {
  Argument a;
  a.kind = Argument::Kind::tensor;
  a.values = {v};
  return a;
}

Node node(NodeId id, std::string op, Side side, std::vector<Argument> args) {
  Node n;
  n.id = id;
  n.op = std::move(op);
  n.side = side;
  n.args = std::move(args);
  return n;
}

/// Two update nodes with the numbers 0.25 (wrapped) and -0.5, after a backward node and an update node with numbers of their own.
Graph sample() {
  Graph g;
  g.scalars.push_back({"clip", 3.0});
  g.nodes.push_back(node(0, "aten::mul.Scalar", Side::backward, {tensor(0), number(7.0)}));
  g.nodes.push_back(node(1, "aten::mul_.Scalar", Side::update, {tensor(0), number(8.0)}));
  g.nodes.push_back(node(2, "aten::mul_.Tensor", Side::update, {tensor(0), number(0.25, true)}));
  g.nodes.push_back(node(3, "aten::add_.Tensor", Side::update, {tensor(0), tensor(1), number(-0.5)}));
  return g;
}
constexpr std::size_t first_update = 2;

TEST(BindNumbers, PutsScalarsInTheOrderOfNodesAfterThoseThatAreThere) {
  auto g = sample();
  EXPECT_EQ(bind_numbers(g, first_update, {{"beta", 0.25}, {"lr", -0.5}}), "");
  ASSERT_EQ(g.scalars.size(), 3u);
  EXPECT_EQ(g.scalars[1].name, "beta");
  EXPECT_EQ(g.scalars[1].recorded, 0.25);
  EXPECT_EQ(g.scalars[2].name, "lr");
  EXPECT_EQ(g.nodes[2].args[1].scalar, 1);
  EXPECT_TRUE(g.nodes[2].args[1].wrapped);
  EXPECT_EQ(g.nodes[3].args[2].scalar, 2);
}

TEST(BindNumbers, LeavesEarlierNodesAlone) {
  auto g = sample();
  bind_numbers(g, first_update, {{"beta", 0.25}, {"lr", -0.5}});
  EXPECT_EQ(g.nodes[0].args[1].scalar, -1);
  EXPECT_EQ(g.nodes[1].args[1].scalar, -1);
}

TEST(BindNumbers, LeavesANodeOfAnotherSideAlone) {
  auto g = sample();
  g.nodes[2].side = Side::backward;
  EXPECT_EQ(bind_numbers(g, first_update, {{"lr", -0.5}}), "");
  EXPECT_EQ(g.nodes[2].args[1].scalar, -1);
}

TEST(BindNumbers, SkipsEverythingThatIsNotOneFloatingNumber) {
  auto g = sample();
  g.nodes[2].args = {number(std::int64_t{1}),           number(true),   number(c10::complex<double>(1, 2)),
                     number(std::vector<double>{1, 2}), number(None{}), number(0.25)};
  EXPECT_EQ(bind_numbers(g, first_update, {{"beta", 0.25}, {"lr", -0.5}}), "");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(g.nodes[2].args[i].scalar, -1) << i;
  EXPECT_EQ(g.nodes[2].args[5].scalar, 1);
}

TEST(BindNumbers, SkipsWhatIsARunTimeScalarAlready) {
  auto g = sample();
  g.nodes[2].args[1].scalar = 0;
  EXPECT_EQ(bind_numbers(g, first_update, {{"lr", -0.5}}), "");
  EXPECT_EQ(g.nodes[2].args[1].scalar, 0);
  EXPECT_EQ(g.nodes[3].args[2].scalar, 1);
}

TEST(BindNumbers, AcceptsAnUpdateWithoutNumbers) {
  auto g = sample();
  EXPECT_EQ(bind_numbers(g, g.nodes.size(), {}), "");
}

/// Binds and expects a refusal that leaves the graph as it was.
std::string refusal(const std::vector<Number>& numbers) {
  auto g = sample();
  auto sentence = bind_numbers(g, first_update, numbers);
  EXPECT_EQ(first_difference(g, sample()), "");
  EXPECT_EQ(g.scalars.size(), 1u);
  return sentence;
}

TEST(BindNumbers, NamesTheNodeTheNumberAndBothValuesWhereOneDiffers) {
  EXPECT_EQ(refusal({{"beta[0]", 0.25}, {"lr[0]", 0.1}}),
            "node 3 aten::add_.Tensor (update) has the number -0.5 where lr[0] = 0.10000000000000001 was expected");
}

TEST(BindNumbers, ComparesBitsNotValues) {
  const double next = std::nextafter(0.25, 1.0);
  EXPECT_EQ(refusal({{"beta", next}, {"lr", -0.5}}),
            "node 2 aten::mul_.Tensor (update) has the number 0.25 where beta = 0.25000000000000006 was expected");
  auto g = sample();
  g.nodes[2].args[1].constant = -0.0;
  EXPECT_NE(bind_numbers(g, first_update, {{"beta", 0.0}, {"lr", -0.5}}), "");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  g.nodes[2].args[1].constant = nan;
  EXPECT_EQ(bind_numbers(g, first_update, {{"beta", nan}, {"lr", -0.5}}), "");
}

TEST(BindNumbers, NamesTheFirstNumberTooMany) {
  EXPECT_EQ(refusal({{"beta", 0.25}}),
            "node 3 aten::add_.Tensor (update) has the number -0.5 where the update was expected to have no number after the first 1");
}

TEST(BindNumbers, NamesTheFirstNumberThatIsMissing) {
  EXPECT_EQ(refusal({{"beta", 0.25}, {"lr", -0.5}, {"eps", 2}}),
            "the recorded update has 2 numbers where 3 were expected, the first missing one is eps = 2");
}

}  // namespace
}  // namespace tandem
