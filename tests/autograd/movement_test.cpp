// movement: ops that put tensors into parts of another become memory and copies into views of it, bit for bit.
#include "autograd/interpret.h"
#include "autograd/pass.h"
#include "tests/autograd/pass_checks.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cstring>

namespace tandem {
namespace {

using test::GraphMaker;
using test::ints;
using test::number;
using test::ops;
using test::Sizes;
using test::tensor;

/// One op on inputs; its result is doubled by a later node and is an output itself.
struct Case {
  GraphMaker m;
  std::vector<at::Tensor> inputs;

  ValueId in(const at::Tensor& t) {
    inputs.push_back(t);
    const ValueId v = m.outside(Role::input, t.sizes().vec());
    m.g.values[v].strides = t.strides().vec();
    return v;
  }
  Graph graph(const std::string& op, std::vector<Argument> args, const at::Tensor& like) {
    const ValueId r = m.fresh(like.sizes().vec(), like.strides().vec());
    m.node(op, std::move(args), {r});
    const ValueId twice = m.fresh(like.sizes().vec(), like.strides().vec());
    m.node("aten::mul.Scalar", {tensor(r), number(2.0)}, {twice});
    m.g.outputs = {r, twice};
    m.g.loss = m.sum(twice);
    return m.g;
  }
  std::vector<at::Tensor> run(const Graph& g) const {
    RunInputs bound;
    bound.storages.resize(g.storages.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) bound.storages[i].storage = inputs[i].storage();
    Interpreter interpreter(g);
    interpreter.run(bound);
    return {interpreter.value(g.outputs[0]).clone(), interpreter.value(g.outputs[1]).clone()};
  }
};

Argument list(std::vector<ValueId> values) {
  Argument a;
  a.kind = Argument::Kind::tensors;
  a.values = std::move(values);
  return a;
}

void expect_split(const Case& c, const Graph& g, const std::string& nodes) {
  ASSERT_EQ(verify(g), "");
  const Graph out = movement(g);
  EXPECT_EQ(verify(out), "");
  EXPECT_EQ(ops(out), nodes + " mul.Scalar sum");
  const auto expected = c.run(g), found = c.run(out);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(found[i].sizes(), expected[i].sizes());
    EXPECT_EQ(std::memcmp(found[i].const_data_ptr(), expected[i].const_data_ptr(), expected[i].nbytes()), 0);
  }
}

void expect_kept(const Graph& g, const std::string& op) { EXPECT_EQ(ops(movement(g)), op + " mul.Scalar sum"); }

TEST(Movement, CatBecomesOneCopyPerTensor) {
  Case c;
  const auto a = at::randn({3, 2}), b = at::randn({3, 4});
  const auto args = std::vector<ValueId>{c.in(a), c.in(b)};
  expect_split(c, c.graph("aten::cat", {list(args), number(-1)}, at::cat({a, b}, -1)), "empty_strided copy_ copy_");
}

TEST(Movement, CatLeavesOutEmptyTensorsOfTheOldForm) {
  Case c;
  const auto a = at::randn({3, 2}), none = at::empty({0});
  const auto args = std::vector<ValueId>{c.in(a), c.in(none)};
  expect_split(c, c.graph("aten::cat", {list(args), number(0)}, at::cat({a, none}, 0)), "empty_strided copy_");
}

TEST(Movement, StackBecomesOneCopyPerTensor) {
  Case c;
  const auto a = at::randn({3, 2}), b = at::randn({3, 2});
  const auto args = std::vector<ValueId>{c.in(a), c.in(b)};
  expect_split(c, c.graph("aten::stack", {list(args), number(1)}, at::stack({a, b}, 1)), "empty_strided copy_ copy_");
}

TEST(Movement, SelectBackwardFillsWithZerosFirst) {
  Case c;
  const auto grad = at::randn({5});
  const auto g = c.in(grad);
  expect_split(c,
               c.graph("aten::select_backward", {tensor(g), ints({5, 2}), number(1), number(-1)}, at::select_backward(grad, {5, 2}, 1, -1)),
               "empty_strided fill_.Scalar copy_");
}

TEST(Movement, SliceBackwardKeepsItsStep) {
  Case c;
  const auto grad = at::randn({2, 3});
  const auto g = c.in(grad);
  expect_split(c,
               c.graph("aten::slice_backward", {tensor(g), ints({2, 7}), number(1), number(-6), number(7), number(2)},
                       at::slice_backward(grad, {2, 7}, 1, -6, 7, 2)),
               "empty_strided fill_.Scalar copy_");
}

TEST(Movement, KeepsLongListsAsOneCall) {
  Case c;
  std::vector<at::Tensor> parts;
  std::vector<ValueId> args;
  for (int i = 0; i < 5; ++i) {
    parts.push_back(at::randn({2}));
    args.push_back(c.in(parts.back()));
  }
  expect_kept(c.graph("aten::cat", {list(args), number(0)}, at::cat(parts, 0)), "cat");
}

TEST(Movement, KeepsSourcesOfAnotherDtype) {
  Case c;
  const auto a = at::randn({2}), b = at::randn({2});
  const auto args = std::vector<ValueId>{c.in(a), c.in(b)};
  c.m.g.values[args[1]].dtype = c10::ScalarType::Int;
  expect_kept(c.graph("aten::cat", {list(args), number(0)}, at::cat({a, b}, 0)), "cat");
}

TEST(Movement, AnExpandedMatrixIsCopiedBeforeItsProduct) {
  Case c;
  const auto a = at::randn({1, 1}), b = at::randn({1, 3});
  const auto one = c.in(a), other = c.in(b);
  const ValueId wide = c.m.view(one, {4, 1}, {0, 0});
  c.m.node("aten::expand", {tensor(one), ints({4, 1}), number(Constant(false))}, {wide});
  expect_split(c, c.graph("aten::mm", {tensor(wide), tensor(other)}, at::mm(a.expand({4, 1}), b)), "expand clone mm");
}

TEST(Movement, LaterWritesOfTheResultKeepTheirOrder) {
  Case c;
  const auto a = at::randn({2}), b = at::randn({2});
  const auto args = std::vector<ValueId>{c.in(a), c.in(b)};
  const ValueId r = c.m.fresh({4});
  c.m.node("aten::cat", {list(args), number(0)}, {r});
  const ValueId written = c.m.next(r);
  c.m.node("aten::mul_.Scalar", {tensor(r), number(3.0)}, {written}).writes = {c.m.g.values[r].storage};
  c.m.g.outputs = {written, written};
  c.m.g.loss = c.m.sum(written);
  ASSERT_EQ(verify(c.m.g), "");
  const Graph out = movement(c.m.g);
  EXPECT_EQ(verify(out), "");
  EXPECT_TRUE(at::equal(c.run(out)[0], at::cat({a, b}) * 3.0));
}

}  // namespace
}  // namespace tandem
