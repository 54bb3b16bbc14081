// A node as a loop: its space, its strides, what is reduced, the dtype of its arithmetic, and which nodes are none.
#include "partitioner/nest.h"

#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using c10::ScalarType;
using test::GraphMaker;
using test::ints;
using test::none;
using test::number;
using test::Sizes;
using test::tensor;

struct Maker : GraphMaker {
  ValueId input(const Sizes& sizes, ScalarType dtype = ScalarType::Float) { return outside(Role::input, sizes, dtype); }

  Nest nest() {
    std::string why;
    const auto n = nest_of(g, g.nodes.back(), &why);
    EXPECT_TRUE(n) << why;
    return n.value_or(Nest{});
  }
  Nest nest(const std::string& op, std::vector<Argument> args, const Sizes& sizes, const Sizes& strides = {},
            ScalarType dtype = ScalarType::Float) {
    make(op, std::move(args), sizes, strides, dtype);
    return nest();
  }
  std::string refusal() {
    std::string why;
    EXPECT_FALSE(nest_of(g, g.nodes.back(), &why));
    return why;
  }
  std::string refusal(const std::string& op, std::vector<Argument> args, const Sizes& sizes, const Sizes& strides = {},
                      ScalarType dtype = ScalarType::Float) {
    make(op, std::move(args), sizes, strides, dtype);
    return refusal();
  }
};

const Argument keep = number(Constant(true)), drop = number(Constant(false));

// ---- space ----

TEST(Nest, BroadcastsFromTheRight) {
  Maker m;
  const Nest n = m.nest("aten::mul.Tensor", {tensor(m.input({2, 3, 5})), tensor(m.input({3, 1}))}, {2, 3, 5});
  EXPECT_EQ(n.sizes, (Sizes{2, 3, 5}));
  EXPECT_EQ(n.operands[0].strides, (Sizes{15, 5, 1}));
  EXPECT_EQ(n.operands[1].strides, (Sizes{0, 1, 0}));
  EXPECT_EQ(n.results[0].strides, (Sizes{15, 5, 1}));
}

TEST(Nest, LeavesOutDimsOfOne) {
  Maker m;
  EXPECT_EQ(m.nest("aten::neg", {tensor(m.input({4, 1, 6, 1}))}, {4, 1, 6, 1}).sizes, (Sizes{4, 6}));
  EXPECT_EQ(m.nest("aten::neg", {tensor(m.input({1, 1}))}, {1, 1}).sizes, Sizes{});
}

TEST(Nest, KeepsStridesOfViewsAndTransposedMemory) {
  Maker m;
  const ValueId t = m.view(m.input({6, 4}), {4, 6}, {1, 4});
  const Nest n = m.nest("aten::exp", {tensor(t)}, {4, 6}, {1, 4});
  EXPECT_EQ(n.operands[0].strides, (Sizes{1, 4}));
  EXPECT_EQ(n.results[0].strides, (Sizes{1, 4}));
}

TEST(Nest, OfAnExpandedOperandHasStridesOfZero) {
  Maker m;
  const ValueId e = m.view(m.input({6}), {4, 6}, {0, 1});
  EXPECT_EQ(m.nest("aten::exp", {tensor(e)}, {4, 6}).operands[0].strides, (Sizes{0, 1}));
}

TEST(Nest, OfWhatNeedsNoOperandHasTheResultsSpace) {
  Maker m;
  EXPECT_EQ(m.nest("aten::zeros", {ints({4, 6}), number(6), none(), none(), none()}, {4, 6}).sizes, (Sizes{4, 6}));
}

TEST(Nest, InPlaceReadsAndWritesTheSamePlace) {
  Maker m;
  const ValueId x = m.input({4, 6});
  m.write("aten::add_.Tensor", {tensor(x), tensor(m.input({6})), number(1)}, x);
  const Nest n = m.nest();
  EXPECT_EQ(n.operands[0].strides, n.results[0].strides);
  EXPECT_EQ(n.results[0].value, m.g.nodes.back().results[0].values[0]);
}

// ---- reductions ----

TEST(Nest, ReducesTheDimsThatTheArgumentNames) {
  Maker m;
  const ValueId x = m.input({2, 3, 5});
  const auto reduced = [&](const Argument& dim, const Sizes& result) {
    return m.nest("aten::sum.dim_IntList", {tensor(x), dim, drop, none()}, result).reduced;
  };
  EXPECT_EQ(reduced(ints({1}), {2, 5}), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(reduced(ints({-1, 0}), {3}), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(reduced(ints({}), {}), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(reduced(none(), {}), (std::vector<bool>{true, true, true}));
}

TEST(Nest, ReducesAllDimsWhereNoArgumentNamesThem) {
  Maker m;
  EXPECT_EQ(m.nest("aten::mse_loss", {tensor(m.input({4, 6})), tensor(m.input({4, 6})), number(1)}, {}).reduced,
            (std::vector<bool>{true, true}));
}

TEST(Nest, ReducesOneDimThatIsANumber) {
  Maker m;
  EXPECT_EQ(m.nest("aten::_softmax", {tensor(m.input({4, 6})), number(-2), drop}, {4, 6}).reduced, (std::vector<bool>{true, false}));
}

TEST(Nest, ReducesNothingWithoutAReduction) {
  Maker m;
  const Nest n = m.nest("aten::mse_loss", {tensor(m.input({4, 6})), tensor(m.input({4, 6})), number(0)}, {4, 6});
  EXPECT_EQ(n.reduced, (std::vector<bool>{false, false}));
  EXPECT_FALSE(n.has_rows());
}

TEST(Nest, ARowResultHasNoStrideOverReducedDims) {
  Maker m;
  const ValueId x = m.input({2, 3, 5});
  EXPECT_EQ(m.nest("aten::amax", {tensor(x), ints({1}), drop}, {2, 5}).results[0].strides, (Sizes{5, 0, 1}));
  EXPECT_EQ(m.nest("aten::amax", {tensor(x), ints({1}), keep}, {2, 1, 5}).results[0].strides, (Sizes{5, 0, 1}));
}

TEST(Nest, LayerNormReducesItsNormalizedDimsAndGivesRows) {
  Maker m;
  const ValueId x = m.input({2, 3, 5}), w = m.input({3, 5});
  m.node("aten::native_layer_norm", {tensor(x), ints({3, 5}), tensor(w), tensor(-1), number(1e-5)},
         {m.fresh({2, 3, 5}), m.fresh({2, 1, 1}), m.fresh({2, 1, 1})});
  const Nest n = m.nest();
  EXPECT_EQ(n.reduced, (std::vector<bool>{false, true, true}));
  EXPECT_EQ(n.results[1].strides, (Sizes{1, 0, 0}));
  EXPECT_TRUE(n.has_rows());
  EXPECT_FALSE(n.has_columns());
}

TEST(Nest, ColumnSumsHaveStridesOverTheReducedDimsOnly) {
  Maker m;
  const ValueId x = m.input({2, 3, 5}), mean = m.input({2, 3, 1});
  m.node("aten::native_layer_norm_backward",
         {tensor(x), tensor(x), ints({5}), tensor(mean), tensor(mean), tensor(-1), tensor(-1),
          number(Constant(std::vector<bool>{false, true, true}))},
         {-1, m.fresh({5}), m.fresh({5})});
  const Nest n = m.nest();
  EXPECT_EQ(n.results[0], Access{});
  EXPECT_EQ(n.results[1].strides, (Sizes{0, 0, 1}));
  EXPECT_EQ(n.operands[1].strides, (Sizes{3, 1, 0}));
  EXPECT_TRUE(n.has_columns());
}

TEST(Nest, AReductionOverADimOfOneIsNone) {
  Maker m;
  const Nest n = m.nest("aten::sum.dim_IntList", {tensor(m.input({4, 1, 6})), ints({1}), drop, none()}, {4, 6});
  EXPECT_FALSE(n.has_rows());
  EXPECT_EQ(n.formula.steps.size(), 1u);
  EXPECT_EQ(n.results[0].strides, (Sizes{6, 1}));
}

TEST(Nest, ExtentsSayHowStepsVary) {
  Maker m;
  const Nest n = m.nest("aten::_softmax", {tensor(m.input({4, 6})), number(1), drop}, {4, 6});
  const auto extents = extents_of(n.formula);
  for (std::size_t i = 0; i < extents.size(); ++i)
    EXPECT_EQ(extents[i], is_reduction(n.formula.steps[i].term) ? Extent::row : Extent::element);
}

// ---- dtypes ----

ScalarType compute(const std::string& op, ScalarType a, ScalarType b, ScalarType result, const Sizes& a_sizes = {4},
                   const Sizes& b_sizes = {4}) {
  Maker m;
  return m.nest(op, {tensor(m.input(a_sizes, a)), tensor(m.input(b_sizes, b))}, {4}, {}, result).compute;
}

TEST(NestDtype, IsTheWiderOfTheOperands) {
  EXPECT_EQ(compute("aten::mul.Tensor", ScalarType::Float, ScalarType::Float, ScalarType::Float), ScalarType::Float);
  EXPECT_EQ(compute("aten::mul.Tensor", ScalarType::Float, ScalarType::Double, ScalarType::Double), ScalarType::Double);
  EXPECT_EQ(compute("aten::mul.Tensor", ScalarType::Bool, ScalarType::Float, ScalarType::Float), ScalarType::Float);
  EXPECT_EQ(compute("aten::div.Tensor", ScalarType::Long, ScalarType::Long, ScalarType::Float), ScalarType::Float);
}

TEST(NestDtype, ZeroDimOperandsDoNotWiden) {
  EXPECT_EQ(compute("aten::mul.Tensor", ScalarType::Float, ScalarType::Double, ScalarType::Float, {4}, {}), ScalarType::Float);
}

TEST(NestDtype, OfAComparisonIsItsOperands) {
  EXPECT_EQ(compute("aten::lt.Tensor", ScalarType::Double, ScalarType::Float, ScalarType::Bool), ScalarType::Double);
  EXPECT_EQ(compute("aten::lt.Tensor", ScalarType::Int, ScalarType::Int, ScalarType::Bool), ScalarType::Double);
  EXPECT_EQ(compute("aten::eq.Tensor", ScalarType::Bool, ScalarType::Bool, ScalarType::Bool), ScalarType::Float);
}

TEST(NestDtype, OfAMaskDoesNotCount) {
  Maker m;
  const ValueId mask = m.input({4}, ScalarType::Bool), d = m.input({4}, ScalarType::Double);
  EXPECT_EQ(m.nest("aten::masked_fill.Scalar", {tensor(d), tensor(mask), number(0.1)}, {4}, {}, ScalarType::Double).compute,
            ScalarType::Double);
}

TEST(NestDtype, OfAFillIsThatOfWhatIsFilled) {
  Maker m;
  EXPECT_EQ(m.nest("aten::full", {ints({4}), number(0.1), number(7), none(), none(), none()}, {4}, {}, ScalarType::Double).compute,
            ScalarType::Double);
}

TEST(NestDtype, OfAReductionIsItsResults) {
  Maker m;
  EXPECT_EQ(m.nest("aten::sum", {tensor(m.input({4})), number(7)}, {}, {}, ScalarType::Double).compute, ScalarType::Double);
}

TEST(NestDtype, WholeNumbersOf64BitsAreRefused) {
  Maker m;
  const ValueId i = m.input({4}, ScalarType::Long);
  EXPECT_EQ(m.refusal("aten::add.Tensor", {tensor(i), tensor(i), number(1)}, {4}, {}, ScalarType::Long),
            "node 0 aten::add.Tensor (forward) makes a int64");
  EXPECT_EQ(m.refusal("aten::eq.Tensor", {tensor(i), tensor(i)}, {4}, {}, ScalarType::Bool),
            "node 1 aten::eq.Tensor (forward) computes in whole numbers of 64 bits or reduces to bools");
  EXPECT_EQ(m.refusal("aten::clone", {tensor(i), none()}, {4}, {}, ScalarType::Long), "node 2 aten::clone (forward) makes a int64");
}

TEST(NestDtype, NarrowAndComplexNumbersAreRefused) {
  for (ScalarType t : {ScalarType::Half, ScalarType::BFloat16, ScalarType::ComplexFloat}) {
    Maker m;
    EXPECT_NE(m.refusal("aten::neg", {tensor(m.input({4}, t))}, {4}, {}, t), "");
    EXPECT_NE(m.refusal("aten::_to_copy", {tensor(m.input({4}, t)), number(6), none(), none(), none(), drop, none()}, {4}), "");
  }
}

// ---- what is no loop ----

TEST(NestRefusal, OfWhatIsNotKnownOrIsMore) {
  Maker m;
  const ValueId x = m.input({4, 4});
  EXPECT_EQ(m.refusal("aten::foo", {tensor(x)}, {4, 4}), "node 0 aten::foo (forward) is unknown to the op table");
  EXPECT_EQ(m.refusal("aten::mm", {tensor(x), tensor(x)}, {4, 4}), "node 1 aten::mm (forward) is a matrix product");
  EXPECT_NE(m.refusal("aten::embedding", {tensor(x), tensor(x), number(-1), drop, drop}, {4, 4, 4}).find("may throw"), std::string::npos);
  EXPECT_NE(m.refusal("aten::t", {tensor(x)}, {4, 4}).find("is a view"), std::string::npos);
  m.write("aten::bernoulli_.float", {tensor(x), number(0.5), none()}, x);
  EXPECT_NE(m.refusal().find("has effects"), std::string::npos);
  m.make("aten::neg", {tensor(m.next(x))}, {4, 4});
  m.g.nodes.back().effects.opaque = true;
  EXPECT_NE(m.refusal().find("has effects"), std::string::npos);
}

TEST(NestRefusal, OfLazilyChangedEmptyAndForeignTensors) {
  Maker m;
  ValueId x = m.input({4});
  m.g.values[static_cast<std::size_t>(x)].neg = true;
  EXPECT_EQ(m.refusal("aten::exp", {tensor(x)}, {4}), "node 0 aten::exp (forward) uses %0, which is lazily conjugated, negated or zero");
  x = m.input({0});
  EXPECT_EQ(m.refusal("aten::exp", {tensor(x)}, {0}), "node 1 aten::exp (forward) uses %2, which is empty");
  x = m.input({4});
  m.g.storages.back().device = c10::Device(c10::DeviceType::CUDA, 0);
  EXPECT_EQ(m.refusal("aten::exp", {tensor(x)}, {4}), "node 2 aten::exp (forward) uses %4 on cuda:0");
}

TEST(NestRefusal, OfOverlappingMemory) {
  Maker m;
  const ValueId x = m.input({4, 4}), e = m.view(m.input({4}), {4, 4}, {0, 1}), t = m.view(x, {4, 4}, {1, 4});
  EXPECT_EQ(m.refusal("aten::neg", {tensor(x)}, {4, 4}, {1, 1}), "elements of %4, a result of node 0 aten::neg (forward), overlap");
  m.write("aten::add_.Tensor", {tensor(e), tensor(x), number(1)}, e);
  EXPECT_NE(m.refusal().find("overlap"), std::string::npos);
  m.write("aten::add_.Tensor", {tensor(x), tensor(t), number(1)}, x);
  EXPECT_EQ(m.refusal(), "node 2 aten::add_.Tensor (forward) writes s0 and reads it in another geometry");
}

TEST(NestRefusal, OfAResultOnMemoryThatExisted) {
  Maker m;
  const ValueId x = m.input({4});
  m.node("aten::_to_copy", {tensor(x), none(), none(), none(), none(), drop, none()}, {x});
  EXPECT_EQ(m.refusal(), "result 0 of node 0 aten::_to_copy (forward) lies on memory that existed before");
}

TEST(NestRefusal, OfAResultThatDoesNotFit) {
  Maker m;
  EXPECT_EQ(m.refusal("aten::sum.dim_IntList", {tensor(m.input({4, 6})), ints({1}), drop, none()}, {6}),
            "result 0 of node 0 aten::sum.dim_IntList (forward) is float32 [6], which does not fit its loop");
  EXPECT_NE(m.refusal("aten::mul.Tensor", {tensor(m.input({4})), tensor(m.input({6}))}, {6}).find("do not broadcast"), std::string::npos);
}

// ---- other dims ----

TEST(Refit, SplitsAndMergesDims) {
  Maker m;
  const Nest n = m.nest("aten::mul.Tensor", {tensor(m.input({4, 6, 5})), tensor(m.input({5}))}, {4, 6, 5});
  const auto merged = refit(n, {24, 5});
  ASSERT_TRUE(merged);
  EXPECT_EQ(merged->operands[0].strides, (Sizes{5, 1}));
  EXPECT_EQ(merged->operands[1].strides, (Sizes{0, 1}));
  EXPECT_EQ(refit(*merged, {4, 6, 5}), n);
  EXPECT_EQ(refit(*merged, {8, 3, 5})->operands[0].strides, (Sizes{15, 5, 1}));
}

TEST(Refit, IsRefusedWhereStridesOrReductionsForbidIt) {
  Maker m;
  const Nest broadcast = m.nest("aten::mul.Tensor", {tensor(m.input({4, 6})), tensor(m.input({6}))}, {4, 6});
  EXPECT_FALSE(refit(broadcast, {24}));
  EXPECT_FALSE(refit(broadcast, {3, 8}));
  EXPECT_FALSE(refit(broadcast, {4, 5}));
  const Nest rows = m.nest("aten::_softmax", {tensor(m.input({4, 6})), number(1), drop}, {4, 6});
  EXPECT_FALSE(refit(rows, {24}));
  EXPECT_EQ(refit(rows, {4, 2, 3})->reduced, (std::vector<bool>{false, true, true}));
}

TEST(NestsOf, AGroupHaveOneSpace) {
  Maker m;
  const ValueId a = m.make("aten::exp", {tensor(m.input({4, 6, 5}))}, {4, 6, 5});
  m.make("aten::sum.dim_IntList", {tensor(m.view(a, {24, 5}, {5, 1})), ints({0}), drop, none()}, {5});
  std::string why;
  const auto nests = nests_of(m.g, {&m.g.nodes[0], &m.g.nodes[1]}, &why);
  ASSERT_TRUE(nests) << why;
  EXPECT_EQ((*nests)[0].sizes, (*nests)[1].sizes);
  m.make("aten::exp", {tensor(m.input({7}))}, {7});
  EXPECT_FALSE(nests_of(m.g, {&m.g.nodes[0], &m.g.nodes[2]}, &why));
  EXPECT_EQ(why, "no loop fits both node 0 aten::exp (forward) and all other nodes of its group");
}

}  // namespace
}  // namespace tandem
