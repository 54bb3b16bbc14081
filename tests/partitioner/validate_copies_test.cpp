// Each rule about what runs again, against a sound partition in which just that rule is broken.
#include "autograd/verify.h"
#include "partitioner/partition.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

#include <utility>

namespace tandem {
namespace {

using test::GraphMaker;
using test::tensor;

/// y = relu_(exp(x)), z = y * x; loss = sum(z); the backward makes y and z again and reads z.
struct Copies {
  GraphMaker m;
  ValueId x = m.outside(Role::input, {4}), other = m.outside(Role::input, {4});
  ValueId exp, y, z, exp_again, y_again, z_again;
  Partition p;

  Copies() {
    make(exp, y, z);
    m.g.loss = m.sum(z);
    m.side = Side::backward;
    make(exp_again, y_again, z_again);
    m.make("aten::neg", {tensor(z_again)}, {4});
    p.recomputed = {{0, 4}, {1, 5}, {2, 6}};
    p.recomputed_bytes = 32;
    for (const Node& n : m.g.nodes) p.groups.push_back({Group::Kind::library, n.side, {n.id}});
    EXPECT_EQ(verify(m.g), "");
    EXPECT_EQ(validate(m.g, p), "");
  }

  void make(ValueId& first, ValueId& written, ValueId& product) {
    first = m.make("aten::exp", {tensor(x)}, {4});
    written = m.write("aten::relu_", {tensor(first)}, first);
    product = m.make("aten::mul.Tensor", {tensor(written), tensor(x)}, {4});
  }
  Node& node(std::size_t i) { return m.g.nodes[i]; }
  std::string verdict() const { return validate(m.g, p); }
};

TEST(ValidateCopies, AWholeChainMayRunAgain) { EXPECT_EQ(Copies().verdict(), ""); }

TEST(ValidateCopies, NodesAreOfTheGraph) {
  Copies c;
  c.p.recomputed = {{0, 99}};
  EXPECT_EQ(c.verdict(), "recomputed names node 99, the graph has none of that number");
  c.p.recomputed = {{99, 4}};
  EXPECT_EQ(c.verdict(), "recomputed names node 99, the graph has none of that number");
}

TEST(ValidateCopies, OriginalsAreOfTheForward) {
  Copies c;
  c.p.recomputed[0].node = 7;
  EXPECT_EQ(c.verdict(), "node 7 aten::neg (backward) is recomputed, but only forward nodes may be");
}

TEST(ValidateCopies, CopiesAreOfTheBackward) {
  Copies c;
  c.p.recomputed[0].as = 3;
  EXPECT_EQ(c.verdict(), "node 0 aten::exp (forward) is recomputed as node 3 aten::sum (forward), expected a node of the backward");
}

TEST(ValidateCopies, EachNodeRunsAgainOnce) {
  Copies c;
  c.p.recomputed[1].node = 0;
  EXPECT_EQ(c.verdict(), "node 0 aten::exp (forward) is recomputed twice");
}

TEST(ValidateCopies, EachCopyHasOneOriginal) {
  Copies c;
  c.p.recomputed[1].as = 4;
  EXPECT_EQ(c.verdict(), "node 4 is listed twice as what recomputes a node");
}

TEST(ValidateCopies, CopiesAreAscending) {
  Copies c;
  std::swap(c.p.recomputed[0], c.p.recomputed[1]);
  EXPECT_EQ(c.verdict(), "recomputed lists n4 after n5, expected ascending numbers");
}

TEST(ValidateCopies, RandomAndUnknownNodesDoNotRunAgain) {
  for (const std::string op : {"aten::bernoulli", "mine::thing"}) {
    Copies c;
    c.node(0).op = c.node(4).op = op;
    EXPECT_EQ(c.verdict(), "node 0 " + op + " (forward) is recomputed, but it draws random numbers, has effects or is unknown");
  }
  Copies c;
  c.node(4).effects.random = true;
  EXPECT_EQ(c.verdict(), "node 0 aten::exp (forward) is recomputed, but it draws random numbers, has effects or is unknown");
}

TEST(ValidateCopies, FoldedNodesDoNotRunAgain) {
  Copies c;
  c.node(0).folded = true;
  EXPECT_EQ(c.verdict(), "node 0 aten::exp (forward) is recomputed, but it runs once for all steps");
}

TEST(ValidateCopies, ACopyIsTheSameOp) {
  Copies c;
  c.node(4).op = "aten::tanh";
  EXPECT_EQ(c.verdict(), "node 0 aten::exp (forward) is recomputed as node 4 aten::tanh (backward), which is another call");
}

TEST(ValidateCopies, ACopyHasTheSameConstants) {
  Copies c;
  c.node(0).args.push_back(test::number(1.0));
  c.node(4).args.push_back(test::number(2.0));
  EXPECT_EQ(c.verdict(), "node 0 aten::exp (forward) is recomputed as node 4 aten::exp (backward), whose argument 1 differs");
}

TEST(ValidateCopies, ACopyReadsTheSameOperands) {
  Copies c;
  c.node(6).args[1] = tensor(c.other);
  EXPECT_EQ(c.verdict(),
            "node 2 aten::mul.Tensor (forward) is recomputed as node 6 aten::mul.Tensor (backward), which reads %1 instead of %0 or what "
            "was made "
            "again for it");
}

TEST(ValidateCopies, ACopyReadsTheSamePlace) {
  Copies c;
  c.node(6).args[0] = tensor(c.m.view(c.y_again, {4}, {0}));
  EXPECT_NE(c.verdict().find("which reads %"), std::string::npos);
}

TEST(ValidateCopies, EachWriteRunsAgain) {
  Copies c;
  c.p.recomputed.erase(c.p.recomputed.begin() + 1);  // relu_ is not the copy of anything: what it writes is no copy's any more
  EXPECT_NE(c.verdict().find("node 6 aten::mul.Tensor (backward), which reads %"), std::string::npos) << c.verdict();
}

TEST(ValidateCopies, ACopyDoesNotWriteWhatExistedBefore) {
  Copies c;
  c.node(5).writes = {c.m.g.values[std::size_t(c.y)].storage};
  EXPECT_NE(c.verdict().find("which writes s2, that no copy made"), std::string::npos) << c.verdict();
}

TEST(ValidateCopies, ACopyDoesNotLieInWhatExistedBefore) {
  Copies c;
  c.node(6).results[0] = tensor(c.z);
  EXPECT_NE(c.verdict().find("whose result lies in s3, that existed before"), std::string::npos) << c.verdict();
}

TEST(ValidateCopies, ACopysResultsHaveTheSameGeometry) {
  Copies c;
  c.m.g.values[std::size_t(c.z_again)].sizes = {2, 2};
  c.m.g.values[std::size_t(c.z_again)].strides = {2, 1};
  EXPECT_NE(c.verdict().find("whose results differ or are numbers"), std::string::npos) << c.verdict();
}

TEST(ValidateCopies, ACopysMemoryIsAsLarge) {
  Copies c;
  c.m.g.storages[std::size_t(c.m.g.values[std::size_t(c.z_again)].storage)].bytes = 32;
  EXPECT_NE(c.verdict().find("whose result has 32 bytes of memory instead of 16"), std::string::npos) << c.verdict();
}

TEST(ValidateCopies, BytesAreThoseThatAreMadeAgain) {
  Copies c;
  c.p.recomputed_bytes = 16;
  EXPECT_EQ(c.verdict(), "what is made again has 32 bytes, the partition says 16");
}

TEST(ValidateCopies, ACopyOfAReadRunsBeforeTheOverwriting) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4}), buffer = m.outside(Role::buffer, {4});
  const ValueId y = m.make("aten::exp", {tensor(buffer)}, {4});
  m.write("aten::relu_", {tensor(buffer)}, buffer);
  m.g.loss = m.sum(y);
  m.side = Side::backward;
  m.make("aten::exp", {tensor(buffer)}, {4});
  Partition p;
  p.recomputed = {{0, 3}};
  p.recomputed_bytes = 16;
  for (const Node& n : m.g.nodes) p.groups.push_back({Group::Kind::library, n.side, {n.id}});
  EXPECT_EQ(validate(m.g, p), "node 3 aten::exp (backward) reads %1 at version 0 of s1, which is at version 1 when its group runs");
  (void)x;
}

}  // namespace
}  // namespace tandem
