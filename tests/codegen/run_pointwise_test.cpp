// Generated pointwise kernels against eager's kernels, bit for bit where IEEE says what the result is.
#include "tests/support/fused.h"

#include <gtest/gtest.h>

namespace tandem::test {
namespace {

using Inputs = std::map<ValueId, at::Tensor>;

const jit::Settings targets[] = {{jit::Compiler::automatic, {"haswell", 256}, "", ""},
                                 {jit::Compiler::automatic, {}, "", ""},
                                 {jit::Compiler::system, {"haswell", 256}, "", ""}};

void expect_bit_equal(const at::Tensor& got, const at::Tensor& want, const std::string& where) {
  ASSERT_EQ(got.scalar_type(), want.scalar_type()) << where;
  const auto a = got.contiguous(), b = want.contiguous();
  ASSERT_EQ(a.nbytes(), b.nbytes()) << where;
  EXPECT_EQ(std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()), 0) << where << "\n" << (a.to(at::kDouble) - b.to(at::kDouble)).abs().max();
}

/// Runs the graph fused and eagerly and compares each output and each written storage, on all targets and in pieces.
void expect_bits_of_eager(const GraphMaker& m, const Inputs& inputs, const std::vector<ValueId>& results,
                          const std::vector<double>& scalars = {}) {
  Eager eager(m.g, inputs, scalars);
  for (const auto& target : targets) {
    Fused fused(m.g, target);
    for (const std::int64_t piece : {std::int64_t{0}, std::int64_t{1} + fused.lowered.units / 3}) {
      const RunInputs memory = fused.run(inputs, scalars, 0, false, piece);
      for (ValueId v : results)
        expect_bit_equal(fused.value(memory, v), eager.value(v),
                         fused.module->compiled_by + " %" + std::to_string(v) + "\n" + fused.emitted.source);
    }
  }
}

at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType t = at::kFloat) {
  torch::manual_seed(sizes.empty() ? 1 : sizes[0]);
  return torch::randn(sizes, t);
}

class PointwiseOfSize : public testing::TestWithParam<std::int64_t> {};

TEST_P(PointwiseOfSize, ChainIsBitEqual) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const Sizes n{GetParam()};
    GraphMaker m;
    const ValueId x = m.outside(Role::input, n, dtype), y = m.outside(Role::input, n, dtype);
    const ValueId a = m.make("aten::mul.Tensor", {tensor(x), tensor(y)}, n, {}, dtype);
    const ValueId b = m.make("aten::add.Tensor", {tensor(a), tensor(x), number(1)}, n, {}, dtype);
    const ValueId c = m.make("aten::relu", {tensor(b)}, n, {}, dtype);
    m.g.outputs = {a, c};
    expect_bits_of_eager(m, {{x, numbers(n, dtype)}, {y, numbers(n, dtype)}}, {a, c});
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PointwiseOfSize, testing::Values(1, 3, 17, 1024, 1000003));

TEST(Pointwise, BroadcastsALastDim) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {33, 17}), b = m.outside(Role::parameter, {17});
  const ValueId y = m.make("aten::add.Tensor", {tensor(x), tensor(b), number(1)}, {33, 17});
  m.g.outputs = {y};
  expect_bits_of_eager(m, {{x, numbers({33, 17})}, {b, numbers({17})}}, {y});
}

TEST(Pointwise, BroadcastsAFirstAndAMiddleDim) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {5, 7, 9}), b = m.outside(Role::input, {5, 1, 9}), c = m.outside(Role::input, {7, 1});
  const ValueId y = m.make("aten::mul.Tensor", {tensor(x), tensor(b)}, {5, 7, 9});
  const ValueId z = m.make("aten::sub.Tensor", {tensor(y), tensor(c), number(1)}, {5, 7, 9});
  m.g.outputs = {z};
  expect_bits_of_eager(m, {{x, numbers({5, 7, 9})}, {b, numbers({5, 1, 9})}, {c, numbers({7, 1})}}, {z});
}

TEST(Pointwise, ReadsATransposedOperand) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {13, 29}), y = m.outside(Role::input, {29, 13});
  const ValueId t = m.view(y, {13, 29}, {1, 13});
  const ValueId z = m.make("aten::add.Tensor", {tensor(x), tensor(t), number(1)}, {13, 29});
  m.g.outputs = {z};
  expect_bits_of_eager(m, {{x, numbers({13, 29})}, {y, numbers({29, 13})}}, {z});
}

TEST(Pointwise, ReadsEverySecondElementFromAnOffset) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {64});
  const ValueId s = m.view(x, {20}, {3}, 2);
  const ValueId z = m.make("aten::neg", {tensor(s)}, {20});
  m.g.outputs = {z};
  expect_bits_of_eager(m, {{x, numbers({64})}}, {z});
}

TEST(Pointwise, WritesInPlaceWhereItReads) {
  GraphMaker m;
  const ValueId p = m.outside(Role::parameter, {1001}), g = m.outside(Role::gradient, {1001});
  const ValueId d = m.make("aten::mul.Tensor", {tensor(g), tensor(p)}, {1001});
  const ValueId p1 = m.write("aten::add_.Tensor", {tensor(p), tensor(d), number(Constant(-0.5), 0)}, p);
  const ValueId p2 = m.write("aten::mul_.Tensor", {tensor(p1), tensor(g)}, p1);
  m.g.scalars = {{"lr", -0.5}};
  m.g.outputs = {d};
  const Fused fused(m.g);
  EXPECT_EQ(fused.lowered.operands.size(), 3u);  // one parameter for all versions
  expect_bits_of_eager(m, {{p, numbers({1001})}, {g, numbers({1001})}}, {p2, d}, {-0.37});
}

TEST(Pointwise, ValuesThatStayInsideAreNotStored) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {8});
  const ValueId a = m.make("aten::neg", {tensor(x)}, {8}), b = m.make("aten::abs", {tensor(a)}, {8});
  m.g.outputs = {b};
  EXPECT_EQ(lower_all(m.g).operands, (std::vector<ValueId>{x, b}));
}

TEST(Pointwise, TruthValuesAreStoredAsBytes) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {100}), y = m.outside(Role::input, {100});
  const ValueId c = m.make("aten::gt.Tensor", {tensor(x), tensor(y)}, {100}, {}, at::kBool);
  const ValueId w = m.make("aten::where.self", {tensor(c), tensor(x), tensor(y)}, {100});
  m.g.outputs = {c, w};
  expect_bits_of_eager(m, {{x, numbers({100})}, {y, numbers({100})}}, {c, w});
}

TEST(Pointwise, CastsRoundAsStoringDoes) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {100}, at::kDouble);
  const ValueId f = m.make("aten::_to_copy", {tensor(x), number(6), none(), none(), none(), number(Constant(false)), none()}, {100});
  const ValueId d = m.make("aten::sub.Tensor", {tensor(x), tensor(f), number(1)}, {100}, {}, at::kDouble);
  m.g.outputs = {d};
  expect_bits_of_eager(m, {{x, numbers({100}, at::kDouble)}}, {d});
}

TEST(Pointwise, SpecialValuesPassAsInEager) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> special{0.0f, -0.0f, inf, -inf, nan, 1e-45f, -1e-45f, 3.4e38f, -3.4e38f, 1.0f, -1.0f, 1e-38f};
  std::vector<float> a, b;
  for (float s : special)
    for (float t : special) {
      a.push_back(s);
      b.push_back(t);
    }
  const std::int64_t n = static_cast<std::int64_t>(a.size());
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {n}), y = m.outside(Role::input, {n});
  std::vector<ValueId> results;
  for (const char* op : {"aten::mul.Tensor", "aten::div.Tensor"}) results.push_back(m.make(op, {tensor(x), tensor(y)}, {n}));
  results.push_back(m.make("aten::sub.Tensor", {tensor(x), tensor(y), number(1)}, {n}));
  results.push_back(m.make("aten::relu", {tensor(x)}, {n}));
  results.push_back(m.make("aten::abs", {tensor(x)}, {n}));
  results.push_back(m.make("aten::lt.Tensor", {tensor(x), tensor(y)}, {n}, {}, at::kBool));
  results.push_back(m.make("aten::ne.Tensor", {tensor(x), tensor(y)}, {n}, {}, at::kBool));
  m.g.outputs = results;
  const Inputs inputs{{x, torch::tensor(a)}, {y, torch::tensor(b)}};
  Eager eager(m.g, inputs);
  for (const auto& target : targets) {
    Fused fused(m.g, target);
    const RunInputs memory = fused.run(inputs);
    for (ValueId v : results) {
      const auto got = fused.value(memory, v), want = eager.value(v);
      EXPECT_TRUE(at::equal(got.isnan(), want.isnan())) << v;
      if (got.scalar_type() == at::kBool) {
        EXPECT_TRUE(at::equal(got, want)) << v;
        continue;
      }
      expect_bit_equal(got.nan_to_num(7), want.nan_to_num(7), std::to_string(v));
    }
  }
}

TEST(Pointwise, ASpaceOfOneElementIsAFlatLoop) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {}), y = m.outside(Role::input, {1, 1});
  const ValueId z = m.make("aten::add.Tensor", {tensor(x), tensor(y), number(1)}, {1, 1});
  m.g.outputs = {z};
  EXPECT_TRUE(lower_all(m.g).loop.flat());
  EXPECT_EQ(lower_all(m.g).units, 1);
  expect_bits_of_eager(m, {{x, numbers({})}, {y, numbers({1, 1})}}, {z});
}

}  // namespace
}  // namespace tandem::test
