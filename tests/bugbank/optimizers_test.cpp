// Optimizers and learning-rate schedules.
#include "tests/support/bugbank.h"

#include <algorithm>

namespace tandem::test {
namespace {

namespace optim = torch::optim;

void set_lr(optim::Optimizer& o, double lr) { o.param_groups()[0].options().set_lr(lr); }

/// p = 0 with gradient 1.
auto slope_trainer(double momentum) {
  return [=] {
    auto module = bag();
    const auto p = module->register_parameter("p", torch::zeros(1));
    return Trainer{module, sgd({p}, 0.1, momentum), [p] { return p.sum(); }};
  };
}

/// p = 0, loss = (s * p).sum() with s as input.
template <class Optimizer, class Settings>
auto scaled_trainer(Settings settings) {
  return [=] {
    auto module = bag();
    const auto p = module->register_parameter("p", torch::zeros(1));
    std::unique_ptr<optim::Optimizer> optimizer = std::make_unique<Optimizer>(std::vector<at::Tensor>{p}, settings);
    return Trainer{module, std::move(optimizer), [p](const at::Tensor& s) { return (s * p).sum(); }};
  };
}

template <class Twins>
void expect_one_plan(const Twins& twins) {
  const auto report = twins.report();
  EXPECT_EQ(report.recompiles, 0);
  EXPECT_EQ(std::count_if(report.plans.begin(), report.plans.end(), [](const PlanReport& p) { return p.active; }), 1);
}

template <class Twins>
void with_lr(Twins& twins, double lr) {
  twins.for_both([&](torch::nn::Module&, optim::Optimizer& o) { set_lr(o, lr); });
}

TEST(BugBank, OPT_1_SgdWithALearningRateThatChanges) {
  Twins twins(slope_trainer(0.9));
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  const std::vector<double> lr{0.1, 0.1, 0.01}, expected{-0.1, -0.29, -0.3171};
  for (std::size_t s = 0; s < lr.size(); s++) {
    with_lr(twins, lr[s]);
    twins.compiled_step();
    EXPECT_EQ(far(twins.parameter("p"), {expected[s]}, 1e-7), "");
  }
  expect_one_plan(twins);
}

TEST(BugBank, OPT_1_AdamWithALearningRateThatChanges) {
  Twins twins(scaled_trainer<optim::Adam>(optim::AdamOptions(0.1)));
  ASSERT_TRUE(twins.warm_up(torch::ones(1))) << twins.report().to_string();
  const std::vector<double> lr{0.1, 0.1, 0.001, 0.001}, expected{-0.09999999, -0.19651818, -0.19747618, -0.19843659};
  for (std::size_t s = 0; s < lr.size(); s++) {
    with_lr(twins, lr[s]);
    twins.compiled_step(torch::full({1}, double(s + 1)));
    EXPECT_EQ(far(twins.parameter("p"), {expected[s]}, 2e-8), "");
  }
  const auto& state = static_cast<optim::AdamParamState&>(*twins.optimizer().state().begin()->second);
  EXPECT_EQ(state.step(), 4);
  EXPECT_EQ(far(state.exp_avg(), {0.90489996}, 1e-7), "");
  EXPECT_EQ(far(state.exp_avg_sq(), {0.02998001}, 1e-8), "");
  expect_one_plan(twins);
}

TEST(BugBank, OPT_2_BetasThatChange) {
  Twins twins([] {
    auto module = bag();
    const auto p = module->register_parameter("p", torch::zeros(1));
    return Trainer{module, adam({p}, 0.1), [p](const at::Tensor& k) { return (p + k * p * p).sum(); }};
  });
  ASSERT_TRUE(twins.warm_up(torch::ones(1))) << twins.report().to_string();
  const std::vector<double> beta{0.95, 0.9, 0.85}, expected{-0.09999999, -0.17265630, -0.22468019};
  for (std::size_t s = 0; s < beta.size(); s++) {
    twins.for_both([&](torch::nn::Module&, optim::Optimizer& o) { group<optim::AdamOptions>(o).betas({beta[s], 0.999}); });
    twins.compiled_step(torch::full({1}, double(s)));
    EXPECT_EQ(far(twins.parameter("p"), {expected[s]}, 2e-8), "");
  }
  expect_one_plan(twins);
}

TEST(BugBank, OPT_2_NumbersThatAreEqualByChance) {
  const auto settings = optim::AdamOptions(0.1).betas({0.9, 0.9}).eps(0.1).weight_decay(0.1);
  Twins twins(scaled_trainer<optim::Adam>(settings));
  for (int s = 0; s < 4; s++) twins.step(torch::ones(1));
  using Change = void (*)(optim::AdamOptions&);
  const std::vector<Change> changes{[](optim::AdamOptions& o) { o.lr(0.2); },
                                    [](optim::AdamOptions& o) { o.eps(0.3); },
                                    [](optim::AdamOptions& o) { o.weight_decay(0.4); },
                                    [](optim::AdamOptions& o) { o.betas({0.8, 0.9}); },
                                    [](optim::AdamOptions& o) { o.betas({0.8, 0.7}); },
                                    [](optim::AdamOptions& o) { o.betas({0.5, 0.5}).lr(0.5).eps(0.5).weight_decay(0.5); }};
  for (const auto change : changes) {
    twins.for_both([&](torch::nn::Module&, optim::Optimizer& o) { change(group<optim::AdamOptions>(o)); });
    twins.compiled_step(torch::ones(1));
  }
}

TEST(BugBank, OPT_2_SettingsThatChangeTheFormula) {
  Twins twins(scaled_trainer<optim::SGD>(optim::SGDOptions(0.1)));
  for (int s = 0; s < 4; s++) twins.step(torch::ones(1));
  using Change = void (*)(optim::SGDOptions&);
  const std::vector<Change> changes{
      [](optim::SGDOptions& o) { o.weight_decay(0.1); }, [](optim::SGDOptions& o) { o.momentum(0.9); },
      [](optim::SGDOptions& o) { o.nesterov(true); },    [](optim::SGDOptions& o) { o.nesterov(false).dampening(0.5); },
      [](optim::SGDOptions& o) { o.weight_decay(0); },   [](optim::SGDOptions& o) { o.momentum(0).dampening(0); }};
  for (const auto change : changes) {
    twins.for_both([&](torch::nn::Module&, optim::Optimizer& o) { change(group<optim::SGDOptions>(o)); });
    for (int s = 0; s < 5; s++) twins.step(torch::ones(1));
  }
  EXPECT_TRUE(twins.report().active) << twins.report().to_string();
}

TEST(BugBank, OPT_3_BiasCorrectionFollowsTheStepCounter) {
  Twins twins(scaled_trainer<optim::Adam>(optim::AdamOptions(0.1)));
  ASSERT_TRUE(twins.warm_up(torch::ones(1))) << twins.report().to_string();
  for (int s = 1; s <= 6; s++) twins.compiled_step(torch::full({1}, double(s)));
  const auto& state = static_cast<optim::AdamParamState&>(*twins.optimizer().state().begin()->second);
  EXPECT_EQ(state.step(), 6);
}

/// Adam as users write it: a step tensor that is read on the host.
class HandWrittenAdam : public optim::Optimizer {
 public:
  HandWrittenAdam(std::vector<at::Tensor> parameters, double lr)
      : Optimizer({optim::OptimizerParamGroup(parameters)}, std::make_unique<optim::AdamOptions>(lr)), lr_(lr), p_(parameters[0]),
        step_(torch::zeros({})), m_(torch::zeros_like(p_)), v_(torch::zeros_like(p_)) {}

  at::Tensor step(LossClosure) override {
    const at::NoGradGuard no_grad;
    step_.add_(1);
    const double t = step_.item<double>();
    const auto g = p_.grad();
    m_.mul_(0.9).add_(g, 1 - 0.9);
    v_.mul_(0.999).addcmul_(g, g, 1 - 0.999);
    const auto denominator = (v_.sqrt() / std::sqrt(1 - std::pow(0.999, t))).add_(1e-8);
    p_.addcdiv_(m_, denominator, -lr_ / (1 - std::pow(0.9, t)));
    return {};
  }

 private:
  double lr_;
  at::Tensor p_, step_, m_, v_;
};

TEST(BugBank, OPT_3_AHandWrittenAdamThatReadsItsStepTensor) {
  const auto hand_written = [] {
    auto module = bag();
    const auto p = module->register_parameter("p", torch::zeros(1));
    std::unique_ptr<optim::Optimizer> optimizer = std::make_unique<HandWrittenAdam>(std::vector<at::Tensor>{p}, 0.1);
    return Trainer{module, std::move(optimizer), [p](const at::Tensor& s) { return (s * p).sum(); }};
  };
  Twins twins(hand_written);
  auto library = scaled_trainer<optim::Adam>(optim::AdamOptions(0.1))();
  for (int s = 1; s <= 10; s++) {
    const auto scale = torch::full({1}, double(s));
    twins.step(scale);
    library.optimizer->zero_grad();
    library.loss(scale).backward();
    library.optimizer->step();
    EXPECT_EQ(far(twins.parameter("p"), {library.module->parameters()[0].item<double>()}, 1e-6), "") << "step " << s;
  }
}

/// Loss a + b, or a alone where the input has one element.
struct TwoScalars {
  at::Tensor a, b;
  at::Tensor operator()(const at::Tensor& terms) const { return terms.size(0) == 2 ? a + b : a.clone(); }
};

TEST(BugBank, OPT_4_AnUndefinedGradientIsNotAZeroGradient) {
  auto module = bag();
  const auto a = module->register_parameter("a", torch::ones({})), b = module->register_parameter("b", torch::ones({}));
  optim::SGD optimizer({a, b}, optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  auto keep = watched();
  keep.zero_grad_to_none = false;
  TrainStep to_none(module, optimizer, TwoScalars{a, b}, watched()), to_zero(module, optimizer, TwoScalars{a, b}, keep);
  const auto both = torch::zeros(2), alone = torch::zeros(1);
  const std::vector<double> a_after{0.89, 0.6821, 0.388169, 0.0197494}, b_after{0.89, 0.89, 0.6821, 0.488169};
  for (int round = 0; round < 6; round++) {
    SCOPED_TRACE(round);
    const auto check = [&](TrainStep& step, const at::Tensor& terms, std::size_t s) {
      EXPECT_TRUE(step(terms).compiled || step.report().active || !step.report().reason.empty());
      EXPECT_EQ(far(a, {a_after[s]}, 1e-6), "") << "step " << s + 1;
      EXPECT_EQ(far(b, {b_after[s]}, 1e-6), "") << "step " << s + 1;
    };
    check(to_none, both, 0);
    check(to_none, alone, 1);
    EXPECT_FALSE(b.grad().defined());
    check(to_zero, both, 2);
    check(to_zero, alone, 3);
    EXPECT_EQ(far(b.grad(), {0}), "");
    const at::NoGradGuard no_grad;
    for (const auto& p : {a, b}) {
      p.fill_(1);
      p.mutable_grad().reset();
    }
    forget(optimizer);
  }
  EXPECT_TRUE(to_none.report().active) << to_none.report().to_string();
  EXPECT_TRUE(to_zero.report().active) << to_zero.report().to_string();
}

auto adamw_trainer() {
  auto module = bag();
  const auto a = module->register_parameter("a", torch::ones({})), b = module->register_parameter("b", torch::ones({}));
  std::unique_ptr<optim::Optimizer> optimizer =
      std::make_unique<optim::AdamW>(std::vector<at::Tensor>{a, b}, optim::AdamWOptions(0.1).weight_decay(0.1));
  return Trainer{module, std::move(optimizer), TwoScalars{a, b}};
}

TEST(BugBank, OPT_4_AnUnusedParameterHasNoStateAndDoesNotDecay) {
  Twins twins(adamw_trainer);
  bool compiled = false;
  for (int s = 0; s < 6; s++) compiled = twins.step(torch::zeros(1)).compiled;
  EXPECT_TRUE(compiled || !twins.report().reason.empty());
  EXPECT_EQ(far(twins.parameter("b"), {1}), "");
  EXPECT_EQ(twins.optimizer().state().size(), 1u);
}

TEST(BugBank, OPT_4_ADefinedZeroGradientDecaysAndMakesState) {
  auto options = watched();
  options.zero_grad_to_none = false;
  Twins twins(adamw_trainer, options);
  twins.for_both([](torch::nn::Module& m, optim::Optimizer&) { m.named_parameters()["b"].mutable_grad() = torch::zeros({}); });
  for (int s = 0; s < 6; s++) twins.step(torch::zeros(1));
  EXPECT_EQ(far(twins.parameter("b"), {std::pow(1 - 0.1 * 0.1, 6)}, 1e-6), "");
  EXPECT_EQ(twins.optimizer().state().size(), 2u);
}

TEST(BugBank, OPT_5_MomentumIsTheFormWithTheLearningRateOutside) {
  Twins twins(slope_trainer(0.9));
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  for (const double lr : {0.1, 0.1, 0.01}) {
    with_lr(twins, lr);
    twins.compiled_step();
  }
  EXPECT_EQ(far(twins.parameter("p"), {-0.3171}, 1e-7), "");
  EXPECT_GT(std::abs(twins.parameter("p").item<double>() + 0.471), 0.1);
}

TEST(BugBank, OPT_5_NesterovAndDampening) {
  for (const bool nesterov : {false, true}) {
    auto settings = optim::SGDOptions(0.1).momentum(0.9).nesterov(nesterov).dampening(nesterov ? 0 : 0.25).weight_decay(0.01);
    Twins twins(scaled_trainer<optim::SGD>(settings));
    bool compiled = false;
    for (int s = 1; s <= 7; s++) {
      with_lr(twins, 0.1 / s);
      compiled = twins.step(torch::full({1}, double(s))).compiled;
    }
    EXPECT_TRUE(compiled) << twins.report().to_string();
  }
}

TEST(BugBank, OPT_6_TheDefaultsDoNotMoveAGroup) {
  Twins twins(slope_trainer(0));
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  twins.for_both([](torch::nn::Module&, optim::Optimizer& o) { static_cast<optim::SGDOptions&>(o.defaults()).lr(1.0); });
  twins.compiled_step();
  EXPECT_EQ(far(twins.parameter("p"), {-0.1}, 1e-8), "");
}

TEST(BugBank, OPT_6_EachGroupHasItsOwnLearningRate) {
  Twins twins([] {
    auto module = bag();
    const auto p = module->register_parameter("p", torch::zeros(1)), q = module->register_parameter("q", torch::zeros(1));
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<at::Tensor>{p});
    groups.emplace_back(std::vector<at::Tensor>{q}, std::make_unique<optim::SGDOptions>(0.5));
    std::unique_ptr<optim::Optimizer> optimizer = std::make_unique<optim::SGD>(groups, optim::SGDOptions(0.1));
    return Trainer{module, std::move(optimizer), [p, q] { return (p + q).sum(); }};
  });
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  twins.compiled_step();
  EXPECT_EQ(far(twins.parameter("p"), {-0.1}, 1e-8), "");
  EXPECT_EQ(far(twins.parameter("q"), {-0.5}), "");
  twins.for_both([](torch::nn::Module&, optim::Optimizer& o) { group<optim::SGDOptions>(o, 1).lr(0.25); });
  twins.compiled_step();
  EXPECT_EQ(far(twins.parameter("p"), {-0.2}, 1e-7), "");
  EXPECT_EQ(far(twins.parameter("q"), {-0.75}), "");
}

TEST(BugBank, OPT_7_AmsgradKeepsItsRunningMaximum) {
  Twins twins(scaled_trainer<optim::Adam>(optim::AdamOptions(0.1).amsgrad(true)));
  ASSERT_TRUE(twins.warm_up(torch::ones(1))) << twins.report().to_string();
  const std::vector<double> gradient{10, 0.1, 0.1}, expected{-0.09999999, -0.16771644, -0.22067408};
  for (std::size_t s = 0; s < gradient.size(); s++) {
    twins.compiled_step(torch::full({1}, gradient[s]));
    EXPECT_EQ(far(twins.parameter("p"), {expected[s]}, 2e-8), "");
  }
  const auto& state = static_cast<optim::AdamParamState&>(*twins.optimizer().state().begin()->second);
  EXPECT_EQ(far(state.max_exp_avg_sq(), {0.1}, 1e-8), "");
  EXPECT_EQ(far(state.exp_avg_sq(), {0.09982009}, 1e-8), "");
}

}  // namespace
}  // namespace tandem::test
