// Ops whose other forms (in double, with out=) are not what the recorded call is.
#include "tests/support/recorded.h"

#include <gtest/gtest.h>

namespace tandem::test {
namespace {

namespace nn = torch::nn;
using Step = tandem::test::Program;

at::Tensor scalar_of(const at::Tensor& t) { return (t.sin() + t * t * 0.5).mean(); }

/// What is wrong with the step as a plan with kernels, and without; empty when both pass their checks.
std::string faults_of(const Step& step) {
  PlanSwitches calls;
  calls.partition.fuse = false;
  return fault_of(step) + fault_of(step, calls);
}

TEST(ReferenceForms, AKernelWithoutADoubleFormBehindGeneratedOnes) {
  torch::manual_seed(5);
  for (const bool both : {false, true}) {
    nn::LSTM lstm(nn::LSTMOptions(5, 6).bidirectional(both));
    const auto x = torch::randn({4, 3, 5}), scale = torch::rand({3, 5}).add(0.5).requires_grad_();
    auto leaves = lstm->parameters();
    leaves.push_back(scale);
    EXPECT_EQ(faults_of({leaves, [=]() mutable { return scalar_of(std::get<0>(lstm->forward(x * scale)) * 0.7); }}), "");
  }
}

TEST(ReferenceForms, ADoubleFormWhoseSideResultsHaveOtherSizes) {
  const auto ids = torch::tensor({1, 4, 4, 0, 2}), offsets = torch::tensor({0, 2});
  for (const nn::EmbeddingBagMode& mode :
       {nn::EmbeddingBagMode(torch::kSum), nn::EmbeddingBagMode(torch::kMean), nn::EmbeddingBagMode(torch::kMax)}) {
    torch::manual_seed(5);
    nn::EmbeddingBag bag(nn::EmbeddingBagOptions(6, 3).mode(mode));
    EXPECT_EQ(faults_of({bag->parameters(), [=]() mutable { return scalar_of(bag->forward(ids, offsets) * 0.7); }}), "");
  }
}

/// A loss of probabilities or scores `x`, in each of its reductions, on more and on fewer elements than fit where its result lies.
template <class Loss>
void expect_right_in_each_reduction(Loss loss) {
  for (const std::int64_t rows : {1, 3, 40})
    for (const auto reduction : {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
      torch::manual_seed(5);
      const auto x = torch::randn({rows, 4}).requires_grad_(), y = torch::rand({rows, 4});
      EXPECT_EQ(faults_of({{x}, [=] { return loss(x * 0.7, y, reduction).sum(); }}), "") << rows << " rows, reduction " << reduction;
    }
}

TEST(ReferenceForms, AnOutOverloadThatResizesItsResultOnTheWay) {
  expect_right_in_each_reduction(
      [](const at::Tensor& x, const at::Tensor& y, std::int64_t r) { return at::binary_cross_entropy(x.sigmoid(), y, {}, r); });
}

TEST(ReferenceForms, OtherLossesWithAnOutOverload) {
  expect_right_in_each_reduction([](const at::Tensor& x, const at::Tensor& y, std::int64_t r) { return at::mse_loss(x, y, r); });
  expect_right_in_each_reduction([](const at::Tensor& x, const at::Tensor& y, std::int64_t r) { return at::smooth_l1_loss(x, y, r, 0.5); });
  expect_right_in_each_reduction([](const at::Tensor& x, const at::Tensor& y, std::int64_t r) { return at::huber_loss(x, y, r, 0.5); });
  expect_right_in_each_reduction(
      [](const at::Tensor& x, const at::Tensor& y, std::int64_t r) { return at::soft_margin_loss(x, y.gt(0.5) * 2. - 1., r); });
  expect_right_in_each_reduction([](const at::Tensor& x, const at::Tensor& y, std::int64_t r) {
    return at::multi_margin_loss(x, y.select(1, 0).mul(4).to(at::kLong), 1, 1, {}, r);
  });
  expect_right_in_each_reduction(
      [](const at::Tensor& x, const at::Tensor& y, std::int64_t r) { return at::nll_loss(x, y.select(1, 0).mul(4).to(at::kLong), {}, r); });
}

}  // namespace
}  // namespace tandem::test
