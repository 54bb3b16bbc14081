// The formula column of the op table, and what becomes of it for one node.
#include "autograd/formula.h"

#include "autograd/formula_text.h"
#include "autograd/support/error.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

namespace tandem {
namespace {

using test::GraphMaker;
using test::ints;
using test::none;
using test::number;
using test::tensor;

// ---- the table ----

TEST(FormulaTable, EveryRowParsesAndNamesArgumentsOfItsOp) {
  for (const OpRow& row : op_table()) EXPECT_EQ(formula_fault(row), "") << row.name;
}

TEST(FormulaTable, ARowThatNamesNoArgumentIsFound) {
  static const OpRow row{"aten::neg", Kind::pointwise, 1, "", "", "-slef"};
  EXPECT_EQ(formula_fault(row), "aten::neg: formula column 2: expected an argument of the op or an earlier name, found 'slef'");
}

// ---- the text ----

std::string fault(std::string_view text) {
  try {
    parse_formula(text, {{"self", false}, {"other", true}});
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(FormulaText, ReadsStatementsResultsAndOperators) {
  EXPECT_EQ(fault("self"), "");
  EXPECT_EQ(fault("a = self + 1; b = a*a ; b | _ | a <= 2 && !(b == 3) ? -a : fma(a, b, 1e-3)"), "");
  const FormulaText text = parse_formula("a = self; a | _", {{"self", false}});
  EXPECT_EQ(text.results, (std::vector<std::int32_t>{0, -1}));
}

TEST(FormulaText, SaysColumnExpectedAndFound) {
  EXPECT_EQ(fault(""), "formula column 1: expected a number, a name or '(', found the end");
  EXPECT_EQ(fault("self +"), "formula column 7: expected a number, a name or '(', found the end");
  EXPECT_EQ(fault("self self"), "formula column 6: expected an operator or the end, found 'self'");
  EXPECT_EQ(fault("a = self"), "formula column 9: expected ';', found the end");
  EXPECT_EQ(fault("(self"), "formula column 6: expected ')', found the end");
  EXPECT_EQ(fault("self ? 1"), "formula column 9: expected ':', found the end");
  EXPECT_EQ(fault("sine(self)"), "formula column 1: expected a function, found 'sine(self)'");
  EXPECT_EQ(fault("pow(self)"), "formula column 9: expected ',', found ')'");
  EXPECT_EQ(fault("numel(x)"), "formula column 7: expected an argument of the op or an earlier name, found 'x)'");
  EXPECT_EQ(fault("self == \"tanh"), "formula column 10: expected '\"', found 'tanh'");
}

TEST(FormulaText, EveryPrefixIsReadOrRefused) {
  const std::string whole = "m = max(self); e = exp(self - m); other ? e / sum(e) : 1.5 | m | _";
  for (std::size_t n = 0; n <= whole.size(); ++n) fault(std::string_view(whole).substr(0, n));
  EXPECT_EQ(fault(whole), "");
}

// ---- resolution ----

Formula of(const GraphMaker& m) {
  std::string why;
  const auto f = formula_of(m.g, m.g.nodes.back(), &why);
  EXPECT_TRUE(f) << why;
  return f.value_or(Formula{});
}

std::string refusal(const GraphMaker& m) {
  std::string why;
  EXPECT_FALSE(formula_of(m.g, m.g.nodes.back(), &why));
  return why;
}

int count(const Formula& f, Term t) {
  return static_cast<int>(std::count_if(f.steps.begin(), f.steps.end(), [t](const Step& s) { return s.term == t; }));
}

struct Maker : GraphMaker {
  ValueId x = outside(Role::input, {4, 6}), y = outside(Role::input, {4, 6});
  Formula call(const std::string& op, std::vector<Argument> args, std::size_t results = 1) {
    std::vector<ValueId> made;
    for (std::size_t i = 0; i < results; ++i) made.push_back(fresh({4, 6}));
    node(op, std::move(args), made);
    return of(*this);
  }
};

TEST(Formula, StepsAreInOrderOfEvaluation) {
  for (const Formula& f : {Maker().call("aten::_softmax", {tensor(0), number(1), number(Constant(false))})})
    for (std::size_t i = 0; i < f.steps.size(); ++i)
      for (std::int32_t from : {f.steps[i].a, f.steps[i].b, f.steps[i].c}) EXPECT_LT(from, static_cast<std::int32_t>(i));
}

TEST(Formula, WhatIsUsedTwiceIsComputedOnce) {
  const Formula f = Maker().call("aten::_softmax", {tensor(0), number(1), number(Constant(false))});
  EXPECT_EQ(count(f, Term::exp), 1);
  EXPECT_EQ(count(f, Term::operand), 1);
}

TEST(Formula, ATensorThatIsReadTwiceIsOneOperand) {
  Maker m;
  const Formula f = m.call("aten::mul.Tensor", {tensor(m.x), tensor(m.x)});
  EXPECT_EQ(f.operands, (std::vector<ValueId>{m.x}));
  EXPECT_EQ(f.steps.size(), 2u);
}

TEST(Formula, AFactorOfOneIsDropped) {
  Maker m;
  EXPECT_EQ(count(m.call("aten::add.Tensor", {tensor(m.x), tensor(m.y), number(1)}), Term::fma), 0);
  EXPECT_EQ(count(m.call("aten::add.Tensor", {tensor(m.x), tensor(m.y), number(2)}), Term::fma), 1);
}

TEST(Formula, ARunTimeScalarStaysAnArgument) {
  Maker m;
  m.g.scalars.push_back({"lr", 1.0});
  const Formula f = m.call("aten::add.Tensor", {tensor(m.x), tensor(m.y), number(Constant(1.0), 0)});
  ASSERT_EQ(count(f, Term::argument), 1);
  EXPECT_EQ(std::find_if(f.steps.begin(), f.steps.end(), [](const Step& s) { return s.term == Term::argument; })->index, 2);
}

TEST(Formula, AConditionOnANumberIsDecided) {
  Maker m;
  EXPECT_EQ(count(m.call("aten::pow.Tensor_Scalar", {tensor(m.x), number(2)}), Term::pow), 0);
  EXPECT_EQ(count(m.call("aten::pow.Tensor_Scalar", {tensor(m.x), number(2.5)}), Term::pow), 1);
}

TEST(Formula, AConditionOnARunTimeScalarIsASelection) {
  Maker m;
  m.g.scalars.push_back({"weight", 0.1});
  EXPECT_EQ(count(m.call("aten::lerp.Scalar", {tensor(m.x), tensor(m.y), number(0.1)}), Term::select), 0);
  EXPECT_EQ(count(m.call("aten::lerp.Scalar", {tensor(m.x), tensor(m.y), number(Constant(0.1), 0)}), Term::select), 1);
}

TEST(Formula, AConditionOnATextIsDecided) {
  Maker m;
  EXPECT_EQ(count(m.call("aten::gelu", {tensor(m.x), number(Constant(std::string("none")))}), Term::erf), 1);
  EXPECT_EQ(count(m.call("aten::gelu", {tensor(m.x), number(Constant(std::string("tanh")))}), Term::erf), 0);
}

TEST(Formula, AnUndefinedTensorIsNotRead) {
  Maker m;
  const ValueId w = m.outside(Role::parameter, {6});
  const auto norm = [&](ValueId weight) {
    return m.call("aten::native_layer_norm", {tensor(m.x), ints({6}), tensor(weight), tensor(-1), number(1e-5)}, 3);
  };
  EXPECT_EQ(norm(-1).operands, (std::vector<ValueId>{m.x}));
  EXPECT_EQ(norm(w).operands, (std::vector<ValueId>{m.x, w}));
}

TEST(Formula, AnOptionalNumberOfZeroIsThere) {
  Maker m;
  EXPECT_EQ(count(m.call("aten::clamp", {tensor(m.x), number(0.0), none()}), Term::lt), 1);
  EXPECT_EQ(count(m.call("aten::clamp", {tensor(m.x), none(), number(0.0)}), Term::lt), 0);
}

TEST(Formula, AnUndefinedResultIsNotComputed) {
  Maker m;
  const ValueId mean = m.outside(Role::input, {4, 1});
  const auto mask = number(Constant(std::vector<bool>{false, true, false}));
  m.node("aten::native_layer_norm_backward",
         {tensor(m.x), tensor(m.y), ints({6}), tensor(mean), tensor(mean), tensor(-1), tensor(-1), mask}, {-1, m.fresh({6}), -1});
  const Formula f = of(m);
  EXPECT_EQ(f.results[0], -1);
  EXPECT_EQ(f.results[2], -1);
  EXPECT_EQ(count(f, Term::column_sum), 1);
  EXPECT_EQ(count(f, Term::row_sum), 0);
}

TEST(Formula, ElementsOfATensorAreCounted) {
  Maker m;
  const Formula f = m.call("aten::mse_loss_backward", {tensor(m.x), tensor(m.x), tensor(m.y), number(1)});
  EXPECT_TRUE(std::any_of(f.steps.begin(), f.steps.end(), [](const Step& s) { return s.term == Term::number && s.value == 2.0 / 24; }));
}

TEST(Formula, SaysWhyThereIsNone) {
  Maker m;
  m.make("aten::cumsum", {tensor(m.x), number(0), none()}, {4, 6});
  EXPECT_EQ(refusal(m), "node 0 aten::cumsum (forward) has no formula: the op table gives none for its op");
  m.make("aten::linalg_vector_norm", {tensor(m.x), number(3), none(), number(Constant(false)), none()}, {});
  EXPECT_EQ(refusal(m), "node 1 aten::linalg_vector_norm (forward) has no formula: the formula does not hold for these arguments");
  m.make("aten::neg", {tensor(-1)}, {4, 6});
  EXPECT_EQ(refusal(m), "node 2 aten::neg (forward) has no formula: argument 'self' is absent");
  m.make("aten::neg", {tensor(m.x), number(1)}, {4, 6});
  EXPECT_EQ(refusal(m), "node 3 aten::neg (forward) has no formula: the op has 1 arguments, the node 2");
}

TEST(Formula, IsResolvedInSeveralThreadsAtOnce) {
  Maker m;
  m.make("aten::add.Tensor", {tensor(m.x), tensor(m.y), number(2)}, {4, 6});
  const auto expected = formula_of(m.g, m.g.nodes.back());
  std::vector<std::thread> threads;
  std::vector<char> equal(4, false);
  for (std::size_t t = 0; t < equal.size(); ++t)
    threads.emplace_back([&, t] {
      for (const OpRow& row : op_table()) formula_fault(row);
      equal[t] = formula_of(m.g, m.g.nodes.back()) == expected;
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(equal, (std::vector<char>(4, true)));
}

TEST(FormulaTerms, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (int t = 0; t <= static_cast<int>(Term::arbitrary); ++t) EXPECT_TRUE(names.insert(name_of(static_cast<Term>(t))).second) << t;
}

}  // namespace
}  // namespace tandem
