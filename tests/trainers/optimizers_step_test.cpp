// Optimizers inside a step: their numbers and state stay the user's, whatever runs.
#include "tests/support/lockstep.h"

#include <cstdio>
#include <sstream>

namespace tandem::test {
namespace {

namespace optim = torch::optim;

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

struct Case {
  const char* name;
  MakeOptimizer make;
  std::function<void(optim::OptimizerOptions&, double)> change;  // every number; the factor is near 1
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

template <class Class, class O>
MakeOptimizer maker(O options) {
  return [options](std::vector<at::Tensor> p) { return std::make_unique<Class>(std::move(p), options); };
}
template <class O>
void change_moments(optim::OptimizerOptions& any, double f) {
  auto& o = static_cast<O&>(any);
  o.lr(o.lr() * f).betas({std::get<0>(o.betas()) / f, 0.99 + f / 1000}).eps(o.eps() * f).weight_decay(o.weight_decay() * f);
}

std::vector<Case> cases() {
  const auto sgd_change = [](optim::OptimizerOptions& any, double f) {
    auto& o = static_cast<optim::SGDOptions&>(any);
    o.lr(o.lr() * f).momentum(o.momentum() / f).dampening(o.dampening() * f).weight_decay(o.weight_decay() * f);
  };
  const auto nesterov_change = [](optim::OptimizerOptions& any, double f) {
    auto& o = static_cast<optim::SGDOptions&>(any);
    o.lr(o.lr() * f).momentum(o.momentum() / f);
  };
  const auto rmsprop_change = [](optim::OptimizerOptions& any, double f) {
    auto& o = static_cast<optim::RMSpropOptions&>(any);
    o.lr(o.lr() * f).alpha(o.alpha() / f).eps(o.eps() * f).weight_decay(o.weight_decay() * f).momentum(o.momentum() / f);
  };
  const auto adagrad_change = [](optim::OptimizerOptions& any, double f) {
    auto& o = static_cast<optim::AdagradOptions&>(any);
    o.lr(o.lr() * f).lr_decay(o.lr_decay() * f).eps(o.eps() * f).weight_decay(o.weight_decay() * f);
  };
  return {
      {"sgd", maker<optim::SGD>(optim::SGDOptions(0.05)), nesterov_change},
      {"sgd_momentum", maker<optim::SGD>(optim::SGDOptions(0.05).momentum(0.8).dampening(0.1).weight_decay(0.01)), sgd_change},
      {"sgd_nesterov", maker<optim::SGD>(optim::SGDOptions(0.05).momentum(0.8).nesterov(true)), nesterov_change},
      {"adam", maker<optim::Adam>(optim::AdamOptions(0.01)), change_moments<optim::AdamOptions>},
      {"adam_amsgrad", maker<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true).weight_decay(0.02)), change_moments<optim::AdamOptions>},
      {"adamw", maker<optim::AdamW>(optim::AdamWOptions(0.01)), change_moments<optim::AdamWOptions>},
      {"rmsprop", maker<optim::RMSprop>(optim::RMSpropOptions(0.01)), rmsprop_change},
      {"rmsprop_all", maker<optim::RMSprop>(optim::RMSpropOptions(0.01).centered(true).momentum(0.8).weight_decay(0.01)), rmsprop_change},
      {"adagrad", maker<optim::Adagrad>(optim::AdagradOptions(0.05).lr_decay(0.01).weight_decay(0.01)), adagrad_change},
  };
}

class OptimizerInStep : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Known, OptimizerInStep, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST_P(OptimizerInStep, OptionsThatChangeInEachStepNeedOnePlan) {
  // Not plain SGD with momentum 0: that factor would leave it 0, so no branch changes here.
  Lockstep l([] { return mlp(GetParam().make); });
  for (std::uint64_t i = 1; i <= 12; i++) {
    const double factor = 1 + 0.01 * double(i % 3);
    l.for_both([&](Toy& t) { GetParam().change(t.optimizer->param_groups()[0].options(), factor); });
    l.step(batch(i));
  }
  const auto r = l.report();
  EXPECT_TRUE(r.active) << r.to_string();
  EXPECT_EQ(r.recompiles, 0);
  EXPECT_EQ(active_plans(r), 1);
  EXPECT_GE(r.compiled_steps, 8);
  EXPECT_NE(r.optimizer.find("part of the plan"), std::string::npos) << r.optimizer;
}

/// torch::save and torch::load through memory.
template <class T>
std::string saved(const T& object) {
  std::ostringstream out;
  torch::save(object, out);
  return out.str();
}
template <class T>
void load(T& object, const std::string& bytes) {
  std::istringstream in(bytes);
  torch::load(object, in);
}

TEST_P(OptimizerInStep, StateLoadedIntoFreshObjectsGoesOnAsEager) {
  Lockstep first([] { return mlp(GetParam().make); });
  first.activate(batch);
  first.steps(3, batch);
  const auto module = saved(first.plan_side().module), optimizer = saved(*first.plan_side().optimizer);
  Lockstep second([&] {
    auto toy = mlp(GetParam().make);
    load(toy.module, module);
    load(*toy.optimizer, optimizer);
    return toy;
  });
  EXPECT_EQ(difference(state_of(second.plan_side()), state_of(first.plan_side())), "");
  second.steps(7, batch);
  EXPECT_TRUE(second.report().active) << second.report().to_string();
}

TEST_P(OptimizerInStep, StateLoadedInPlaceUnderAnActivePlanGoesOnAsEager) {
  Lockstep l([] { return mlp(GetParam().make); });
  l.activate(batch);
  const auto module = saved(l.plan_side().module), optimizer = saved(*l.plan_side().optimizer);
  l.steps(3, batch);
  l.for_both([&](Toy& t) {
    load(t.module, module);
    load(*t.optimizer, optimizer);
  });
  l.steps(8, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

/// Two groups: the second has another rate and no weight decay.
std::unique_ptr<optim::Optimizer> two_groups(std::vector<at::Tensor> p) {
  using O = optim::AdamWOptions;
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>(p.begin(), p.begin() + 2), std::make_unique<O>(O(0.02)));
  groups.emplace_back(std::vector<at::Tensor>(p.begin() + 2, p.end()), std::make_unique<O>(O(0.003).weight_decay(0)));
  return std::make_unique<optim::AdamW>(std::move(groups), O(0.01));
}

TEST(ParamGroups, EachHasItsOwnNumbers) {
  Lockstep l([] { return mlp(two_groups); });
  for (std::uint64_t i = 1; i <= 10; i++) {
    l.for_both([&](Toy& t) { group<optim::AdamWOptions>(*t.optimizer, i % 2).lr(0.01 / double(i)); });
    l.step(batch(i));
  }
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_EQ(l.report().recompiles, 0);
}

TEST(ParamGroups, AGroupThatIsAddedUnderAnActivePlanIsTrained) {
  const auto half = [] {
    auto toy = mlp();
    const auto p = toy.module->parameters();
    toy.optimizer = momentum_sgd({p.begin(), p.begin() + 2});
    return toy;
  };
  Lockstep l(half);
  l.activate(batch);
  l.for_both([](Toy& t) {
    const auto p = t.module->parameters();
    t.optimizer->add_param_group(optim::OptimizerParamGroup(std::vector<at::Tensor>(p.begin() + 2, p.end())));
  });
  l.steps(6, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Schedulers, AStepSchedulerNeedsNoRecompile) {
  Lockstep l([] { return mlp([](auto p) { return adam(std::move(p), 0.05); }); });
  optim::StepLR mine(*l.plan_side().optimizer, 2, 0.5), eagers(*l.eager_side().toy().optimizer, 2, 0.5);
  for (std::uint64_t i = 1; i <= 10; i++) {
    l.step(batch(i));
    mine.step();
    eagers.step();
  }
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_EQ(l.report().recompiles, 0);
}

TEST(OptimizerFormula, AnOptionThatAddsAnOpIsAnotherPlan) {
  Lockstep l([] { return mlp([](auto p) { return adam(std::move(p), 0.01); }); });
  l.activate(batch);
  l.for_both([](Toy& t) { group<optim::AdamOptions>(*t.optimizer).weight_decay(0.1); });
  l.steps(4, batch);
  const auto r = l.report();
  EXPECT_TRUE(r.active) << r.to_string();
  EXPECT_EQ(r.recompiles, 1);
  EXPECT_TRUE(says(r, "optimizer formula: expected")) << r.to_string();
}

TEST(OptimizerState, ATensorOfOtherStridesIsReadAsItIs) {
  Lockstep l([] { return mlp([](auto p) { return adam(std::move(p), 0.01); }); });
  l.activate(batch);
  l.for_both([](Toy& t) {
    const auto p = t.module->parameters()[0];
    auto& state = static_cast<optim::AdamParamState&>(*t.optimizer->state().at(p.unsafeGetTensorImpl()));
    state.exp_avg(state.exp_avg().t().contiguous().t());
  });
  l.steps(3, batch);
}

TEST(OptimizerState, ATensorOfAWrongShapeThrowsAsEager) {
  Lockstep l([] { return mlp([](auto p) { return adam(std::move(p), 0.01); }); });
  l.activate(batch);
  l.for_both([](Toy& t) {
    const auto p = t.module->parameters()[2];
    static_cast<optim::AdamParamState&>(*t.optimizer->state().at(p.unsafeGetTensorImpl())).exp_avg(torch::zeros({3}));
  });
  EXPECT_NE(l.step(batch(100)).error, "");
  EXPECT_NE(l.step(batch(101)).error, "");
}

TEST(OptimizerState, ThatIsClearedStartsAnew) {
  Lockstep l([] { return mlp([](auto p) { return adam(std::move(p), 0.01); }); });
  l.activate(batch);
  l.for_both([](Toy& t) { t.optimizer->state().clear(); });
  l.steps(6, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(OptimizerState, APlanAdvancesTheStepCounter) {
  Lockstep l([] { return mlp([](auto p) { return adam(std::move(p), 0.01); }); });
  l.activate(batch);
  l.steps(2, batch);
  const auto state = state_of(l.plan_side());
  ASSERT_FALSE(state.counters.empty());
  for (const auto& [name, count] : state.counters) EXPECT_EQ(count, l.report().steps) << name;
}

/// Moves against the sign of the gradient, and counts its steps on the host.
class SignOptimizer : public optim::Optimizer {
 public:
  explicit SignOptimizer(std::vector<at::Tensor> p)
      : Optimizer({optim::OptimizerParamGroup(std::move(p))}, std::make_unique<optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure = nullptr) override {
    const at::NoGradGuard no_grad;
    steps++;
    for (auto& g : param_groups())
      for (auto& p : g.params())
        if (p.grad().defined()) p.sub_(p.grad().sign(), 0.1 / steps);
    return {};
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  int steps = 0;
};

TEST(UnknownOptimizer, OneOfTheUsersOwnIsReplayedInEachStep) {
  Lockstep l([] { return mlp([](auto p) { return std::make_unique<SignOptimizer>(std::move(p)); }); });
  l.steps(8, batch);
  const auto r = l.report();
  EXPECT_TRUE(r.active) << r.to_string();
  EXPECT_EQ(r.optimizer, "unknown to Tandem, replayed in each step");
  EXPECT_GT(r.plans.back().nodes_update, 0);
  EXPECT_EQ(r.plans.back().replay, "full");
}

TEST(UnknownOptimizer, OneOfTheUsersOwnRunsEagerBehindATrustedPlan) {
  auto options = watched();
  options.replay = Replay::trusted;
  Lockstep l([] { return mlp([](auto p) { return std::make_unique<SignOptimizer>(std::move(p)); }); }, options);
  l.steps(8, batch);
  const auto r = l.report();
  EXPECT_TRUE(r.active) << r.to_string();
  EXPECT_EQ(r.optimizer, "unknown to Tandem, eager behind the plan");
  EXPECT_EQ(r.plans.back().nodes_update, 0);
}

TEST(UnknownOptimizer, ASubclassOfAKnownOneIsUnknown) {
  struct Twice : optim::Adam {
    using Adam::Adam;
    at::Tensor step(LossClosure closure = nullptr) override {
      Adam::step();
      return Adam::step(closure);
    }
  };
  Lockstep l([] { return mlp([](auto p) { return std::make_unique<Twice>(std::move(p), optim::AdamOptions(0.01)); }); });
  l.steps(8, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_EQ(l.report().optimizer, "unknown to Tandem, replayed in each step");
}

TEST(UnknownOptimizer, LbfgsRunsEagerBehindThePlan) {
  auto options = watched();
  options.fuse = false;  // its curvature estimate makes large steps of small differences
  Lockstep l(
      [] {
        return make_toy<MlpNet>([](auto p) { return std::make_unique<optim::LBFGS>(std::move(p), optim::LBFGSOptions(0.1).max_iter(4)); },
                                [](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
                                  return torch::cross_entropy_loss(net.last(torch::tanh(net.first(x))), y);
                                });
      },
      options);
  l.steps(6, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_EQ(l.report().optimizer, "LBFGS, eager behind the plan");
}

TEST(UnknownOptimizer, GradientsAreDroppedAfterItsUpdate) {
  Lockstep l([] { return mlp([](auto p) { return std::make_unique<SignOptimizer>(std::move(p)); }); }, {.shadow_every = 1000});
  l.steps(6, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  for (const auto& p : l.plan_side().module->parameters()) EXPECT_FALSE(p.grad().defined());
}

}  // namespace
}  // namespace tandem::test
