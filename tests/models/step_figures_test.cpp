#include "bench/support/step_figures.h"

#include "autograd/support/error.h"
#include "bench/support/statistics.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace {

using tandem::bench::StepFigures;

StepFigures without_plan() {
  StepFigures figures;
  figures.workload = "mlp_tiny";
  figures.eager_ms = 2;
  figures.reason = "the check failed";
  return figures;
}

StepFigures with_plan() {
  StepFigures figures = without_plan();
  figures.reason = "";
  figures.compiled.emplace();
  figures.compiled->ms = 0.5;
  figures.compiled->check_ms = 7.25;
  return figures;
}

TEST(StepFigures, WithoutAPlanEveryCompiledFigureIsNull) {
  const nlohmann::json j = nlohmann::json::parse(to_json(without_plan()));
  EXPECT_EQ(j["active"], false);
  EXPECT_EQ(j["reason"], "the check failed");
  EXPECT_EQ(j["eager_ms"], 2.0);
  for (const char* name :
       {"compiled_ms", "compiled_best_ms", "speedup", "first_step_ms", "compile_ms", "check_ms", "reshape_ms", "compiled_peak_bytes",
        "check_peak_bytes", "held_bytes", "allocations_per_step", "max_error_ratio", "nodes", "groups", "saved_bytes"}) {
    EXPECT_TRUE(j.contains(name) && j[name].is_null()) << name;
  }
}

TEST(StepFigures, WithAPlanTheSpeedupIsEagerOverCompiledTime) {
  const nlohmann::json j = nlohmann::json::parse(to_json(with_plan()));
  EXPECT_EQ(j["active"], true);
  EXPECT_EQ(j["speedup"], 4.0);
  EXPECT_EQ(j["compiled_ms"], 0.5);
  EXPECT_EQ(j["check_ms"], 7.25);
}

TEST(StepFigures, AJsonObjectIsOneLine) { EXPECT_EQ(to_json(with_plan()).find('\n'), std::string::npos); }

TEST(StepFigures, ARowWithoutAPlanSaysWhyAndShowsDashes) {
  const std::string row = table_row(without_plan());
  EXPECT_NE(row.find("2.000           -        -"), std::string::npos) << row;
  EXPECT_NE(row.find("inactive: the check failed"), std::string::npos) << row;
}

TEST(StepFigures, HeadAndRowsHaveTheSameColumns) {
  EXPECT_EQ(tandem::bench::table_head().find("  plan\n"), table_row(with_plan()).find("  active\n"));
  EXPECT_EQ(tandem::bench::table_head().find("  plan\n"), table_row(without_plan()).find("  inactive"));
}

TEST(Statistics, MedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(tandem::bench::median({5, 1, 3}), 3);
  EXPECT_EQ(tandem::bench::median({4, 1, 3, 100}), 3.5);
  EXPECT_EQ(tandem::bench::median({2}), 2);
}

TEST(Statistics, BestIsTheSmallest) { EXPECT_EQ(tandem::bench::best({5, 1, 3}), 1); }

TEST(Statistics, AnEmptySampleIsRefused) {
  EXPECT_THROW(tandem::bench::median({}), tandem::Error);
  EXPECT_THROW(tandem::bench::best({}), tandem::Error);
}

}  // namespace
