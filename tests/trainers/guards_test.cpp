// Each guard, tripped once under an active plan: the values stay eager's, and the report has the sentence.
#include "tests/support/lockstep.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

/// Trips a guard on both sides; runs the step after, which must not be a plan; then two more.
template <class F>
void expect_noticed(Lockstep& l, const std::string& sentence, F&& trip, const Inputs& in = batch(100)) {
  l.activate(batch);
  l.for_both(trip);
  EXPECT_FALSE(l.step(in).compiled);
  EXPECT_TRUE(says(l.report(), sentence)) << l.report().to_string();
  l.step(in);
  l.step(in);
}
void nothing(Toy&) {}

TEST(Guards, TheDtypeOfAnInput) {
  Lockstep l([] { return mlp(); });
  auto in = batch(100);
  in[0] = in[0].to(at::kDouble);
  expect_noticed(l, "input 0: expected float32 [5, 6], found float64 [5, 6]", nothing, in);
}

TEST(Guards, TheShapeOfAnInput) {
  Lockstep l([] { return mlp(); });
  expect_noticed(l, "input 0: expected float32 [5, 6], found float32 [7, 6]", nothing, mlp_batch(100, 7));
}

TEST(Guards, TheStridesOfAnInput) {
  Lockstep l([] { return mlp(); });
  auto in = batch(100);
  in[0] = in[0].t().contiguous().t();
  expect_noticed(l, "input 0: expected strides [6, 1], found [1, 5]", nothing, in);
}

/// Both inputs are rows of scores.
Toy two_inputs() {
  return make_toy<MlpNet>(momentum_sgd, [](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
    return torch::mse_loss(net.forward(x), net.forward(y).detach());
  });
}
Inputs two(std::uint64_t seed) { return {normal({5, 6}, seed), normal({5, 6}, seed + 1000)}; }

TEST(Guards, InputsThatOverlap) {
  Lockstep l(two_inputs);
  l.activate(two);
  const auto mine = normal({6, 6}, 1), eagers = mine.clone();
  const auto halves = [](const at::Tensor& t) { return Inputs{t.narrow(0, 0, 5), t.narrow(0, 1, 5)}; };
  EXPECT_FALSE(l.step_each(halves(mine), halves(eagers)).compiled);
  EXPECT_TRUE(says(l.report(), "input 1: expected memory shared with nothing, found tensor 0 of the step")) << l.report().to_string();
}

TEST(Guards, ByHowMuchInputsOverlap) {
  Lockstep l(two_inputs);
  const auto mine = normal({8, 6}, 1), eagers = mine.clone();
  const auto halves = [](const at::Tensor& t, std::int64_t by) { return Inputs{t.narrow(0, 0, 5), t.narrow(0, by, 5)}; };
  Outcome o;
  for (int i = 0; i < 5; i++) o = l.step_each(halves(mine, 1), halves(eagers, 1));
  EXPECT_TRUE(o.compiled);
  EXPECT_FALSE(l.step_each(halves(mine, 2), halves(eagers, 2)).compiled);
  EXPECT_TRUE(says(l.report(), "input 1: expected an overlap shifted by 24 bytes, found 48 bytes")) << l.report().to_string();
}

TEST(Guards, AnInputThatIsAParameter) {
  Lockstep l(two_inputs);
  l.activate(two);
  const auto weight = [](const Toy& t) { return t.module->named_parameters()["first.weight"].detach().narrow(0, 0, 5); };
  const auto other = normal({5, 6}, 3);
  EXPECT_FALSE(l.step_each({weight(l.plan_side()), other}, {weight(l.eager_side().toy()), other}).compiled);
  EXPECT_TRUE(says(l.report(), "parameter 'first.weight': expected memory shared with nothing, found tensor 0 of the step"))
      << l.report().to_string();
}

TEST(Guards, MiniBatchesThatAreSlicesOfOneDatasetShareAPlan) {
  Lockstep l([] { return mlp(); });
  const auto x = normal({40, 6}, 1);
  const auto y = labels({40}, 4, 1);
  const auto slice = [&](std::int64_t i) { return Inputs{x.narrow(0, 5 * i, 5), y.narrow(0, 5 * i, 5)}; };
  for (int i = 0; i < 8; i++) l.step_each(slice(i), slice(i));
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_EQ(l.report().recompiles, 0);
}

TEST(Guards, WhetherAnInputRequiresGrad) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  for (std::uint64_t i = 100; i < 106; i++) {
    const auto in = batch(i);
    const auto mine = in[0].clone().requires_grad_(), eagers = in[0].clone().requires_grad_();
    EXPECT_FALSE(l.step_each({mine, in[1]}, {eagers, in[1]}).compiled);
    EXPECT_EQ(difference(mine.grad(), eagers.grad()), "");
  }
  EXPECT_TRUE(says(l.report(), "input 0: expected requires_grad no, found yes")) << l.report().to_string();
  EXPECT_TRUE(l.step(batch(110)).compiled) << "the old plan is not lost: " << l.report().to_string();
}

TEST(Guards, WhetherAParameterRequiresGrad) {
  Lockstep l([] { return mlp(); });
  expect_noticed(l, "parameter 'first.weight': expected requires_grad yes, found no",
                 [](Toy& t) { t.module->named_parameters()["first.weight"].requires_grad_(false); });
}

TEST(Guards, AGradientThatIsUndefined) {
  Options o = watched();
  o.zero_grad_to_none = false;
  Lockstep l([] { return mlp(); }, o);
  expect_noticed(l, "parameter 'last.bias': expected a defined gradient at the start of the step, found none",
                 [](Toy& t) { t.module->named_parameters()["last.bias"].mutable_grad().reset(); });
}

TEST(Guards, GradMode) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  const auto before = state_of(l.plan_side()).clone();
  const at::NoGradGuard no_grad;
  EXPECT_THROW(l.tandem()(batch(100)[0], batch(100)[1]), Error);
  EXPECT_TRUE(says(l.report(), "grad mode is off, expected on")) << l.report().to_string();
  EXPECT_EQ(difference(l.plan_side().module->parameters()[0], before.tensors[0].second), "");
}

TEST(Guards, TrainFlags) {
  Lockstep l([] { return mlp(); });
  expect_noticed(l, "train flags of the modules: expected those of the recorded step", [](Toy& t) { t.module->eval(); });
  EXPECT_TRUE(l.step(batch(101)).compiled) << l.report().to_string();
  l.for_both([](Toy& t) { t.module->train(); });
  EXPECT_TRUE(l.step(batch(102)).compiled) << "back to the first plan: " << l.report().to_string();
}

TEST(Guards, TrainFlagsOfOneSubmodule) {
  Lockstep l([] { return mlp(); });
  expect_noticed(l, "train flags of the modules", [](Toy& t) { dynamic_cast<MlpNet&>(*t.module).drop->eval(); });
}

TEST(Guards, Autocast) {
  Lockstep l([] { return mlp(); });
  at::autocast::set_autocast_enabled(at::kCPU, false);
  l.activate(batch);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_FALSE(l.step(batch(100)).compiled);
  EXPECT_FALSE(l.step(batch(101)).compiled);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_TRUE(says(l.report(), "autocast on the CPU: expected false, found true")) << l.report().to_string();
  EXPECT_TRUE(says(l.report(), "autocast is on, expected off"));
  EXPECT_TRUE(l.step(batch(102)).compiled);
}

TEST(Guards, AHookOnAParameter) {
  Lockstep l([] { return mlp(); });
  expect_noticed(l, "parameter 'first.weight': expected a gradient hook: no, found: yes",
                 [](Toy& t) { t.module->named_parameters()["first.weight"].register_hook([](const at::Tensor& g) { return g * 2; }); });
  l.steps(4, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_EQ(l.report().plans.back().replay, "full");
}

TEST(Guards, AHookThatIsRemovedAgain) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  std::vector<unsigned> hooks;
  l.for_both([&](Toy& t) { hooks.push_back(t.module->parameters()[0].register_hook([](const at::Tensor& g) { return g * 2; })); });
  EXPECT_FALSE(l.step(batch(100)).compiled);
  std::size_t side = 0;
  l.for_both([&](Toy& t) { t.module->parameters()[0].remove_hook(hooks[side++]); });
  l.steps(4, batch);
}

TEST(Guards, DeterministicMode) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  at::globalContext().setDeterministicAlgorithms(true, false);
  EXPECT_FALSE(l.step(batch(100)).compiled);
  l.steps(3, batch);
  at::globalContext().setDeterministicAlgorithms(false, false);
  EXPECT_TRUE(says(l.report(), "deterministic algorithms: expected false, found true")) << l.report().to_string();
}

TEST(Guards, AnomalyMode) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  torch::autograd::AnomalyMode::set_enabled(true);
  EXPECT_FALSE(l.step(batch(100)).compiled);
  torch::autograd::AnomalyMode::set_enabled(false);
  EXPECT_TRUE(says(l.report(), "autograd's anomaly mode: expected false, found true")) << l.report().to_string();
  EXPECT_TRUE(l.step(batch(101)).compiled);
}

TEST(Guards, TheDefaultDtype) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  const auto in = batch(100);
  at::set_default_dtype(c10::scalarTypeToTypeMeta(at::kDouble));
  EXPECT_FALSE(l.step(in).compiled);
  at::set_default_dtype(c10::scalarTypeToTypeMeta(at::kFloat));
  EXPECT_TRUE(says(l.report(), "default dtype: expected")) << l.report().to_string();
}

TEST(Guards, TheStorageOfAParameter) {
  Lockstep l([] { return mlp(); });
  expect_noticed(l, "parameter 'first.weight': expected the storage that was recorded, found another (set_data, a swap or a new tensor)",
                 [](Toy& t) {
                   auto p = t.module->named_parameters()["first.weight"];
                   p.set_data(p.detach() * 2);
                 });
  EXPECT_TRUE(l.step(batch(103)).compiled) << "a plan for the new storage: " << l.report().to_string();
}

TEST(Guards, TheStorageOfABuffer) {
  Lockstep l([] { return mlp(); });
  expect_noticed(l, "buffer 'norm.running_mean': expected the storage that was recorded", [](Toy& t) {
    auto b = t.module->named_buffers()["norm.running_mean"];
    b.set_data(b + 1);
  });
}

void replace_last_layer(Toy& t) {
  auto& net = dynamic_cast<MlpNet&>(*t.module);
  torch::manual_seed(5);
  net.last = torch::nn::Linear(8, 4);
  net.replace_module("last", net.last);
}

TEST(Guards, AParameterReplacedInTheModule) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  l.for_both(replace_last_layer);  // the optimizer keeps the old ones
  EXPECT_FALSE(l.step(batch(100)).compiled);
  l.steps(4, batch);
  EXPECT_TRUE(says(l.report(), "no plan fits: expected 6 parameters, found 8")) << l.report().to_string();
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Guards, AParameterReplacedInTheModuleAndTheOptimizer) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  l.for_both([](Toy& t) {
    replace_last_layer(t);
    t.optimizer->param_groups()[0].params() = t.module->parameters();
  });
  EXPECT_FALSE(l.step(batch(100)).compiled);
  l.steps(4, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

/// The loss reads a tensor that lives in the closure only.
struct Captured {
  std::vector<std::shared_ptr<at::Tensor>> of_side;  // the plan's, eager's
  Toy operator()() {
    auto factor = of_side.emplace_back(std::make_shared<at::Tensor>(torch::full({4}, 0.5)));
    return make_toy<MlpNet>(
        momentum_sgd, [factor](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return (net.forward(x) * *factor).square().mean(); });
  }
};

TEST(Guards, ACapturedTensorThatIsAnotherIsBoundAnew) {
  Captured make;
  Lockstep l([&] { return make(); });
  l.activate(batch);
  for (auto& t : make.of_side) *t = torch::full({4}, 0.25);
  EXPECT_TRUE(l.step(batch(100)).compiled);
}

TEST(Guards, ACapturedTensorOfATrustedClosureThatIsGone) {
  Captured make;
  auto options = watched();
  options.replay = Replay::trusted;
  Lockstep l([&] { return make(); }, options);
  l.activate(batch);
  for (auto& t : make.of_side) *t = torch::full({4}, 0.25);
  EXPECT_FALSE(l.step(batch(100)).compiled);
  EXPECT_TRUE(says(l.report(), "a tensor that was read when it was recorded is gone")) << l.report().to_string();
  l.steps(3, batch);
}

TEST(Guards, ACapturedTensorThatChangesInPlaceIsReadAnew) {
  Captured make;
  Lockstep l([&] { return make(); });
  l.activate(batch);
  for (auto& t : make.of_side) t->fill_(0.25);
  EXPECT_TRUE(l.step(batch(100)).compiled);
}

}  // namespace
}  // namespace tandem::test
