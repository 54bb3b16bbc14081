// Each test has one reason why a node stays or goes.
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
using test::tensor;

TEST(Dce, DropsANodeThatNothingReads) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  mul(m, x, x);
  EXPECT_EQ(after(dce, finish(m, m.sum(x))), "sum");
}

TEST(Dce, DropsAChainFromItsEnd) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId y = mul(m, x, x);
  mul(m, y, x);
  EXPECT_EQ(after(dce, finish(m, m.sum(x))), "sum");
}

TEST(Dce, KeepsWhatTheLossNeeds) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  EXPECT_EQ(after(dce, finish(m, m.sum(mul(m, x, x)))), "mul.Tensor sum");
}

TEST(Dce, KeepsOutputsGradientsAndTheNorm) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  m.g.outputs = {m.make("aten::exp", {tensor(x)}, {4})};
  m.g.gradients.push_back({0, "w", m.make("aten::neg", {tensor(x)}, {4}), m.make("aten::abs", {tensor(x)}, {4})});
  m.g.grad_norm = m.make("aten::mean", {tensor(x), none()}, {});
  EXPECT_EQ(after(dce, finish(m, m.sum(x))), "exp neg abs mean sum");
}

TEST(Dce, KeepsAWriteOfAStorageThatOutlivesTheStep) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId w = m.outside(Role::parameter, {4});
  const ValueId loss = m.sum(x);
  m.write("aten::add_.Tensor", {tensor(w), tensor(x), number(1)}, w);
  EXPECT_EQ(after(dce, finish(m, loss)), "sum add_.Tensor");
}

TEST(Dce, KeepsAWriteThatALaterReadSees) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId y = mul(m, x, x);
  EXPECT_EQ(after(dce, finish(m, m.sum(m.write("aten::relu_", {tensor(y)}, y)))), "mul.Tensor relu_ sum");
}

TEST(Dce, DropsAWriteOfMemoryThatNobodyReadsAgain) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId y = mul(m, x, x);
  const ValueId loss = m.sum(y);
  m.write("aten::relu_", {tensor(y)}, y);
  EXPECT_EQ(after(dce, finish(m, loss)), "mul.Tensor sum");
}

TEST(Dce, DropsADeadViewOfALiveStorage) {
  GraphMaker m;
  const ValueId w = m.outside(Role::parameter, {2, 3});
  m.node("aten::t", {tensor(w)}, {m.view(w, {3, 2}, {1, 3})});
  EXPECT_EQ(after(dce, finish(m, m.sum(w))), "sum");
}

TEST(Dce, KeepsAViewThatIsRead) {
  GraphMaker m;
  const ValueId w = m.outside(Role::parameter, {2, 3});
  const ValueId t = m.view(w, {3, 2}, {1, 3});
  m.node("aten::t", {tensor(w)}, {t});
  EXPECT_EQ(after(dce, finish(m, m.sum(t))), "t sum");
}

TEST(Dce, KeepsARandomNode) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  m.make("aten::rand_like", {tensor(x), none(), none(), none(), none(), none()}, {4});
  m.g.nodes.back().effects.random = true;
  EXPECT_EQ(after(dce, finish(m, m.sum(x))), "rand_like sum");
}

TEST(Dce, KeepsARandomRowEvenWithoutTheMark) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  m.make("aten::rand_like", {tensor(x), none(), none(), none(), none(), none()}, {4});
  EXPECT_EQ(after(dce, finish(m, m.sum(x))), "rand_like sum");
}

TEST(Dce, KeepsCollectives) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  mul(m, x, x);
  m.g.nodes.back().effects.collective = true;
  EXPECT_EQ(after(dce, finish(m, m.sum(x))), "mul.Tensor sum");
}

TEST(Dce, KeepsAnOpWithoutARow) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  m.make("mine::thing", {tensor(x)}, {4});
  EXPECT_EQ(after(dce, finish(m, m.sum(x))), "thing sum");
}

TEST(Dce, KeepsANodeThatMayThrowForABadIndex) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId i = m.outside(Role::input, {2}, c10::ScalarType::Long);
  m.make("aten::index_select", {tensor(x), number(0), tensor(i)}, {2});
  EXPECT_EQ(after(dce, finish(m, m.sum(x))), "index_select sum");
}

TEST(Dce, KeepsANodeThatReturnsANumber) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  m.node("aten::sum", {tensor(x), none()}, {}).results = {number(1)};
  EXPECT_EQ(after(dce, finish(m, m.sum(x))), "sum sum");
}

TEST(Dce, KeepsIdsOfNodesValuesAndStorages) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  mul(m, x, x);
  const Graph g = finish(m, m.sum(x)), out = dce(g);
  EXPECT_EQ(out.nodes.front(), g.nodes.back());
  EXPECT_EQ(out.values, g.values);
  EXPECT_EQ(out.storages, g.storages);
}

}  // namespace
}  // namespace tandem
