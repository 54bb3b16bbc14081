// Each decomposition is interpreted next to the node that it replaces: same bits, and every result has the geometry that the graph says.
#include "autograd/interpret.h"
#include "autograd/op.h"
#include "autograd/pass.h"
#include "autograd/verify.h"
#include "tests/support/graph_maker.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace tandem {
namespace {

using test::GraphMaker;
using test::none;
using test::number;
using test::ops;
using test::Sizes;
using test::tensor;

enum class Layout { rows, transposed, channels_last };

at::Tensor random_tensor(const Sizes& sizes, Layout layout = Layout::rows, c10::ScalarType dtype = c10::ScalarType::Float) {
  const at::Tensor t = at::randn(sizes, at::TensorOptions(dtype));
  if (layout == Layout::channels_last) return t.contiguous(at::MemoryFormat::ChannelsLast);
  return layout == Layout::transposed ? t.transpose(0, 1).contiguous().transpose(0, 1) : t;
}

/// One composite node on outside tensors, whose result is the only output.
struct Case {
  GraphMaker m;
  std::vector<at::Tensor> inputs;

  Argument in(const at::Tensor& t) {
    const ValueId v = m.outside(Role::input, {t.numel()}, t.scalar_type());
    Value& value = m.g.values[static_cast<std::size_t>(v)];
    value.sizes = t.sizes().vec();
    value.strides = t.strides().vec();
    m.g.storages.back().bytes = static_cast<std::int64_t>(t.storage().nbytes());
    inputs.push_back(t);
    return tensor(v);
  }

  /// `eager`: what the op returns for these arguments; its geometry is the recorded one.
  const Graph& op(const std::string& name, std::vector<Argument> args, const at::Tensor& eager) {
    m.g.outputs = {m.make(name, std::move(args), eager.sizes().vec(), eager.strides().vec(), eager.scalar_type())};
    if (eager.dim() == 0) m.g.values.back().strides.clear();
    return m.g;
  }

  const Graph& in_place(const std::string& name, std::vector<Argument> args) {
    const ValueId target = args.front().values.front();
    m.g.outputs = {m.write(name, std::move(args), target)};
    return m.g;
  }
};

std::string geometry(const at::Tensor& t) {
  std::string text = c10::toString(t.scalar_type());
  for (std::int64_t d = 0; d < t.dim(); ++d) text += " " + std::to_string(t.size(d)) + ":" + std::to_string(t.stride(d));
  return text;
}

/// Runs the graph on copies of the inputs; checks each result against the geometry that the graph gives it.
at::Tensor run(const Graph& g, const std::vector<at::Tensor>& inputs, const std::vector<double>& scalars) {
  RunInputs bound;
  bound.storages.resize(g.storages.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor copy = at::empty_strided(inputs[i].sizes(), inputs[i].strides(), inputs[i].options());
    copy.copy_(inputs[i]);
    bound.storages[i].storage = copy.storage();
  }
  bound.scalars = scalars;
  Interpreter interpreter(g);
  interpreter.run(bound, [&](std::size_t node, Slots& slots) {
    for_each_value(g.nodes[node].results, [&](ValueId v) {
      const std::string recorded = geometry(make_tensor(g.values[v], slots.get(v).storage()));
      EXPECT_EQ(geometry(slots.get(v)), recorded) << describe(g.nodes[node]);
    });
  });
  return interpreter.value(g.outputs.front()).clone();
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

Graph checked(const Graph& g) {
  EXPECT_EQ(verify(g), "");
  const Graph out = decompose(g);
  EXPECT_EQ(verify(out), "");
  for (const Node& n : out.nodes) EXPECT_NE(find_op(n.op), nullptr) << n.op;
  return out;
}

void expect_same(const Graph& g, const std::vector<at::Tensor>& inputs, const std::string& nodes, const std::vector<double>& scalars = {}) {
  const Graph out = checked(g);
  EXPECT_EQ(ops(out), nodes);
  EXPECT_TRUE(same_bits(run(g, inputs, scalars), run(out, inputs, scalars))) << g.nodes.front().op;
}

/// Calls f(sizes, layout, dtype) for the geometries that ATen treats in different ways.
template <class F>
void for_each_geometry(F&& f) {
  for (auto dtype : {c10::ScalarType::Float, c10::ScalarType::Double}) {
    for (const Sizes& sizes : {Sizes{}, Sizes{37}, Sizes{33, 20}, Sizes{4, 1}, Sizes{2, 1, 3}, Sizes{2, 3, 4, 5}})
      f(sizes, Layout::rows, dtype);
    f(Sizes{33, 20}, Layout::transposed, dtype);
    f(Sizes{2, 3, 4, 5}, Layout::channels_last, dtype);
  }
}

TEST(Decompose, TanhBackward) {
  for_each_geometry([](const Sizes& sizes, Layout layout, c10::ScalarType dtype) {
    const at::Tensor grad = random_tensor(sizes, layout, dtype), output = random_tensor(sizes, layout, dtype).tanh();
    Case c;
    const auto args = {c.in(grad), c.in(output)};
    expect_same(c.op("aten::tanh_backward", args, at::tanh_backward(grad, output)), c.inputs, "scalar_tensor addcmul mul.Tensor");
  });
}

TEST(Decompose, SigmoidBackward) {
  for_each_geometry([](const Sizes& sizes, Layout layout, c10::ScalarType dtype) {
    const at::Tensor grad = random_tensor(sizes, layout, dtype), output = random_tensor(sizes, layout, dtype).sigmoid();
    Case c;
    const auto args = {c.in(grad), c.in(output)};
    expect_same(c.op("aten::sigmoid_backward", args, at::sigmoid_backward(grad, output)), c.inputs, "rsub.Scalar mul.Tensor mul.Tensor");
  });
}

TEST(Decompose, ThresholdBackward) {
  for_each_geometry([](const Sizes& sizes, Layout layout, c10::ScalarType dtype) {
    const at::Tensor grad = random_tensor(sizes, layout, dtype), self = random_tensor(sizes, layout, dtype);
    for (const int threshold : {0, 1}) {
      Case c;
      const auto args = {c.in(grad), c.in(self), number(threshold)};
      expect_same(c.op("aten::threshold_backward", args, at::threshold_backward(grad, self, threshold)), c.inputs,
                  "le.Scalar scalar_tensor where.self");
    }
  });
}

TEST(Decompose, ThresholdBackwardLetsTheGradientThroughWhereSelfIsNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor self = at::zeros({6});
  const double values[] = {nan, -0.0, 0.0, -1.0, 1.0, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < 6; ++i) self[i].fill_(values[i]);
  const at::Tensor grad = at::full({6}, 3.0);
  Case c;
  const auto args = {c.in(grad), c.in(self), number(0)};
  expect_same(c.op("aten::threshold_backward", args, at::threshold_backward(grad, self, 0)), c.inputs,
              "le.Scalar scalar_tensor where.self");
  EXPECT_EQ(run(decompose(c.m.g), c.inputs, {})[0].item<float>(), 3.0f);
}

TEST(Decompose, Addcmul) {
  for_each_geometry([](const Sizes& sizes, Layout layout, c10::ScalarType dtype) {
    const at::Tensor self = random_tensor(sizes, layout, dtype), a = random_tensor(sizes, layout, dtype),
                     b = random_tensor(sizes, layout, dtype);
    Case out, in_place;
    const auto args = {out.in(self), out.in(a), out.in(b), number(-0.37)};
    expect_same(out.op("aten::addcmul", args, at::addcmul(self, a, b, -0.37)), out.inputs, "mul.Scalar addcmul");
    const auto again = {in_place.in(self), in_place.in(a), in_place.in(b), number(-0.37)};
    expect_same(in_place.in_place("aten::addcmul_", again), in_place.inputs, "mul.Scalar addcmul_");
  });
}

TEST(Decompose, AddcmulWithoutAFactorIsPrimitive) {
  const at::Tensor t = random_tensor({8});
  Case c;
  const auto args = {c.in(t), c.in(t), c.in(t), number(1)};
  EXPECT_EQ(ops(checked(c.op("aten::addcmul", args, t))), "addcmul");
}

TEST(Decompose, Addcdiv) {
  for_each_geometry([](const Sizes& sizes, Layout layout, c10::ScalarType dtype) {
    const at::Tensor self = random_tensor(sizes, layout, dtype), a = random_tensor(sizes, layout, dtype),
                     b = random_tensor(sizes, layout, dtype);
    Case out, in_place;
    const auto args = {out.in(self), out.in(a), out.in(b), number(-0.37)};
    expect_same(out.op("aten::addcdiv", args, at::addcdiv(self, a, b, -0.37)), out.inputs, "mul.Scalar div.Tensor add.Tensor");
    const auto again = {in_place.in(self), in_place.in(a), in_place.in(b), number(1)};
    expect_same(in_place.in_place("aten::addcdiv_", again), in_place.inputs, "div.Tensor add_.Tensor");
  });
}

TEST(Decompose, AnInPlaceNodeStillWritesItsStorage) {
  const at::Tensor t = random_tensor({8});
  Case c;
  const auto args = {c.in(t), c.in(t), c.in(t), number(2.0)};
  const Graph& g = c.in_place("aten::addcdiv_", args);
  const Graph out = checked(g);
  EXPECT_EQ(out.nodes.back().writes, g.nodes.back().writes);
  EXPECT_EQ(out.nodes.back().results, g.nodes.back().results);
}

TEST(Decompose, ARunTimeScalarStaysOne) {
  const at::Tensor self = random_tensor({8}), a = random_tensor({8}), b = random_tensor({8});
  Case c;
  c.m.g.scalars.push_back({"adam.step_size[0]", 1.0});
  const auto args = {c.in(self), c.in(a), c.in(b), number(Constant(1.0), 0)};
  const Graph& g = c.in_place("aten::addcdiv_", args);
  EXPECT_EQ(checked(g).nodes.front().args[1].scalar, 0);
  expect_same(g, c.inputs, "mul.Scalar div.Tensor add_.Tensor", {-0.025});
}

TEST(Decompose, MseLoss) {
  const std::string nodes[] = {"sub.Tensor mul.Tensor", "sub.Tensor mul.Tensor mean", "sub.Tensor mul.Tensor sum"};
  for_each_geometry([&](const Sizes& sizes, Layout layout, c10::ScalarType dtype) {
    const at::Tensor self = random_tensor(sizes, layout, dtype), target = random_tensor(sizes, layout, dtype);
    for (const int reduction : {0, 1, 2}) {
      Case c;
      const auto args = {c.in(self), c.in(target), number(reduction)};
      expect_same(c.op("aten::mse_loss", args, at::mse_loss(self, target, reduction)), c.inputs, nodes[reduction]);
    }
  });
}

TEST(Decompose, MseLossBackward) {
  for_each_geometry([](const Sizes& sizes, Layout layout, c10::ScalarType dtype) {
    if (layout != Layout::rows) return;
    const at::Tensor self = random_tensor(sizes, layout, dtype), target = random_tensor(sizes, layout, dtype);
    for (const int reduction : {0, 1, 2}) {
      const at::Tensor grad = random_tensor(reduction ? Sizes{} : sizes, layout, dtype);
      Case c;
      const auto args = {c.in(grad), c.in(self), c.in(target), number(reduction)};
      expect_same(c.op("aten::mse_loss_backward", args, at::mse_loss_backward(grad, self, target, reduction)), c.inputs,
                  "sub.Tensor mul.Scalar mul.Tensor");
    }
  });
}

TEST(Decompose, MseLossBackwardOfTransposedOperandsStays) {
  const at::Tensor t = random_tensor({4, 3}, Layout::transposed), grad = random_tensor({});
  Case c;
  const auto args = {c.in(grad), c.in(t), c.in(t), number(1)};
  EXPECT_EQ(ops(checked(c.op("aten::mse_loss_backward", args, at::mse_loss_backward(grad, t, t, 1)))), "mse_loss_backward");
}

/// Row sums may be taken in another order, so elements may differ by the rounding of a sum over the row.
void expect_close(const Graph& g, const std::vector<at::Tensor>& inputs, const std::string& nodes, std::int64_t row) {
  const Graph out = checked(g);
  EXPECT_EQ(ops(out), nodes);
  const at::Tensor a = run(g, inputs, {}), b = run(out, inputs, {});
  const double unit = a.scalar_type() == c10::ScalarType::Float ? 0x1p-24 : 0x1p-53;
  const double largest = inputs[0].abs().max().item<double>() * (1 + inputs[1].abs().max().item<double>());
  EXPECT_LE((a - b).abs().max().item<double>(), 4 * static_cast<double>(row + 4) * unit * largest);
}

TEST(Decompose, SoftmaxBackward) {
  for (auto dtype : {c10::ScalarType::Float, c10::ScalarType::Double})
    for (const std::int64_t dim : {0, 1, -1}) {
      const at::Tensor grad = random_tensor({33, 20}, Layout::rows, dtype),
                       output = random_tensor({33, 20}, Layout::rows, dtype).softmax(dim);
      Case c;
      const auto args = {c.in(grad), c.in(output), number(Constant(dim)), number(static_cast<int>(dtype))};
      expect_close(c.op("aten::_softmax_backward_data", args, at::_softmax_backward_data(grad, output, dim, dtype)), c.inputs,
                   "mul.Tensor sum.dim_IntList sub.Tensor mul.Tensor", 33);
    }
}

TEST(Decompose, LogSoftmaxBackward) {
  for (auto dtype : {c10::ScalarType::Float, c10::ScalarType::Double})
    for (const std::int64_t dim : {0, 1, -1}) {
      const at::Tensor grad = random_tensor({33, 20}, Layout::rows, dtype),
                       output = random_tensor({33, 20}, Layout::rows, dtype).log_softmax(dim);
      Case c;
      const auto args = {c.in(grad), c.in(output), number(Constant(dim)), number(static_cast<int>(dtype))};
      expect_close(c.op("aten::_log_softmax_backward_data", args, at::_log_softmax_backward_data(grad, output, dim, dtype)), c.inputs,
                   "sum.dim_IntList exp mul.Tensor sub.Tensor", 33);
    }
}

// ---- what stays as it is ----

std::string after(const at::Tensor& grad, const at::Tensor& output) {
  Case c;
  const auto args = {c.in(grad), c.in(output)};
  return ops(checked(c.op("aten::sigmoid_backward", args, at::sigmoid_backward(grad, output))));
}

TEST(Decompose, OperandsOfDifferentLayoutsStay) {
  EXPECT_EQ(after(random_tensor({4, 3}), random_tensor({4, 3}, Layout::transposed)), "sigmoid_backward");
}

TEST(Decompose, BroadcastOperandsStay) { EXPECT_EQ(after(random_tensor({4, 3}), random_tensor({1, 3})), "sigmoid_backward"); }

TEST(Decompose, OperandsWithGapsStay) {
  const at::Tensor t = random_tensor({4, 6}).slice(1, 0, 3);
  EXPECT_EQ(after(t, t), "sigmoid_backward");
}

TEST(Decompose, NarrowTypesStayBecauseTheyRoundOnce) {
  const at::Tensor t = random_tensor({8}, Layout::rows, c10::ScalarType::BFloat16);
  EXPECT_EQ(after(t, t), "sigmoid_backward");
}

TEST(Decompose, EmptyTensorsStay) { EXPECT_EQ(after(random_tensor({0}), random_tensor({0})), "sigmoid_backward"); }

TEST(Decompose, OtherDevicesStayBecauseTheirKernelsRoundOtherwise) {
  const at::Tensor t = random_tensor({8});
  Case c;
  const auto args = {c.in(t), c.in(t)};
  c.op("aten::sigmoid_backward", args, t);
  for (Storage& s : c.m.g.storages) s.device = c10::Device(c10::DeviceType::CUDA, 0);
  EXPECT_EQ(ops(checked(c.m.g)), "sigmoid_backward");
}

// ---- bookkeeping ----

TEST(Decompose, NewNodesTakeTheNumbersAfterTheLargestAndTheMarksOfTheOldOne) {
  const at::Tensor t = random_tensor({8});
  Case c;
  const auto args = {c.in(t), c.in(t)};
  c.m.side = Side::backward;
  c.op("aten::sigmoid_backward", args, t);
  c.m.g.nodes.back().ran_for = "SigmoidBackward0#1";
  c.m.g.nodes.back().created = {"SigmoidBackwardBackward0#2"};
  c.m.node("aten::neg", {args.begin()[0]}, {c.m.fresh({8})}).id = 40;
  const Graph out = checked(c.m.g);
  ASSERT_EQ(ops(out), "rsub.Scalar mul.Tensor mul.Tensor neg");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(out.nodes[i].id, 41 + i);
    EXPECT_EQ(out.nodes[i].side, Side::backward);
    EXPECT_EQ(out.nodes[i].ran_for, "SigmoidBackward0#1");
    EXPECT_EQ(out.nodes[i].created.size(), i == 2 ? 1u : 0u);
  }
  EXPECT_EQ(out.nodes[3], c.m.g.nodes[1]);
}

TEST(Decompose, IsIdempotent) {
  const at::Tensor t = random_tensor({8});
  Case c;
  const auto args = {c.in(t), c.in(t)};
  const Graph once = decompose(c.op("aten::tanh_backward", args, t));
  EXPECT_EQ(first_difference(once, decompose(once)), "");
}

}  // namespace
}  // namespace tandem
