// The partition of each workload as text: a change of what is fused, saved or recomputed shows in review as lines of these files.
#include "bench/support/workloads.h"
#include "runtime/seams.h"
#include "tests/support/state_equal.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <tandem/tandem.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace {

using tandem::bench::Workload;

constexpr int most_steps = 6;  // one that fills the caches, two recordings that agree

std::string summary(const tandem::Plan& plan) {
  std::size_t launches = 0, library_calls = 0;
  for (const tandem::Call& call : plan.program.calls) {
    launches += call.launches.size();
    library_calls += call.kind == tandem::Call::Kind::library;
  }
  return fmt::format("plan: {} kernels, {} launches, {} library calls, {} bytes arena\n", plan.program.kernels.size(), launches,
                     library_calls, plan.memory.arena_bytes);
}

/// Ends the activation once its plan is seen: neither a compiler nor the plan's check is needed here.
struct Seen : std::exception {
  const char* what() const noexcept override { return "the plan was seen"; }
};

std::string plan_text(const std::string& name) {
  at::manual_seed(0);
  Workload workload = tandem::bench::make_workload(name);
  const auto optimizer = workload.make_optimizer(workload.module->parameters());
  tandem::TrainStep train(workload.module, *optimizer, workload.loss);
  const auto [x, y] = workload.data(workload.batch);
  std::string text;
  tandem::seams().planned = [&](tandem::Plan& plan) {
    text = summary(plan) + print(plan.partition);
    throw Seen();
  };
  for (int i = 0; i < most_steps && text.empty(); i++) train(x, y);
  tandem::seams() = {};
  EXPECT_NE(text, "") << train.report().to_string();
  return text;
}

std::string golden_path(const std::string& name) { return TANDEM_GOLDEN_DIR "/" + name + ".txt"; }

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Empty when both are equal; else one sentence about the first line that differs.
std::string first_difference(const std::string& expected, const std::string& found) {
  std::istringstream expecteds(expected), founds(found);
  for (int number = 1;; number++) {
    std::string a, b;
    const bool more_expected = !std::getline(expecteds, a).fail(), more_found = !std::getline(founds, b).fail();
    if (!more_expected && !more_found) return expected == found ? "" : "they differ in how lines end";
    if (more_expected && more_found && a == b) continue;
    return fmt::format("line {}: expected {}, found {}", number, more_expected ? "'" + a + "'" : "the end",
                       more_found ? "'" + b + "'" : "the end");
  }
}

bool updating() {
  const char* variable = std::getenv("TANDEM_UPDATE_GOLDEN");
  return variable != nullptr && std::string(variable) == "1";
}

class PartitionGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!tandem::test::with_kernels()) GTEST_SKIP() << "these are plans with generated kernels";
  }
};

TEST_P(PartitionGolden, ThePlanIsTheOneThatIsWrittenDown) {
  const std::string text = plan_text(GetParam()), path = golden_path(GetParam());
  if (updating()) {
    ASSERT_TRUE(std::ofstream(path, std::ios::binary).write(text.data(), std::streamsize(text.size())).flush()) << path;
    return;
  }
  EXPECT_EQ(first_difference(read(path), text), "")
      << "in tests/models/golden/" << GetParam() << ".txt; TANDEM_UPDATE_GOLDEN=1 writes the file anew when the change is meant";
}

INSTANTIATE_TEST_SUITE_P(All, PartitionGolden, testing::ValuesIn(tandem::bench::workload_names()),
                         [](const testing::TestParamInfo<std::string>& info) { return info.param; });

TEST(PartitionGoldenThreads, ThePlanIsTheSameWithAnotherNumberOfThreads) {
  if (!tandem::test::with_kernels()) GTEST_SKIP() << "these are plans with generated kernels";
  const int before = at::get_num_threads();
  const std::string one = plan_text("pinn");
  at::set_num_threads(before == 1 ? 2 : 1);
  EXPECT_EQ(first_difference(one, plan_text("pinn")), "");
  at::set_num_threads(before);
}

TEST(PartitionGoldenDifference, NamesTheFirstLineThatDiffers) {
  EXPECT_EQ(first_difference("a\nb\nc\n", "a\nx\ny\n"), "line 2: expected 'b', found 'x'");
}

TEST(PartitionGoldenDifference, NamesTheEndOfTheShorterText) {
  EXPECT_EQ(first_difference("a\n", "a\nb\n"), "line 2: expected the end, found 'b'");
  EXPECT_EQ(first_difference("", "a\n"), "line 1: expected the end, found 'a'");
}

TEST(PartitionGoldenDifference, OfEqualTextsIsEmpty) { EXPECT_EQ(first_difference("a\nb\n", "a\nb\n"), ""); }

}  // namespace
