// The optimizer formulas against the numbers that LibTorch's own step() passes to its ops.
#include "tests/support/op_log.h"
#include "tests/support/optimizers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

namespace tandem {
namespace {

using namespace test;

struct Logged {
  std::string ops;
  std::vector<double> numbers;
};

Logged logged_step(optim::Optimizer& o) {
  Logged out;
  for (auto& op : test::log_ops([&] { o.step(); })) {
    out.ops += op.name + " ";
    out.numbers.insert(out.numbers.end(), op.numbers.begin(), op.numbers.end());
  }
  return out;
}

// Changes every number and keeps zeros: the ops stay the same.
using Factor = std::function<double()>;
void change(optim::SGDOptions& o, const Factor& f) {
  o.lr(o.lr() * f()).momentum(o.momentum() * f()).weight_decay(o.weight_decay() * f()).dampening(o.dampening() * f());
}
template <class O>
void change_moments(O& o, const Factor& f) {
  const auto [beta1, beta2] = o.betas();
  o.lr(o.lr() * f()).betas({beta1 * f(), beta2 * f()}).eps(o.eps() * f()).weight_decay(o.weight_decay() * f());
}
void change(optim::AdamOptions& o, const Factor& f) { change_moments(o, f); }
void change(optim::AdamWOptions& o, const Factor& f) { change_moments(o, f); }
void change(optim::RMSpropOptions& o, const Factor& f) {
  o.lr(o.lr() * f()).alpha(o.alpha() * f()).eps(o.eps() * f()).weight_decay(o.weight_decay() * f()).momentum(o.momentum() * f());
}
void change(optim::AdagradOptions& o, const Factor& f) {
  o.lr(o.lr() * f()).lr_decay(o.lr_decay() * f()).eps(o.eps() * f()).weight_decay(o.weight_decay() * f());
}

struct Case {
  std::string name;
  std::function<std::unique_ptr<optim::Optimizer>(const Tensors&)> make;  // of four parameters
  std::function<void(optim::Optimizer&, const Factor&)> change;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::string name_of(std::string name, std::initializer_list<std::pair<const char*, bool>> options) {
  for (auto& [option, on] : options)
    if (on) name += std::string("_") + option;
  return name;
}

/// Two groups with the options a and b; the first parameter is listed twice in the first group.
template <class Class, class Options>
Case make_case(std::string name, Options a, Options b) {
  auto make = [a, b](const Tensors& p) -> std::unique_ptr<optim::Optimizer> {
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(Tensors{p[0], p[1], p[0]}, std::make_unique<Options>(a));
    groups.emplace_back(Tensors{p[2], p[3]}, std::make_unique<Options>(b));
    auto o = std::make_unique<Class>(groups, a);
    o->param_groups()[1].set_options(std::make_unique<Options>(b));  // not merged with the defaults
    return o;
  };
  auto change_all = [](optim::Optimizer& o, const Factor& f) {
    for (auto& g : o.param_groups()) change(static_cast<Options&>(g.options()), f);
  };
  return {std::move(name), make, change_all};
}

void add_sgd(std::vector<Case>& out) {
  using O = optim::SGDOptions;
  for (double momentum : {0.0, 0.9})
    for (double dampening : {0.0, 0.3})
      for (double decay : {0.0, 0.01})
        for (bool nesterov : {false, true}) {
          if (nesterov && (momentum == 0 || dampening != 0)) continue;  // the constructor refuses it
          auto name =
              name_of("sgd", {{"momentum", momentum != 0}, {"dampening", dampening != 0}, {"decay", decay != 0}, {"nesterov", nesterov}});
          out.push_back(make_case<optim::SGD>(name, O(0.1).momentum(momentum).dampening(dampening).weight_decay(decay).nesterov(nesterov),
                                              O(0.07).momentum(0.8)));
        }
}

template <class Class, class O>
void add_moments(std::vector<Case>& out, const std::string& name) {
  for (bool amsgrad : {false, true})
    for (double decay : {0.0, 0.03})
      out.push_back(make_case<Class>(name_of(name, {{"amsgrad", amsgrad}, {"decay", decay != 0}}),
                                     O(0.02).amsgrad(amsgrad).weight_decay(decay).betas({0.93, 0.9971}), O(0.3).weight_decay(0.0)));
}

std::vector<Case> all_cases() {
  std::vector<Case> out;
  add_sgd(out);
  add_moments<optim::Adam, optim::AdamOptions>(out, "adam");
  add_moments<optim::AdamW, optim::AdamWOptions>(out, "adamw");
  for (double momentum : {0.0, 0.9})
    for (bool centered : {false, true})
      for (double decay : {0.0, 0.01}) {
        using O = optim::RMSpropOptions;
        auto name = name_of("rmsprop", {{"momentum", momentum != 0}, {"centered", centered}, {"decay", decay != 0}});
        out.push_back(
            make_case<optim::RMSprop>(name, O(0.03).momentum(momentum).centered(centered).weight_decay(decay), O(0.1).alpha(0.95)));
      }
  for (double lr_decay : {0.0, 0.3})
    for (double decay : {0.0, 0.01})
      for (double start : {0.0, 0.5}) {
        using O = optim::AdagradOptions;
        auto name = name_of("adagrad", {{"lr_decay", lr_decay != 0}, {"decay", decay != 0}, {"start", start != 0}});
        out.push_back(
            make_case<optim::Adagrad>(name, O(0.03).lr_decay(lr_decay).weight_decay(decay).initial_accumulator_value(start), O(0.2)));
      }
  return out;
}

class EachOptimizer : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    torch::manual_seed(7);
    for (int i = 0; i < 4; ++i) parameters_.push_back(parameter());
    optimizer_ = GetParam().make(parameters_);
    formula_ = OptimizerFormula::recognise(*optimizer_);
    ASSERT_NE(formula_, nullptr);
  }

  /// The last parameter never has a gradient, the second only in odd steps.
  static void give_gradients(const Tensors& parameters, int step) {
    for (auto& p : parameters) p.mutable_grad() = at::Tensor();
    give_gradient(parameters[0]);
    if (step % 2 == 1) give_gradient(parameters[1]);
    give_gradient(parameters[2]);
  }

  Factor factor(unsigned seed) {
    return [random = std::make_shared<std::mt19937_64>(seed)] { return std::uniform_real_distribution<double>(0.9, 1)(*random); };
  }

  Tensors parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<OptimizerFormula> formula_;
};

TEST_P(EachOptimizer, GivesTheNumbersThatStepPassesToItsOps) {
  auto f = factor(3);
  for (int step = 1; step <= 5; ++step) {
    give_gradients(parameters_, step);
    auto expected = numbers_now(*formula_, *optimizer_);
    auto logged = logged_step(*optimizer_);
    ASSERT_FALSE(logged.numbers.empty());
    EXPECT_EQ(bits(values(expected)), bits(logged.numbers)) << "step " << step << ": " << logged.ops;
    GetParam().change(*optimizer_, f);
  }
}

TEST_P(EachOptimizer, LeavesTheCountersThatStepLeaves) {
  Tensors twins;
  for (auto& p : parameters_) twins.push_back(p.detach().clone().requires_grad_(true));
  auto twin = GetParam().make(twins);
  auto f = factor(5), g = factor(5);
  give_gradients(parameters_, 1);
  give_gradients(twins, 1);
  optimizer_->step();
  twin->step();
  for (int step = 2; step <= 5; ++step) {
    give_gradients(parameters_, step);
    give_gradients(twins, step);
    EXPECT_EQ(bits(values(numbers_now(*formula_, *optimizer_))), bits(logged_step(*twin).numbers)) << "step " << step;
    formula_->advance(gradient_flags(*optimizer_), 5);
    EXPECT_EQ(counters(*optimizer_), counters(*twin)) << "step " << step;
    GetParam().change(*optimizer_, f);
    GetParam().change(*twin, g);
  }
}

TEST_P(EachOptimizer, HasOneVariantForOneSequenceOfOps) {
  std::map<std::string, std::string> ops;
  auto f = factor(9);
  for (int step = 1; step <= 5; ++step) {
    give_gradients(parameters_, 1);
    auto variant = formula_->variant();
    auto logged = logged_step(*optimizer_).ops;
    EXPECT_EQ(ops.emplace(variant, logged).first->second, logged) << variant;
    GetParam().change(*optimizer_, f);
  }
  EXPECT_LE(ops.size(), 2u);  // the first step may be special, it makes the state
}

TEST_P(EachOptimizer, KeepsItsStateTensorsInPlaceAfterTheFirstStep) {
  give_gradients(parameters_, 1);
  optimizer_->step();
  const auto before = formula_->state();
  give_gradients(parameters_, 3);
  optimizer_->step();
  const auto after = formula_->state();
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i].tensor.is_same(after[i].tensor)) << before[i].name;
}

INSTANTIATE_TEST_SUITE_P(Options, EachOptimizer, testing::ValuesIn(all_cases()), [](auto& info) { return info.param.name; });

TEST(OptimizerNumbers, SeeWhatAnEarlierListingOfTheParameterLeaves) {
  auto p = parameter();
  std::vector<optim::OptimizerParamGroup> groups;
  for (double momentum : {0.0, 0.5, 0.75})
    groups.emplace_back(Tensors{p}, std::make_unique<optim::SGDOptions>(optim::SGDOptions(0.1).momentum(momentum)));
  optim::SGD sgd(groups, optim::SGDOptions(0.1));
  give_gradient(p);
  auto expected = numbers_now(*OptimizerFormula::recognise(sgd), sgd);
  EXPECT_EQ(bits(values(expected)), bits(logged_step(sgd).numbers));
  EXPECT_EQ(names(expected), (std::vector<std::string>{"sgd.minus_lr[0]", "sgd.minus_lr[1]", "sgd.momentum[2]",
                                                       "sgd.one_minus_dampening[2]", "sgd.minus_lr[2]"}));
}

TEST(OptimizerNumbers, FollowOptionsThatBecomeNegative) {
  SingleRmsprop r(optim::RMSpropOptions(0.1));
  r.options().momentum(-0.5).weight_decay(-0.25);  // momentum counts only above zero, weight decay whenever it is not zero
  auto expected = r.numbers();
  EXPECT_EQ(bits(values(expected)), bits(logged_step(r.optimizer).numbers));
}

TEST(OptimizerNumbers, KeepTheSignOfAZeroLearningRate) {
  SingleSgd s(optim::SGDOptions(0.0));
  EXPECT_EQ(bits(values(s.numbers())), bits(logged_step(s.optimizer).numbers));
  EXPECT_TRUE(std::signbit(s.numbers().back().value));
}

}  // namespace
}  // namespace tandem
