// Numerics: NaN, infinities, cancellation, empty tensors.
#include "tests/support/bugbank.h"

#include <limits>

namespace tandem::test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();

/// One parameter `x` with these elements; every step starts from them, because an update by NaN spoils it.
template <class Loss>
auto one_parameter(const at::Tensor& start, Loss loss) {
  return [=] {
    auto module = bag();
    const auto x = module->register_parameter("x", start.clone());
    return Trainer{module, sgd({x}, 0.1), [=] { return loss(x); }};
  };
}

struct Expected {
  std::vector<double> value, gradient;
  double tolerance = 0;
};

/// The value is the second tensor that the loss returns, or the loss itself.
template <class Loss>
void expect_numbers(const at::Tensor& start, Loss loss, const Expected& expected, bool must_compile = true) {
  Twins twins(one_parameter(start, loss));
  const bool compiled = twins.warm_up();
  if (must_compile) {
    ASSERT_TRUE(compiled) << twins.report().to_string();
  }
  for (int s = 0; s < 2; s++) {
    const auto result = compiled ? twins.compiled_step() : twins.step();
    EXPECT_EQ(far(result.returned.back(), expected.value, expected.tolerance), "");
    EXPECT_EQ(far(twins.gradient("x"), expected.gradient, expected.tolerance), "");
    twins.restart();
  }
}

TEST(BugBank, NUM_1_NaNBehindAMaskThatComesFirst) {
  const auto target = torch::tensor({0.f, float(nan)});
  const auto start = torch::tensor({1.f, 2.f});
  expect_numbers(start, [=](const at::Tensor& x) { return torch::where(target.isfinite(), x - target, 0).pow(2).sum(); }, {{1}, {2, 0}});
  expect_numbers(
      start,
      [=](const at::Tensor& x) {
        const auto mask = target.isfinite();
        return torch::mse_loss(x.index({mask}), target.index({mask}), at::Reduction::Sum);
      },
      {{1}, {2, 0}}, /*must_compile=*/false);
}

TEST(BugBank, NUM_1_NaNBehindAMaskThatComesLast) {
  const auto target = torch::tensor({0.f, float(nan)});
  const auto start = torch::tensor({1.f, 2.f});
  expect_numbers(
      start, [=](const at::Tensor& x) { return torch::where(target.isfinite(), torch::mse_loss(x, target, at::Reduction::None), 0).sum(); },
      {{1}, {2, nan}});
  expect_numbers(
      start, [=](const at::Tensor& x) { return torch::mse_loss(x, target, at::Reduction::None).index({target.isfinite()}).sum(); },
      {{1}, {2, nan}},
      /*must_compile=*/false);
}

TEST(BugBank, NUM_1_AnInfiniteDerivativeBehindAMask) {
  const auto start = torch::tensor({-1.f, 1.f, 3.f});
  const double sum = std::log(2.) + std::log(4.);
  expect_numbers(start, [](const at::Tensor& a) { return torch::where(a > -1, torch::log1p(a), 0).sum(); },
                 {{sum}, {nan, 0.5, 0.25}, 1e-6});
  expect_numbers(
      start, [](const at::Tensor& a) { return torch::log1p(a).index({a > -1}).sum(); }, {{sum}, {nan, 0.5, 0.25}, 1e-6},
      /*must_compile=*/false);
  expect_numbers(torch::tensor({0.f, 4.f}), [](const at::Tensor& z) { return torch::where(z > 0, torch::sqrt(z), 0).sum(); },
                 {{2}, {nan, 0.25}});
}

TEST(BugBank, NUM_1_AMaskThatPassesAnotherNumberOfEntries) {
  Twins twins([] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::ones(3));
    return Trainer{module, sgd({x}, 0.1), [x](const at::Tensor& mask) { return x.index({mask}).pow(2).sum(); }};
  });
  for (int s = 0; s < 9; s++) twins.step(s < 5 ? torch::tensor({true, false, true}) : torch::tensor({s % 2 == 0, true, true}));
}

TEST(BugBank, NUM_2_LogOfExpIsNotTheIdentity) {
  expect_numbers(
      torch::tensor({87.5f, 90.f, -104.f}),
      [](const at::Tensor& x) {
        const auto y = x.exp().log();
        return std::make_pair(y.sum(), y);
      },
      {{87.5, inf, -inf}, {1, nan, nan}, 1e-6}, /*must_compile=*/false);
}

TEST(BugBank, NUM_2_RootOfASquareIsNotTheAbsoluteValue) {
  const auto loss = [](const at::Tensor& x) {
    const auto y = (x * x).abs().sqrt();
    return std::make_pair(y.sum(), y);
  };
  expect_numbers(torch::tensor({1e-30f}), loss, {{0}, {nan}}, /*must_compile=*/false);
  expect_numbers(torch::tensor({1e-20f}), loss, {{1e-20}, {1.0000026}, 1e-6}, /*must_compile=*/false);
  expect_numbers(torch::tensor({3.f}), loss, {{3}, {1}}, /*must_compile=*/false);
}

TEST(BugBank, NUM_3_LayerNormWithALargeMean) {
  const std::vector<double> offsets{0, 1e3, 1e4}, eager_error{3e-8, 1.0e-2, 9.8e-2};
  const auto c = torch::linspace(-1, 2, 16);
  for (std::size_t i = 0; i < offsets.size(); i++) {
    SCOPED_TRACE(offsets[i]);
    const auto start = offsets[i] + torch::arange(16) * 1e-3;
    Twins twins(one_parameter(start, [c](const at::Tensor& x) {
      const auto y = torch::layer_norm(x, {16});
      return std::make_pair((y * c).sum(), y);
    }));
    twins.eager_is_inexact = offsets[i] > 0;
    ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
    const auto result = twins.compiled_step();
    const auto exact = torch::layer_norm(offsets[i] + torch::arange(16, at::kDouble) * 1e-3, {16});
    const auto error = (result.returned[1].to(at::kDouble) - exact).abs().max().item<double>();
    EXPECT_LE(error, 2 * eager_error[i] + 1e-6);
    twins.compiled_step();
  }
}

template <class Loss>
auto label_trainer(Loss loss) {
  return [=] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::tensor({{1.f, 2.f, 0.f}, {0.5f, -1.f, 3.f}}));
    return Trainer{module, sgd({x}, 0.1), [=](const at::Tensor& labels) { return loss(x, labels); }};
  };
}

TEST(BugBank, NUM_4_EveryLabelIgnored) {
  Twins twins(label_trainer([](const at::Tensor& x, const at::Tensor& labels) { return torch::cross_entropy_loss(x, labels); }));
  const auto ignored = torch::tensor({-100, -100}, at::kLong), one = torch::tensor({1, -100}, at::kLong);
  ASSERT_TRUE(twins.warm_up(ignored)) << twins.report().to_string();
  EXPECT_EQ(far(twins.compiled_step(ignored).returned[0], {nan}), "");
  EXPECT_EQ(far(twins.gradient("x"), {0, 0, 0, 0, 0, 0}), "");
  twins.restart();
  twins.compiled_step(one);
  EXPECT_EQ(far(twins.gradient("x")[1], {0, 0, 0}), "");
  EXPECT_NE(far(twins.gradient("x")[0], {0, 0, 0}), "");
}

TEST(BugBank, NUM_4_RowsOfMinusInfinity) {
  const auto row = torch::full({3}, -inf);
  expect_numbers(row,
                 [](const at::Tensor& x) {
                   const auto y = x.softmax(0);
                   return std::make_pair(y.sum(), y);
                 },
                 {{nan, nan, nan}, {nan, nan, nan}});
  expect_numbers(row, [](const at::Tensor& x) { return x.logsumexp(0); }, {{-inf}, {nan, nan, nan}});
  expect_numbers(torch::tensor({1.f, float(-inf), 2.f}), [](const at::Tensor& x) { return x.softmax(0)[0]; },
                 {{0.26894142}, {0.19661194, 0, -0.19661194}, 1e-7});
}

TEST(BugBank, NUM_5_ZeroTimesNaN) {
  const auto k = torch::tensor({1.f, float(nan)});
  expect_numbers(torch::ones(2), [k](const at::Tensor& w) { return w.sum() + 0 * (w * k).mean(); }, {{nan}, {1, nan}});
}

TEST(BugBank, EMP_1_ASumOverNothing) {
  const auto a = torch::ones({3, 0});
  expect_numbers(
      torch::ones(3), [a](const at::Tensor& b) { return (a + b.unsqueeze(1)).sum(); }, {{0}, {0, 0, 0}}, /*must_compile=*/false);
}

TEST(BugBank, EMP_1_CumsumOverAnEmptyDim) {
  Twins twins(one_parameter(torch::ones({2, 0}), [](const at::Tensor& x) { return x.cumsum(1).sum(); }));
  for (int s = 0; s < 5; s++) {
    EXPECT_EQ(far(twins.step().returned[0], {0}), "");
    ASSERT_TRUE(twins.gradient("x").defined());
    EXPECT_EQ(twins.gradient("x").sizes(), (std::vector<std::int64_t>{2, 0}));
  }
}

TEST(BugBank, EMP_1_RepeatedZeroTimes) {
  expect_numbers(
      torch::ones(10), [](const at::Tensor& d) { return d.repeat({0}).sum(); }, {{0}, std::vector<double>(10, 0)}, /*must_compile=*/false);
}

TEST(BugBank, EMP_1_AScalarParameter) {
  Twins twins(one_parameter(torch::ones({}), [](const at::Tensor& s) { return (s * torch::ones(3)).sum(); }));
  for (int s = 0; s < 5; s++) {
    twins.step();
    EXPECT_EQ(twins.gradient("x").dim(), 0);
    EXPECT_EQ(far(twins.gradient("x"), {3}), "");
  }
}

}  // namespace
}  // namespace tandem::test
