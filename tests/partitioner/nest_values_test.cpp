// Every formula of the op table against ATen, on real tensors: broadcast, strided, 0-dim, in double, with NaN, infinities, signed zeros and denormals.
#include "autograd/op.h"
#include "tests/partitioner/nest_cases.h"
#include "tests/partitioner/nest_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tandem {
namespace {

using test::NestCase;
using test::OneNode;

/// ATen's vector code fuses multiply and add where its code for the rest does not; its square root of doubles is not always the nearest number.
bool is_exact(const Nest& nest) {
  static const std::set<Term> inexact = {Term::exp,  Term::log, Term::log1p, Term::expm1,   Term::sin,        Term::cos,
                                         Term::tanh, Term::erf, Term::pow,   Term::row_sum, Term::column_sum, Term::fma};
  const bool doubles = nest.compute == c10::ScalarType::Double;
  const auto& steps = nest.formula.steps;
  return std::all_of(steps.begin(), steps.end(),
                     [&](const Step& s) { return !inexact.count(s.term) && !(doubles && s.term == Term::sqrt); });
}

/// Equal bits, any NaN being equal to any other.
bool same(double a, double b) { return (a != a && b != b) || (a == b && std::signbit(a) == std::signbit(b)); }

bool close(double a, double b, double tolerance) {
  if (same(a, b) || a == b) return true;
  return std::fabs(a - b) <= tolerance * std::max(1.0, std::max(std::fabs(a), std::fabs(b)));
}

/// Empty, or a sentence about the first element that differs.
std::string difference(const at::Tensor& eager, const at::Tensor& ours, bool exact) {
  if (eager.scalar_type() != ours.scalar_type() || !eager.sizes().equals(ours.sizes())) return "another geometry";
  const double tolerance = eager.scalar_type() == at::kDouble ? 1e-13 : 4e-6;
  const at::Tensor a = eager.to(at::kDouble).contiguous().view({-1}), b = ours.to(at::kDouble).contiguous().view({-1});
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.data_ptr<double>()[i], y = b.data_ptr<double>()[i];
    if (exact ? !same(x, y) : !close(x, y, tolerance)) return fmt::format("element {}: eager {}, formula {}", i, x, y);
  }
  return {};
}

std::string run(const NestCase& c) {
  OneNode one = test::OneNodeMaker().make(c.op, c.arguments);
  std::string why;
  const auto nest = nest_of(one.graph, one.node(), &why);
  if (!nest) return why;
  if (nest->compute == c10::ScalarType::Double)
    test::NestRun<double>(one, *nest).run();
  else
    test::NestRun<float>(one, *nest).run();
  for (std::size_t k = 0; k < nest->results.size(); ++k) {
    const ValueId v = nest->results[k].value;
    if (v < 0) continue;
    const auto d = difference(one.eager[k], one.operands[static_cast<std::size_t>(v)], is_exact(*nest) && !c.inexact);
    if (!d.empty()) return fmt::format("result {}, {}", k, d);
  }
  return {};
}

bool is_loop(const OpRow& row) {
  return !row.formula.empty() && row.formula.find("matmul") == std::string_view::npos && row.formula != "arbitrary";
}

TEST(NestValues, AreEagersForEveryCase) {
  for (const NestCase& c : test::nest_cases()) EXPECT_EQ(run(c), "") << c.op << " " << c.about;
}

TEST(NestValues, HaveACaseForEveryRowWithALoop) {
  std::set<std::string> covered;
  for (const NestCase& c : test::nest_cases()) covered.insert(c.op);
  for (const OpRow& row : op_table()) EXPECT_TRUE(!is_loop(row) || covered.count(std::string(row.name))) << row.name;
}

TEST(NestValues, ADifferenceOfOneBitIsFound) {
  const at::Tensor a = at::ones({3}), b = a.clone();
  b.data_ptr<float>()[1] = std::nextafter(1.0f, 2.0f);
  EXPECT_EQ(difference(a, a, true), "");
  EXPECT_NE(difference(a, b, true), "");
  EXPECT_NE(difference(at::zeros({1}), at::full({1}, -0.0), true), "");
}

}  // namespace
}  // namespace tandem
