#include "bench/support/demo_summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem::bench {
namespace {

/// 40 steps: 4 epochs of 10, the last one of each is small. Eager takes 2 ms, a compiled step 1 ms; the plans are active from step 11 on,
/// every fifth step after that is a shadow step of 3 ms. Losses are equal.
Comparison two_runs() {
  Comparison runs;
  for (int i = 0; i < 40; ++i) {
    const std::int64_t batch = i % 10 == 9 ? 5 : 64;
    const double loss = 1.0 / (i + 1);
    const bool shadow = i % 5 == 0, compiled = i >= 10 && !shadow;
    runs.eager.steps.push_back({batch, 2, loss, false});
    runs.compiled.steps.push_back({batch, compiled ? 1.0 : shadow ? 3.0 : 2.0, loss, compiled});
  }
  runs.report.active = true;
  runs.report.plans.resize(2);
  for (PlanReport& p : runs.report.plans) {
    p.active = true;
    p.record_ms = 1;
    p.compile_ms = 2;
    p.check_ms = 3;
  }
  runs.report.plans[1].id = 1;
  runs.report.events = {{3, "activated", ""}, {10, "activated", ""}, {30, "recorded", ""}};
  return runs;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(DemoBreakEven, CountsTheCostOfThePlansAndTheShadowSteps) {
  // Full batches after step 10: 21 compiled (1 ms) and 6 shadow (3 ms), mean 39/27 ms. 12 ms are won back in 12 / (15/27) = 21.6 steps.
  EXPECT_EQ(break_even(two_runs()), "step 32 (12.0 ms spent, 0.5556 ms saved a step, shadow steps included)");
}

TEST(DemoBreakEven, IsNeverWhenTheCompiledStepIsNotFaster) {
  Comparison runs = two_runs();
  for (StepLog& s : runs.eager.steps) s.ms = 1;
  EXPECT_EQ(break_even(runs), "never (compiled step is not faster)");
}

TEST(DemoBreakEven, IsNeverWhenShadowStepsCostMoreThanIsSaved) {
  Comparison runs = two_runs();
  for (StepLog& s : runs.eager.steps) s.ms = 1.25;
  EXPECT_EQ(break_even(runs), "never (with shadow steps a step takes 1.444 ms, eager 1.250 ms)");
}

TEST(DemoBreakEven, IsNeverWhenNothingWasCompiled) {
  Comparison runs = two_runs();
  runs.report.events.clear();
  EXPECT_EQ(break_even(runs), "never (no compiled step of a full batch)");
}

TEST(DemoFault, EqualRunsOfActivePlansHaveNone) { EXPECT_EQ(fault_of(two_runs()), ""); }

TEST(DemoFault, NamesAPlanThatIsNotActive) {
  Comparison runs = two_runs();
  runs.report.plans[1].active = false;
  runs.report.plans[1].guard = "float32 [5]";
  runs.report.plans[1].reason = "the check failed";
  EXPECT_EQ(fault_of(runs), "expected every plan to be active, found plan 1 (float32 [5]) not active: the check failed");
}

TEST(DemoFault, NamesARunWithoutPlans) {
  Comparison runs = two_runs();
  runs.report.plans.clear();
  runs.report.reason = "a hook";
  EXPECT_EQ(fault_of(runs), "expected active plans, found none: a hook");
}

TEST(DemoFault, ASmallLossDifferenceIsAFaultOfBitEqualPlans) {
  Comparison runs = two_runs();
  runs.compiled.steps[30].loss += 1e-7;
  EXPECT_TRUE(has(fault_of(runs), "losses that differ by 1e-07")) << fault_of(runs);
}

TEST(DemoFault, AParameterDifferenceIsAFaultOfBitEqualPlans) {
  Comparison runs = two_runs();
  runs.parameter_difference = 1e-7;
  EXPECT_TRUE(has(fault_of(runs), "parameters that differ by 1e-07")) << fault_of(runs);
}

TEST(DemoFault, ALossThatIsNotANumberIsAFault) {
  Comparison runs = two_runs();
  runs.compiled.steps[30].loss = std::nan("");
  EXPECT_TRUE(has(fault_of(runs), "losses that differ by inf")) << fault_of(runs);
}

TEST(DemoFault, PlansThatRoundDifferentlyMayDriftAfterTheFirstEpoch) {
  Comparison runs = two_runs();
  runs.report.plans[0].max_error_ratio = 0.5;
  runs.parameter_difference = 0.1;
  runs.compiled.steps[30].loss += 0.1;
  EXPECT_EQ(fault_of(runs), "");
}

TEST(DemoFault, PlansThatRoundDifferentlyMustAgreeInTheFirstEpoch) {
  Comparison runs = two_runs();
  runs.report.plans[0].max_error_ratio = 0.5;
  runs.compiled.steps[7].loss += 0.01;
  EXPECT_TRUE(has(fault_of(runs), "expected losses of the first epoch within 0.001")) << fault_of(runs);
}

TEST(DemoFault, AnErrorAboveTheBoundIsAFault) {
  Comparison runs = two_runs();
  runs.report.plans[1].max_error_ratio = 1.5;
  EXPECT_TRUE(has(fault_of(runs), "found 1.5 times that in plan 1")) << fault_of(runs);
}

TEST(DemoTable, ShowsBothRunsAndWhyAStepIsNotActive) {
  Comparison runs = two_runs();
  runs.report.active = false;
  runs.report.reason = "a hook";
  const std::string text = summary_table(runs);
  EXPECT_TRUE(has(text, "2.000 ms      1.000 ms  eager/compiled 2.000\n")) << text;
  EXPECT_TRUE(has(text, "no: a hook\n")) << text;
}

TEST(DemoTable, TellsWhatAPlanIsMadeOf) {
  Comparison runs = two_runs();
  runs.report.plans[0].kernels = 3;
  runs.report.plans[0].launches = 5;
  runs.report.plans[0].library_calls = 7;
  runs.report.plans[0].arena_bytes = 2048;
  const std::string text = summary_table(runs);
  EXPECT_TRUE(has(text, "3 generated kernels in 5 launches, 7 library calls")) << text;
  EXPECT_TRUE(has(text, "arena 2.0 KiB")) << text;
}

TEST(DemoTable, AddsTwoCurvesOfEachRun) {
  Comparison runs = two_runs();
  add_curves(runs);
  ASSERT_EQ(runs.report.curves.size(), 4U);
  EXPECT_EQ(runs.report.curves[1].name, "eager");
  EXPECT_EQ(runs.report.curves[1].x.back(), 40);
  EXPECT_EQ(runs.report.curves[1].y.back(), 80);
}

TEST(DemoTable, NotANumberIsLargerThanAll) { EXPECT_EQ(larger(std::nan(""), 1), std::numeric_limits<double>::infinity()); }

}  // namespace
}  // namespace tandem::bench
