// Each test has one reason why two nodes are merged or not.
#include "autograd/pass.h"
#include "tests/autograd/pass_checks.h"

namespace tandem {
namespace {

using test::after;
using test::finish;
using test::GraphMaker;
using test::mul;
using test::none;
using test::number;
using test::ops;
using test::tensor;

TEST(Cse, MergesEqualNodes) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = mul(m, x, x), b = mul(m, x, x);
  const Graph out = cse(finish(m, m.sum(mul(m, a, b))));
  EXPECT_EQ(verify(out), "");
  EXPECT_EQ(ops(out), "mul.Tensor mul.Tensor sum");
  EXPECT_EQ(out.nodes[1].args, (std::vector<Argument>{tensor(a), tensor(a)}));
}

TEST(Cse, MergesWhatBecomesEqualByAMerge) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::exp", {tensor(mul(m, x, x))}, {4});
  const ValueId b = m.make("aten::exp", {tensor(mul(m, x, x))}, {4});
  EXPECT_EQ(after(cse, finish(m, m.sum(mul(m, a, b)))), "mul.Tensor exp mul.Tensor sum");
}

TEST(Cse, ViewsOfAMergedResultMoveToTheOneThatStays) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = mul(m, x, x), b = mul(m, x, x);
  const ValueId half = m.view(b, {2}, {1}, 2);
  m.node("aten::slice.Tensor", {tensor(b), number(0), number(2), number(4), number(1)}, {half});
  m.make("aten::exp", {tensor(a)}, {4});
  const Graph out = cse(finish(m, m.sum(half)));
  EXPECT_EQ(verify(out), "");
  EXPECT_EQ(ops(out), "mul.Tensor slice.Tensor exp sum");
  EXPECT_EQ(out.storage_of(half), out.storage_of(a));
  EXPECT_EQ(out.values[half].storage, out.values[a].storage);
}

TEST(Cse, DropsARepeatedView) {
  GraphMaker m;
  const ValueId w = m.outside(Role::parameter, {2, 3});
  const ValueId t = m.view(w, {3, 2}, {1, 3});
  m.node("aten::t", {tensor(w)}, {t});
  const ValueId loss = m.sum(t);
  m.side = Side::backward;
  m.node("aten::t", {tensor(w)}, {t});
  m.sum(t);
  EXPECT_EQ(after(cse, finish(m, loss)), "t sum sum");
}

TEST(Cse, KeepsAViewOfALaterVersion) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {2, 3});
  const ValueId w = m.outside(Role::parameter, {2, 3});
  const ValueId t = m.view(w, {3, 2}, {1, 3});
  m.node("aten::t", {tensor(w)}, {t});
  const ValueId loss = m.sum(x);
  m.side = Side::update;
  const ValueId w1 = m.write("aten::add_.Tensor", {tensor(w), tensor(x), number(1)}, w);
  m.node("aten::t", {tensor(w1)}, {m.view(w1, {3, 2}, {1, 3})});
  EXPECT_EQ(after(cse, finish(m, loss)), "t sum add_.Tensor t");
}

TEST(Cse, TellsConstantsApartBitForBit) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::mul.Scalar", {tensor(x), number(0.0)}, {4});
  const ValueId b = m.make("aten::mul.Scalar", {tensor(x), number(-0.0)}, {4});
  EXPECT_EQ(after(cse, finish(m, m.sum(mul(m, a, b)))), "mul.Scalar mul.Scalar mul.Tensor sum");
}

TEST(Cse, TellsARunTimeScalarFromAConstantOfTheSameNumber) {
  GraphMaker m;
  m.g.scalars.push_back({"lr", 0.5});
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::mul.Scalar", {tensor(x), number(Constant(0.5), 0)}, {4});
  const ValueId b = m.make("aten::mul.Scalar", {tensor(x), number(0.5)}, {4});
  EXPECT_EQ(after(cse, finish(m, m.sum(mul(m, a, b)))), "mul.Scalar mul.Scalar mul.Tensor sum");
}

TEST(Cse, MergesTheSameRunTimeScalar) {
  GraphMaker m;
  m.g.scalars.push_back({"lr", 0.5});
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::mul.Scalar", {tensor(x), number(Constant(0.5), 0)}, {4});
  const ValueId b = m.make("aten::mul.Scalar", {tensor(x), number(Constant(0.5), 0)}, {4});
  EXPECT_EQ(after(cse, finish(m, m.sum(mul(m, a, b)))), "mul.Scalar mul.Tensor sum");
}

TEST(Cse, NeverMergesRandomNodes) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const auto draw = [&] { return m.make("aten::rand_like", {tensor(x), none(), none(), none(), none(), none()}, {4}); };
  const ValueId a = draw(), b = draw();
  EXPECT_EQ(after(cse, finish(m, m.sum(mul(m, a, b)))), "rand_like rand_like mul.Tensor sum");
}

TEST(Cse, NeverMergesOpsWithoutARow) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("mine::thing", {tensor(x)}, {4}), b = m.make("mine::thing", {tensor(x)}, {4});
  EXPECT_EQ(after(cse, finish(m, m.sum(mul(m, a, b)))), "thing thing mul.Tensor sum");
}

TEST(Cse, NeverMergesAResultThatIsWritten) {
  for (const bool first : {true, false}) {
    GraphMaker m;
    const ValueId x = m.outside(Role::input, {4});
    ValueId a = mul(m, x, x), b = mul(m, x, x);
    ValueId& written = first ? a : b;
    written = m.write("aten::relu_", {tensor(written)}, written);
    EXPECT_EQ(after(cse, finish(m, m.sum(mul(m, a, b)))), "mul.Tensor mul.Tensor relu_ mul.Tensor sum");
  }
}

TEST(Cse, NeverMergesAResultThatEscapes) {
  for (const bool first : {true, false}) {
    GraphMaker m;
    const ValueId x = m.outside(Role::input, {4});
    const ValueId a = mul(m, x, x), b = mul(m, x, x);
    m.g.outputs = {first ? a : b};
    EXPECT_EQ(after(cse, finish(m, m.sum(mul(m, a, b)))), "mul.Tensor mul.Tensor mul.Tensor sum");
  }
}

TEST(Cse, NeverMergesMemoryAcrossSides) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId loss = m.sum(mul(m, x, x));
  m.side = Side::backward;
  m.sum(mul(m, x, x));
  EXPECT_EQ(after(cse, finish(m, loss)), "mul.Tensor sum mul.Tensor sum");
}

TEST(Cse, MergesConstantsAcrossSides) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId loss = m.sum(mul(m, x, m.full({4}, 2.0)));
  m.side = Side::backward;
  mul(m, x, m.full({4}, 2.0));
  EXPECT_EQ(after(cse, finish(m, loss)), "full mul.Tensor sum mul.Tensor");
}

TEST(Cse, TellsGeometriesApart) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {2, 2});
  const ValueId a = m.make("aten::clone", {tensor(x), none()}, {2, 2}, {2, 1});
  const ValueId b = m.make("aten::clone", {tensor(x), none()}, {2, 2}, {1, 2});
  EXPECT_EQ(after(cse, finish(m, m.sum(m.make("aten::mul.Tensor", {tensor(a), tensor(b)}, {2, 2})))), "clone clone mul.Tensor sum");
}

TEST(Cse, RenamesBothResultsOfANode) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {2, 4});
  const auto largest = [&] {
    const ValueId y = m.fresh({2, 4}), z = m.fresh({2});
    m.node("aten::max.dim", {tensor(x), number(1), number(Constant(false))}, {y, z});
    return std::pair(y, z);
  };
  const auto [a, b] = largest();
  const auto [c, d] = largest();
  m.make("aten::mul.Tensor", {tensor(a), tensor(c)}, {2, 4});
  m.make("aten::mul.Tensor", {tensor(b), tensor(d)}, {2});
  const Graph out = cse(finish(m, m.sum(x)));
  EXPECT_EQ(verify(out), "");
  EXPECT_EQ(ops(out), "max.dim mul.Tensor mul.Tensor sum");
  EXPECT_EQ(out.nodes[2].args, (std::vector<Argument>{tensor(b), tensor(b)}));
}

}  // namespace
}  // namespace tandem
