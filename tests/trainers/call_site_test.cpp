// Where in the caller's program a graph break is, as the report and an Error tell it.
#include "tests/trainers/compile_pair.h"

// What a user writes is in no namespace of ours.
namespace program {

constexpr int line_of_read = __LINE__ + 2;
__attribute__((noinline)) double scale_of(const at::Tensor& loss) {
  const double scale = loss.item<double>();
  return scale > 1 ? 1 / scale : 1;
}

struct Loss {
  torch::nn::Linear layer{3, 2};
  at::Tensor operator()(const at::Tensor& x) const {
    const auto loss = at::linear(x, layer->weight, layer->bias).square().mean();
    return loss * scale_of(loss);
  }
};

}  // namespace program

namespace tandem {
namespace {

const std::string place = "program::scale_of(at::Tensor const&) at ";
const std::string file_and_line = "call_site_test.cpp:" + std::to_string(program::line_of_read);

void expect_place(const std::string& words) {
  EXPECT_NE(words.find(place), std::string::npos) << words;
  EXPECT_NE(words.find(file_and_line), std::string::npos) << words;
}

TEST(CallSite, AReportNamesTheLineOfEachGraphBreak) {
  program::Loss loss;
  torch::optim::SGD optimizer(loss.layer->parameters(), torch::optim::SGDOptions(0.1));
  TrainStep step(
      loss.layer, optimizer, [loss](const at::Tensor& x) { return loss(x); }, test::as_tested({.shadow_every = 1000}));
  for (int i = 0; i < 5; i++) step(torch::randn({4, 3}));
  const auto report = step.report();
  ASSERT_TRUE(report.active) << report.to_string();
  ASSERT_EQ(report.plans[0].breaks.size(), 1U);
  expect_place(report.plans[0].breaks[0].place);
  expect_place(report.to_string());
  expect_place(report.to_json());
}

TEST(CallSite, ACompiledFunctionsReportDoesToo) {
  const program::Loss loss;
  auto f = compile([loss](const at::Tensor& x) { return loss(x); }, test::as_tested({.shadow_every = 1000}));
  for (int i = 0; i < 5; i++) f(torch::randn({4, 3})).backward();
  ASSERT_TRUE(f.report().active) << f.report().to_string();
  expect_place(f.report().to_string());
}

TEST(CallSite, FullgraphSaysWhichLineReads) {
  const program::Loss loss;
  auto f = compile([loss](const at::Tensor& x) { return loss(x); }, test::as_tested({.fullgraph = true}));
  try {
    f(torch::randn({4, 3}));
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    expect_place(e.what());
  }
}

}  // namespace
}  // namespace tandem
