// What the optimizer formulas say without running a step under a listener.
#include "tests/support/optimizers.h"
#include "autograd/support/error.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem {
namespace {

using namespace test;

struct MyAdam : optim::Adam {
  using optim::Adam::Adam;
};

TEST(OptimizerFormula, IsThereForTheFiveClassesUnderTheirNames) {
  Tensors p{parameter()};
  optim::SGD sgd(p, 0.1);
  optim::Adam adam(p);
  optim::AdamW adamw(p);
  optim::RMSprop rmsprop(p);
  optim::Adagrad adagrad(p);
  std::vector<std::string> found;
  for (optim::Optimizer* o : std::initializer_list<optim::Optimizer*>{&sgd, &adam, &adamw, &rmsprop, &adagrad})
    found.push_back(OptimizerFormula::recognise(*o)->name());
  EXPECT_EQ(found, (std::vector<std::string>{"SGD", "Adam", "AdamW", "RMSprop", "Adagrad"}));
}

TEST(OptimizerFormula, IsNotThereForASubclass) {
  MyAdam mine(Tensors{parameter()});
  EXPECT_EQ(OptimizerFormula::recognise(mine), nullptr);
}

TEST(OptimizerFormula, IsNotThereForLbfgs) {
  optim::LBFGS lbfgs(Tensors{parameter()});
  EXPECT_EQ(OptimizerFormula::recognise(lbfgs), nullptr);
}

TEST(OptimizerNumbers, OfAdamFollowItsPublishedFormula) {
  SingleAdam a(optim::AdamOptions(0.02).betas({0.75, 0.5}).eps(1e-3));
  a.optimizer.step();
  const double correction1 = 1 - 0.75 * 0.75, correction2 = 1 - 0.5 * 0.5;  // exact in binary
  EXPECT_EQ(bits(values(a.numbers())), bits({0.75, 0.25, 0.5, 0.5, std::sqrt(correction2), 1e-3, -(0.02 / correction1)}));
}

TEST(OptimizerNumbers, CarryQuantityAndParameter) {
  SingleSgd s(optim::SGDOptions(0.5).momentum(0.25).weight_decay(2));
  EXPECT_EQ(names(s.numbers()), (std::vector<std::string>{"sgd.weight_decay[0]", "sgd.minus_lr[0]"}));
  s.optimizer.step();
  EXPECT_EQ(names(s.numbers()),
            (std::vector<std::string>{"sgd.weight_decay[0]", "sgd.momentum[0]", "sgd.one_minus_dampening[0]", "sgd.minus_lr[0]"}));
}

TEST(OptimizerNumbers, LeaveOutParametersWithoutGradient) {
  Tensors p{parameter(), parameter()};
  optim::SGD sgd(p, 0.5);
  EXPECT_EQ(names(OptimizerFormula::recognise(sgd)->numbers({false, true})), (std::vector<std::string>{"sgd.minus_lr[1]"}));
}

TEST(OptimizerNumbers, RefuseFlagsForAnotherNumberOfParameters) {
  SingleSgd s(optim::SGDOptions(0.1));
  EXPECT_THROW(s.formula->numbers({true, true}), InternalError);
}

TEST(OptimizerVariant, StaysWhenOnlyNumbersChange) {
  SingleAdam a(optim::AdamOptions(0.02).weight_decay(0.1));
  const auto before = a.formula->variant();
  a.options().lr(0.5).betas({0.1, 0.2}).eps(1).weight_decay(0.3);
  EXPECT_EQ(a.formula->variant(), before);
}

TEST(OptimizerVariant, ChangesWithEachOptionThatChangesTheOps) {
  SingleSgd s(optim::SGDOptions(0.1));
  std::vector<std::string> seen{s.formula->variant()};
  s.options().weight_decay(0.1);
  seen.push_back(s.formula->variant());
  s.options().momentum(0.1);
  seen.push_back(s.formula->variant());
  s.options().nesterov(true);
  seen.push_back(s.formula->variant());
  EXPECT_EQ(seen, (std::vector<std::string>{"SGD(: -)", "SGD(weight_decay: -)", "SGD(weight_decay,momentum: -)",
                                            "SGD(weight_decay,momentum,nesterov: -)"}));
}

TEST(OptimizerVariant, ShowsTheFlagsOfAdam) {
  SingleAdam a(optim::AdamOptions(0.1));
  a.options().amsgrad(true).weight_decay(-0.1);
  EXPECT_EQ(a.formula->variant(), "Adam(weight_decay,amsgrad: -)");
}

TEST(OptimizerVariant, ShowsTheFlagsOfRmsprop) {
  SingleRmsprop r(optim::RMSpropOptions(0.1));
  r.options().momentum(-0.1).weight_decay(-0.1);
  EXPECT_EQ(r.formula->variant(), "RMSprop(weight_decay: -)");  // a negative momentum is none
  r.options().momentum(0.1).centered(true);
  EXPECT_EQ(r.formula->variant(), "RMSprop(weight_decay,momentum,centered: -)");
}

TEST(OptimizerVariant, ShowsEachGroup) {
  optim::Adagrad adagrad(Tensors{parameter()});
  std::vector<at::Tensor> more{parameter(), parameter()};
  adagrad.add_param_group(
      optim::OptimizerParamGroup(more, std::make_unique<optim::AdagradOptions>(optim::AdagradOptions().weight_decay(1))));
  EXPECT_EQ(OptimizerFormula::recognise(adagrad)->variant(), "Adagrad(: 1)(weight_decay: - -)");  // a later group has no state
}

TEST(OptimizerVariant, ShowsWhichStateTensorsExist) {
  Tensors p{parameter(), parameter()};
  optim::Adam adam({p[0], p[1], p[0]}, optim::AdamOptions(0.1));
  auto formula = OptimizerFormula::recognise(adam);
  EXPECT_EQ(formula->variant(), "Adam(: - - =0)");
  give_gradient(p[0]);
  adam.step();
  EXPECT_EQ(formula->variant(), "Adam(: 110 - =0)");
}

TEST(OptimizerState, ListsEachDefinedTensorOnceInTheOrderOfTheParameters) {
  Tensors p{parameter(), parameter(), parameter()};
  optim::RMSprop rmsprop({p[0], p[1], p[0], p[2]}, optim::RMSpropOptions(0.1).centered(true));
  auto formula = OptimizerFormula::recognise(rmsprop);
  EXPECT_TRUE(formula->state().empty());
  give_gradient(p[0]);
  give_gradient(p[2]);
  rmsprop.step();
  std::vector<std::pair<int, std::string>> found;
  for (auto& s : formula->state()) found.emplace_back(s.param, s.name);
  EXPECT_EQ(found, (std::vector<std::pair<int, std::string>>{{0, "square_avg"}, {0, "grad_avg"}, {3, "square_avg"}, {3, "grad_avg"}}));
  auto& entry = static_cast<optim::RMSpropParamState&>(*rmsprop.state().at(p[2].unsafeGetTensorImpl()));
  EXPECT_TRUE(formula->state()[2].tensor.is_same(entry.square_avg()));
}

TEST(OptimizerCounters, AdvanceForTheFirstParametersThatHaveAGradient) {
  Tensors p{parameter(), parameter(), parameter(), parameter()};
  optim::Adam adam(p);
  for (auto& t : p) give_gradient(t);
  adam.step();
  OptimizerFormula::recognise(adam)->advance({true, false, true, true}, 2);
  EXPECT_EQ(counters(adam), (std::vector<double>{2, 1, 2, 1}));
}

TEST(OptimizerCounters, AreAFaultOfOursWhereNoStateExists) {
  SingleAdam a(optim::AdamOptions(0.1));
  EXPECT_THROW(a.formula->advance({true}, 1), InternalError);
}

}  // namespace
}  // namespace tandem
