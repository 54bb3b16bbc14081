// What a step gives back belongs to the caller: later steps do not touch it, and the caller's writes do not reach the plan.
#include "tests/support/lockstep.h"

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

TEST(Results, StayAsTheyAreInLaterSteps) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  const auto loss = l.last().loss, scores = l.last().outputs.at(0);
  const auto gradient = l.plan_side().module->parameters()[0].grad();
  const auto loss_copy = loss.clone(), scores_copy = scores.clone(), gradient_copy = gradient.clone();
  l.steps(3, batch);
  EXPECT_EQ(difference(loss, loss_copy), "");
  EXPECT_EQ(difference(scores, scores_copy), "");
  EXPECT_EQ(difference(gradient, gradient_copy), "");
}

TEST(Results, RequireNoGrad) {
  Lockstep l([] { return mlp(); });
  for (int i = 0; i < 5; i++) {
    l.step(batch(1));
    EXPECT_FALSE(l.last().loss.requires_grad());
    EXPECT_FALSE(l.last().outputs.at(0).requires_grad());
    EXPECT_TRUE(l.last().loss.is_leaf());
  }
}

/// Steps until a plan runs; overwrites all results on both sides after each step, whose values Lockstep compares.
void expect_own_memory(const MakeToy& make, const Options& options = watched()) {
  Lockstep l(make, options);
  for (std::uint64_t i = 1; i <= 8; i++) {
    l.step(batch(i));
    auto results = l.last().outputs;
    results.push_back(l.last().loss);
    for (std::size_t k = 0; k < results.size(); k++) {
      std::vector<at::Tensor> before;
      for (const auto& r : results) before.push_back(r.clone());
      results[k].add_(1);
      for (std::size_t other = 0; other < results.size(); other++)
        if (other != k)
          EXPECT_EQ(difference(results[other], before[other]), "") << "result " << other << " shares memory with result " << k;
    }
  }
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Results, OutputsOfEqualNodesHaveMemoryOfTheirOwn) {
  expect_own_memory(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
    const auto scores = net.forward(x);
    return std::tuple(torch::cross_entropy_loss(scores, y), scores * 2, scores * 2);
  }));
}

TEST(Results, AConstantOutputIsNotThePlansOwnMemory) {
  expect_own_memory(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
    return std::tuple(torch::cross_entropy_loss(net.forward(x), y), torch::arange(4, at::TensorOptions(at::kFloat)));
  }));
}

TEST(Results, AnOutputThatIsABufferIsTheBuffer) {
  Lockstep l(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
    return std::tuple(torch::cross_entropy_loss(net.forward(x), y), net.norm->running_mean);
  }));
  l.activate(batch);
  EXPECT_TRUE(l.last().outputs.at(0).is_alias_of(l.plan_side().module->named_buffers()["norm.running_mean"]));
  l.for_both([](Toy& t) { t.module->named_buffers()["norm.running_mean"].add_(1); });
  l.steps(2, batch);
}

TEST(Results, AnOutputThatIsAnInputIsTheInput) {
  Lockstep l(mlp_with(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor& y) { return std::tuple(torch::cross_entropy_loss(net.forward(x), y), x); }));
  l.activate(batch);
  const auto in = batch(100), same = batch(100);
  l.step_each(in, same);
  EXPECT_TRUE(l.last().outputs.at(0).is_alias_of(in[0]));
}

/// Two biases that are added in the same way have gradients by the same op on the same operands.
Toy twin_biases(const MakeOptimizer& optimizer = momentum_sgd) {
  torch::manual_seed(11);
  auto module = bag();
  const auto w = module->register_parameter("w", normal({6, 4}, 1));
  const auto a = module->register_parameter("a", normal({4}, 2)), b = module->register_parameter("b", normal({4}, 3));
  return {module, optimizer({w, a, b}),
          [=](const at::Tensor& x, const at::Tensor&) -> Inputs { return {(x.matmul(w) + a + b).tanh().square().mean()}; }};
}

void expect_separate_gradients(Lockstep& l) {
  const auto p = l.plan_side().module->named_parameters();
  EXPECT_FALSE(p["a"].grad().is_alias_of(p["b"].grad()));
}

TEST(Results, EqualGradientsHaveMemoryOfTheirOwn) {
  Lockstep l([] { return twin_biases(); });
  l.activate(batch);
  expect_separate_gradients(l);
  for (std::uint64_t i = 10; i < 14; i++) {
    l.for_both([](Toy& t) { t.module->named_parameters()["a"].mutable_grad().mul_(3); });
    l.compare_state();
    l.step(batch(i));
  }
}

TEST(Results, EqualGradientsAreAccumulatedOnceEach) {
  Options o = watched();
  o.accumulate = 3;
  Lockstep l([] { return twin_biases(); }, o);
  l.steps(18, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  expect_separate_gradients(l);
}

TEST(Results, EqualGradientsWithAnOptimizerThatWritesThem) {
  /// Scales gradients in place before it steps.
  struct Scaling : torch::optim::SGD {
    using SGD::SGD;
    at::Tensor step(LossClosure closure = nullptr) override {
      const at::NoGradGuard no_grad;
      for (auto& g : param_groups())
        for (auto& p : g.params()) p.mutable_grad().mul_(0.5);
      return SGD::step(std::move(closure));
    }
  };
  Lockstep l([] {
    return twin_biases([](auto p) { return std::make_unique<Scaling>(std::move(p), torch::optim::SGDOptions(0.1).momentum(0.9)); });
  });
  l.steps(8, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

TEST(Results, ASecondStepObjectOnTheSameModelAndOptimizer) {
  // Two losses in turns, as in adversarial training; each object has plans of its own and sees what the other has done.
  const auto losses = [](const Toy& t) {
    auto& net = dynamic_cast<MlpNet&>(*t.module);
    return std::pair(
        Loss([&](const at::Tensor& x, const at::Tensor& y) -> Inputs { return {torch::cross_entropy_loss(net.forward(x), y)}; }),
        Loss([&](const at::Tensor& x, const at::Tensor&) -> Inputs { return {net.forward(x).square().mean()}; }));
  };
  auto mine = mlp([](auto p) { return adam(std::move(p), 0.01); }), eagers = mlp([](auto p) { return adam(std::move(p), 0.01); });
  const auto [first, second] = losses(mine);
  const auto [eager_first, eager_second] = losses(eagers);
  const auto options = as_tested(watched());
  TrainStep a(mine.module, *mine.optimizer, first, options), b(mine.module, *mine.optimizer, second, options);
  for (std::uint64_t i = 1; i <= 16; i++) {
    const auto in = batch(i);
    const auto generator = generator_state();
    eagers.optimizer->zero_grad();
    const auto expected = (i % 2 ? eager_first : eager_second)(in[0], in[1]);
    expected[0].backward();
    eagers.optimizer->step();
    set_generator_state(generator);
    EXPECT_EQ(difference((i % 2 ? a : b).run(in).loss, expected[0]), "") << "step " << i;
    EXPECT_EQ(difference(state_of(mine), state_of(eagers)), "") << "step " << i;
    follow(state_of(mine), state_of(eagers));
  }
  EXPECT_TRUE(a.report().active) << a.report().to_string();
  EXPECT_TRUE(b.report().active) << b.report().to_string();
}

TEST(Results, AMovedStepGoesOn) {
  Lockstep l([] { return mlp(); });
  l.activate(batch);
  TrainStep moved(std::move(l.tandem()));
  auto in = batch(50);
  EXPECT_TRUE(moved.run(in).compiled);
  l.tandem() = std::move(moved);
  EXPECT_TRUE(l.tandem().run(in).compiled);
}

TEST(Results, NothingOfAStepStaysAliveAfterIt) {
  Lockstep l([] { return mlp(); }, {.shadow_every = 1000});
  l.activate(batch);
  c10::weak_intrusive_ptr<c10::StorageImpl> input = [&] {
    const auto mine = batch(100), eagers = batch(100);
    l.step_each(mine, eagers);
    return mine[0].storage().getWeakStorageImpl();
  }();
  EXPECT_TRUE(input.expired()) << "the batch of the latest step";
}

}  // namespace
}  // namespace tandem::test
