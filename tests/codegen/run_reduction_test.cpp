// Generated reductions against double precision: never worse than eager, and the same whatever runs which part.
#include "tests/support/fused.h"

#include <gtest/gtest.h>

namespace tandem::test {
namespace {

using Inputs = std::map<ValueId, at::Tensor>;

const jit::Settings targets[] = {{jit::Compiler::automatic, {"haswell", 256}, "", ""},
                                 {jit::Compiler::automatic, {}, "", ""},
                                 {jit::Compiler::system, {"haswell", 256}, "", ""}};

Inputs in_double(const Inputs& inputs) {
  Inputs out;
  for (const auto& [v, t] : inputs) out[v] = t.scalar_type() == at::kFloat ? t.to(at::kDouble) : t;
  return out;
}

/// The same graph in double.
Graph in_double(Graph g) {
  for (Value& v : g.values)
    if (v.dtype == at::kFloat) v.dtype = at::kDouble;
  for (Storage& s : g.storages) s.bytes *= 2;
  return g;
}

double error(const at::Tensor& got, const at::Tensor& want) { return (got.to(at::kDouble) - want).abs().max().item<double>(); }

/// Largest error at most `factor` times eager's, plus a few roundings of the largest result.
void expect_no_worse(const GraphMaker& m, const Inputs& inputs, double factor = 1.5, double roundings = 2) {
  const Graph wide = in_double(m.g);
  Eager eager(m.g, inputs), reference(wide, in_double(inputs));
  for (const auto& target : targets) {
    Fused fused(m.g, target);
    const RunInputs memory = fused.run(inputs);
    for (ValueId v : m.g.outputs) {
      const auto want = reference.value(v), got = fused.value(memory, v);
      const double unit = want.abs().max().item<double>() * std::ldexp(1.0, -24);
      EXPECT_LE(error(got, want), factor * error(eager.value(v), want) + roundings * unit)
          << "%" << v << " eager " << error(eager.value(v), want) << " unit " << unit << " " << fused.module->compiled_by << "\n"
          << fused.emitted.source;
    }
  }
}

at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType t = at::kFloat) {
  torch::manual_seed(sizes.empty() ? 1 : sizes[0]);
  return torch::randn(sizes, t);
}

Argument no() { return number(Constant(false)); }

GraphMaker sum_over(const Sizes& sizes, const Sizes& dims, const Sizes& result) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, sizes);
  m.g.outputs = {m.make("aten::sum.dim_IntList", {tensor(x), ints(dims), no(), none()}, result)};
  return m;
}

TEST(Reduction, SumsOverAnyDims) {
  struct Case {
    Sizes sizes, dims, result;
  };
  const Case cases[] = {{{37, 53}, {0}, {53}},
                        {{37, 53}, {1}, {37}},
                        {{5, 7, 9}, {1}, {5, 9}},
                        {{5, 7, 9}, {0, 2}, {7}},
                        {{1000, 3}, {0}, {3}},
                        {{3, 1000}, {1}, {3}},
                        {{2, 3, 4, 5}, {1, 3}, {2, 4}},
                        {{64, 8, 33}, {0, 1}, {33}},
                        {{600, 1025}, {0}, {1025}},
                        {{4, 6, 1025}, {0}, {6, 1025}},
                        {{17}, {0}, {}},
                        {{300, 10, 40}, {0, 2}, {10}}};
  for (const Case& c : cases) expect_no_worse(sum_over(c.sizes, c.dims, c.result), {{0, numbers(c.sizes)}});
}

TEST(Reduction, SumsOfATransposedOperand) {
  GraphMaker m;
  const ValueId y = m.outside(Role::input, {40, 70});
  const ValueId t = m.view(y, {70, 40}, {1, 70});
  m.g.outputs = {m.make("aten::sum.dim_IntList", {tensor(t), ints({0}), no(), none()}, {40}), m.make("aten::exp", {tensor(t)}, {70, 40})};
  expect_no_worse(m, {{y, numbers({40, 70})}});
}

class SumOfHardNumbers : public testing::TestWithParam<int> {};

/// 1e6 numbers: random, with a large offset, alternating, growing, and one that swallows all others.
at::Tensor hard(int kind, int seed = 0) {
  const std::int64_t n = 1000000;
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  const auto noise = torch::randn({n});
  if (kind == 0) return noise;
  if (kind == 1) return noise + 1000;
  if (kind == 2) return noise * 0.01 + torch::arange(n).remainder(2).mul(2).sub(1).to(at::kFloat) * 100;
  if (kind == 3) return torch::arange(n).to(at::kFloat) + noise;
  return noise.abs().index_put({torch::tensor(5)}, torch::tensor(1e7f));
}

/// A single error is luck, so the mean square over all results of several inputs is compared.
void expect_no_worse_on_average(const GraphMaker& m, const Sizes& sizes, int kind) {
  constexpr int inputs = 12;
  double theirs = 0, ours[3] = {}, unit = 0;
  std::vector<Fused> fused;
  for (const auto& target : targets) fused.emplace_back(m.g, target);
  for (int seed = 0; seed < inputs; ++seed) {
    const auto x = hard(kind, seed).view(sizes);
    Eager eager(m.g, {{0, x}}), reference(in_double(m.g), {{0, x.to(at::kDouble)}});
    const ValueId v = m.g.outputs[0];
    const auto want = reference.value(v);
    auto square = [&](const at::Tensor& got) { return (got.to(at::kDouble) - want).square().mean().item<double>() / inputs; };
    theirs += square(eager.value(v));
    for (int t = 0; t < 3; ++t)
      ours[t] += square(fused[static_cast<std::size_t>(t)].value(fused[static_cast<std::size_t>(t)].run({{0, x}}), v));
    unit = std::max(unit, want.abs().max().item<double>() * std::ldexp(1.0, -24));
  }
  for (int t = 0; t < 3; ++t)
    EXPECT_LE(std::sqrt(ours[t]), 1.1 * std::sqrt(theirs) + 0.3 * unit)
        << "unit " << unit << " " << fused[static_cast<std::size_t>(t)].module->compiled_by;
}

TEST_P(SumOfHardNumbers, FullSumIsNoWorse) { expect_no_worse_on_average(sum_over({1000000}, {0}, {}), {1000000}, GetParam()); }

TEST_P(SumOfHardNumbers, MeanIsNoWorse) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {1000000});
  m.g.outputs = {m.make("aten::mean", {tensor(x), none()}, {})};
  expect_no_worse_on_average(m, {1000000}, GetParam());
}

TEST_P(SumOfHardNumbers, RowSumsAreNoWorse) { expect_no_worse_on_average(sum_over({10, 100000}, {1}, {10}), {10, 100000}, GetParam()); }

TEST_P(SumOfHardNumbers, SumsOfShortRowsAreNoWorse) {
  expect_no_worse_on_average(sum_over({2000, 500}, {1}, {2000}), {2000, 500}, GetParam());
}

TEST_P(SumOfHardNumbers, ColumnSumsAreNoWorse) { expect_no_worse_on_average(sum_over({10000, 100}, {0}, {100}), {10000, 100}, GetParam()); }

TEST_P(SumOfHardNumbers, SumsOfDoublesAreNoWorse) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {10000, 100}, at::kDouble);
  const ValueId all = m.make("aten::sum", {tensor(x), none()}, {}, {}, at::kDouble);
  const ValueId columns = m.make("aten::sum.dim_IntList", {tensor(x), ints({0}), no(), none()}, {100}, {}, at::kDouble);
  m.g.outputs = {all, columns};
  const auto t = hard(GetParam()).view({10000, 100}).to(at::kDouble) / 3;
  std::vector<long double> exact(101);
  for (std::int64_t i = 0; i < 10000; ++i)
    for (std::int64_t k = 0; k < 100; ++k) {
      const long double e = t.const_data_ptr<double>()[i * 100 + k];
      exact[100] += e;
      exact[static_cast<std::size_t>(k)] += e;
    }
  Eager eager(m.g, {{x, t}});
  Fused fused(m.g);
  const RunInputs memory = fused.run({{x, t}});
  auto off = [](double got, long double want) { return static_cast<double>(std::abs(static_cast<long double>(got) - want)); };
  EXPECT_LE(off(fused.value(memory, all).item<double>(), exact[100]),
            off(eager.value(all).item<double>(), exact[100]) + std::ldexp(std::abs(static_cast<double>(exact[100])), -53));
  double ours = 0, theirs = 0;
  for (std::int64_t k = 0; k < 100; ++k) {
    ours = std::max(ours, off(fused.value(memory, columns)[k].item<double>(), exact[static_cast<std::size_t>(k)]));
    theirs = std::max(theirs, off(eager.value(columns)[k].item<double>(), exact[static_cast<std::size_t>(k)]));
  }
  EXPECT_LE(ours, theirs * 1.01);
}

INSTANTIATE_TEST_SUITE_P(Kinds, SumOfHardNumbers, testing::Range(0, 5));

TEST(Reduction, ChunksMayRunInAnyOrder) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {333, 65});
  const ValueId y = m.make("aten::mul.Tensor", {tensor(x), tensor(x)}, {333, 65});
  m.g.outputs = {y, m.make("aten::sum.dim_IntList", {tensor(y), ints({0}), no(), none()}, {65}),
                 m.make("aten::sum", {tensor(y), none()}, {}), m.make("aten::mean", {tensor(x), none()}, {})};
  const Inputs inputs{{x, numbers({333, 65})}};
  for (const auto& target : targets) {
    Fused fused(m.g, target);
    for (std::int64_t chunks : {1, 3, 16}) {
      const RunInputs forwards = fused.run(inputs, {}, chunks), backwards = fused.run(inputs, {}, chunks, true);
      for (ValueId v : m.g.outputs) {
        EXPECT_TRUE(at::equal(fused.value(forwards, v), fused.value(backwards, v))) << chunks;
        EXPECT_TRUE(at::allclose(fused.value(forwards, v), Eager(m.g, inputs).value(v), 1e-5, 1e-6)) << chunks;
      }
    }
  }
}

TEST(Reduction, ChunksFollowFromSizesAlone) {
  EXPECT_EQ(lower_all(sum_over({1000}, {0}, {}).g).chunks, 1);
  EXPECT_EQ(lower_all(sum_over({100000}, {0}, {}).g).chunks, 6);
  EXPECT_EQ(lower_all(sum_over({10000000}, {0}, {}).g).chunks, 16);
  EXPECT_EQ(lower_all(sum_over({32, 100000}, {0}, {100000}).g).chunks, 2);  // more parts would cost more memory than the operand
}

GraphMaker softmax(const Sizes& sizes, int dim, const char* op = "aten::_softmax") {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, sizes);
  m.g.outputs = {m.make(op, {tensor(x), number(dim), no()}, sizes)};
  return m;
}

TEST(Rows, SoftmaxOfManySizes) {
  for (const Sizes& sizes :
       {Sizes{7, 1}, Sizes{7, 3}, Sizes{3, 17}, Sizes{5, 1000}, Sizes{2, 4099}, Sizes{2, 65536}, Sizes{1, 9}, Sizes{300}})
    for (const char* op : {"aten::_softmax", "aten::_log_softmax"})
      expect_no_worse(softmax(sizes, -1, op), {{0, numbers(sizes) * 4}}, 1.5, 4);
}

TEST(Rows, SoftmaxOverAnOuterAndAMiddleDim) {
  expect_no_worse(softmax({33, 20}, 0), {{0, numbers({33, 20})}}, 1.5, 4);
  expect_no_worse(softmax({4, 33, 20}, 1), {{0, numbers({4, 33, 20})}}, 1.5, 4);
}

TEST(Rows, SoftmaxOfSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto x = torch::tensor({-inf, 1.0f, -inf, 2.0f, -inf,   -inf,   -inf,  -inf, nan,  1.0f, 2.0f, 3.0f,
                                inf,  1.0f, 2.0f, 3.0f, -1e30f, -2e30f, -0.0f, 0.0f, 1.0f, 2.0f, 3.0f, -nan})
                     .view({6, 4});
  GraphMaker m = softmax({6, 4}, 1);
  Eager eager(m.g, {{0, x}});
  for (const auto& target : targets) {
    Fused fused(m.g, target);
    EXPECT_TRUE(at::allclose(fused.value(fused.run({{0, x}}), 1), eager.value(1), 1e-6, 1e-7, true))
        << fused.value(fused.run({{0, x}}), 1) << eager.value(1);
  }
}

TEST(Rows, LargestAndSmallestKeepNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  auto x = numbers({6, 50});
  x[1][7] = nan;
  x[2][49] = -nan;
  for (const auto& dims : {Sizes{1}, Sizes{0}, Sizes{0, 1}}) {
    GraphMaker m;
    const ValueId v = m.outside(Role::input, {6, 50});
    const Sizes result = dims.size() == 2 ? Sizes{} : Sizes{dims[0] == 1 ? 6 : 50};
    for (const char* op : {"aten::amax", "aten::amin"}) m.g.outputs.push_back(m.make(op, {tensor(v), ints(dims), no()}, result));
    for (const auto& target : targets) {
      Fused fused(m.g, target);
      const RunInputs memory = fused.run({{v, x}});
      for (ValueId r : m.g.outputs)
        EXPECT_TRUE(at::allclose(fused.value(memory, r), Eager(m.g, {{v, x}}).value(r), 0, 0, true)) << fused.emitted.source;
    }
  }
}

TEST(Rows, SoftmaxBackward) {
  GraphMaker m;
  const ValueId g = m.outside(Role::input, {31, 77}), y = m.outside(Role::input, {31, 77});
  m.g.outputs = {m.make("aten::_softmax_backward_data", {tensor(g), tensor(y), number(1), number(6)}, {31, 77})};
  expect_no_worse(m, {{g, numbers({31, 77})}, {y, numbers({31, 77}).softmax(1)}}, 1.5, 4);
}

/// Layer norm forward; with its backward when `backward`.
GraphMaker layer_norm(const Sizes& sizes, bool backward) {
  GraphMaker m;
  const Sizes row{sizes.back()}, stat{sizes[0], 1};
  const ValueId x = m.outside(Role::input, sizes), w = m.outside(Role::parameter, row), b = m.outside(Role::parameter, row);
  if (!backward) {
    const ValueId y = m.fresh(sizes), mean = m.fresh(stat), rstd = m.fresh(stat);
    m.node("aten::native_layer_norm", {tensor(x), ints(row), tensor(w), tensor(b), number(1e-5)}, {y, mean, rstd});
    m.g.outputs = {y, mean, rstd};
    return m;
  }
  const ValueId g = m.outside(Role::input, sizes), mean = m.outside(Role::input, stat), rstd = m.outside(Role::input, stat);
  const ValueId dx = m.fresh(sizes), dw = m.fresh(row), db = m.fresh(row);
  m.node("aten::native_layer_norm_backward",
         {tensor(g), tensor(x), ints(row), tensor(mean), tensor(rstd), tensor(w), tensor(b),
          number(Constant(std::vector<bool>{true, true, true}))},
         {dx, dw, db});
  m.g.outputs = {dx, dw, db};
  return m;
}

TEST(Rows, LayerNorm) {
  for (const Sizes& sizes : {Sizes{9, 3}, Sizes{64, 100}, Sizes{33, 1024}, Sizes{3, 4099}})
    expect_no_worse(layer_norm(sizes, false), {{0, numbers(sizes) * 3 + 10}, {1, numbers({sizes.back()})}, {2, numbers({sizes.back()})}}, 2,
                    4);
}

TEST(Rows, LayerNormBackwardWithItsColumnSums) {
  for (const Sizes& sizes : {Sizes{9, 3}, Sizes{1000, 100}, Sizes{33, 1024}}) {
    const auto x = numbers(sizes) * 3 + 1;
    const auto mean = x.mean({1}, true), rstd = (x.var(1, false, true) + 1e-5).rsqrt();
    expect_no_worse(layer_norm(sizes, true),
                    {{0, x}, {1, numbers({sizes.back()})}, {2, numbers({sizes.back()})}, {3, torch::randn(sizes)}, {4, mean}, {5, rstd}}, 2,
                    4);
  }
}

TEST(Rows, AResultOfARowFeedsOtherMembers) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {20, 70});
  const ValueId s = m.make("aten::sum.dim_IntList", {tensor(x), ints({1}), number(Constant(true)), none()}, {20, 1});
  const ValueId y = m.make("aten::div.Tensor", {tensor(x), tensor(s)}, {20, 70});
  const ValueId z = m.make("aten::tanh", {tensor(y)}, {20, 70});
  m.g.outputs = {s, z, m.make("aten::sum.dim_IntList", {tensor(z), ints({0}), no(), none()}, {70})};
  expect_no_worse(m, {{x, numbers({20, 70}).abs()}}, 1.5, 4);
}

TEST(Rows, WhatAPassOverwritesWasReadByAllPasses) {
  GraphMaker m;
  const ValueId x = m.outside(Role::buffer, {20, 70});
  const ValueId s = m.make("aten::sum.dim_IntList", {tensor(x), ints({1}), number(Constant(true)), none()}, {20, 1});
  const ValueId x1 = m.write("aten::mul_.Tensor", {tensor(x), tensor(x)}, x);
  m.g.outputs = {m.make("aten::sub.Tensor", {tensor(x1), tensor(s), number(1)}, {20, 70}), x1};
  expect_no_worse(m, {{x, numbers({20, 70})}}, 1.5, 4);
}

}  // namespace
}  // namespace tandem::test
