// Steps that a plan cannot stand for stay eager, with eager's values, and say why; those that look as if it could not are replayed.
#include "tests/support/lockstep.h"

#include <thread>

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

void expect_eager(Lockstep& l, const std::string& sentence, const std::function<void(std::uint64_t)>& before_step = {}) {
  for (std::uint64_t i = 1; i <= 8; i++) {
    if (before_step) before_step(i);
    EXPECT_FALSE(l.step(batch(i)).compiled);
  }
  const auto r = l.report();
  EXPECT_FALSE(r.active);
  EXPECT_NE(r.reason.find(sentence), std::string::npos) << r.to_string();
}
/// Steps that are compiled although host code runs in them; what they leave is compared step by step.
void expect_compiled(Lockstep& l, const std::string& level, int steps = 10) {
  int compiled = 0;
  for (std::uint64_t i = 1; i <= std::uint64_t(steps); i++) compiled += l.step(batch(i)).compiled;
  EXPECT_GE(compiled, steps / 2) << l.report().to_string();
  ASSERT_FALSE(l.report().plans.empty());
  EXPECT_EQ(l.report().plans.back().replay, level) << l.report().to_string();
}
template <class F>
void expect_compiled_loss(F loss, const std::string& level) {
  Lockstep l(mlp_with(loss));
  expect_compiled(l, level);
}
template <class F>
void expect_eager_loss(F loss, const std::string& sentence) {
  Lockstep l(mlp_with(loss));
  expect_eager(l, sentence);
}

TEST(HostCode, AHookOnATensorInsideTheLoss) {
  expect_compiled_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        auto h = net.forward(x);
        h.register_hook([](const at::Tensor& g) { return g * 0.5; });
        return h.square().mean();
      },
      "full");
}

TEST(HostCode, AHookThatComesWithALaterStep) {
  auto on = std::make_shared<bool>(false);
  Lockstep l(mlp_with([on](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
    auto h = net.forward(x);
    if (*on) h.register_hook([](const at::Tensor& g) { return g * 2; });
    return h.square().mean();
  }));
  l.activate(batch);
  *on = true;  // no op of the closure tells
  EXPECT_FALSE(l.step(batch(50)).compiled);
  l.steps(6, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  *on = false;
  l.steps(4, batch);
}

TEST(HostCode, RetainGradInsideTheLoss) {
  expect_compiled_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        auto h = net.forward(x);
        h.retain_grad();
        return h.square().mean();
      },
      "full");
}

struct Halve : torch::autograd::Function<Halve> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 0.5; }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list g) { return {g[0] * 0.25}; }
};

TEST(HostCode, ACustomAutogradFunction) {
  expect_compiled_loss([](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return Halve::apply(net.forward(x)).square().mean(); },
                       "full");
}

TEST(HostCode, AHostReadInTheLoss) {
  expect_compiled_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        const auto loss = net.forward(x).square().mean();
        return loss.item<float>() > 0.1f ? loss * 0.5 : loss;
      },
      "forward");
}

TEST(HostCode, SizesThatDependOnValuesArePathsOfTheirOwn) {
  Lockstep l(mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
    const auto h = net.forward(x);
    return h.masked_select(h.detach().gt(0)).square().sum();
  }));
  for (std::uint64_t i = 0; i < 16; i++) l.step(batch(1 + i % 2));
  EXPECT_TRUE(says(l.report(), "the step takes another path")) << l.report().to_string();
}

TEST(Refusals, AGeneratorOfTheUsersOwn) {
  Lockstep l([] {
    auto generator = at::detail::createCPUGenerator(9);
    return mlp_with([generator](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
      const auto h = net.forward(x);
      return (h * torch::rand({5, 4}, std::optional<at::Generator>(generator))).square().mean();
    })();
  });
  expect_eager(l, "has an argument of type Generator");
}

TEST(Refusals, ReseedingInTheLoss) {
  expect_eager_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        torch::manual_seed(3);
        return net.forward(x).square().mean();
      },
      "random generator was moved by hand");
}

struct SparseNet : torch::nn::Module {
  SparseNet() { register_module("table", table); }
  torch::nn::Embedding table{torch::nn::EmbeddingOptions(4, 3).sparse(true)};
};

TEST(Refusals, ASparseGradient) {
  Lockstep l([] {
    return make_toy<SparseNet>([](auto p) { return sgd(std::move(p), 0.1); },
                               [](SparseNet& net, const at::Tensor&, const at::Tensor& y) { return net.table(y).square().mean(); });
  });
  expect_eager(l, "expected strided ones only");
}

TEST(HostCode, AThreadInsideTheLossThatReadsAnInput) {
  expect_compiled_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        at::Tensor factor;
        std::thread other([&] { factor = x.detach().abs().mean(); });
        other.join();
        return (net.forward(x) * factor).square().mean();
      },
      "forward");
}

TEST(HostCode, AnActivationThatTheClosureKeeps) {
  Lockstep l([] {
    auto kept = std::make_shared<at::Tensor>();
    return mlp_with([kept](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
      const auto h = net.forward(x);
      *kept = h.detach();
      return h.square().mean();
    })();
  });
  expect_compiled(l, "forward");
}

TEST(HostCode, AStateTensorThatTheStepReplaces) {
  Lockstep l([] {
    auto state = std::make_shared<at::Tensor>(torch::zeros({5, 4}));
    return mlp_with([state](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
      const auto h = net.forward(x) + *state * 0.5;
      *state = h.detach();
      return h.square().mean();
    })();
  });
  expect_compiled(l, "forward");
}

TEST(HostCode, AStateTensorThatTheHostReplacesBetweenSteps) {
  std::vector<std::shared_ptr<at::Tensor>> states;
  Lockstep l([&] {
    auto state = states.emplace_back(std::make_shared<at::Tensor>());
    return mlp_with([state](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return (net.forward(x) + *state).square().mean(); })();
  });
  std::vector<at::Tensor> alive;
  int compiled = 0;
  for (std::uint64_t i = 1; i <= 8; i++) {
    for (auto& s : states) alive.push_back(*s = torch::full({4}, double(i)));
    compiled += l.step(batch(i)).compiled;
  }
  EXPECT_GE(compiled, 4) << l.report().to_string();
}

TEST(Refusals, ARawWrite) {
  expect_eager_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        const auto h = net.first(x);
        const auto bare = h.detach();
        bare.accessor<float, 2>()[0][0] = 3;
        return h.square().mean();
      },
      "was changed outside the recorded ops");
}

TEST(HostCode, NumbersThatDifferInEachStep) {
  Lockstep l([] {
    auto count = std::make_shared<int>(0);
    return mlp_with(
        [count](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x).square().mean() * (1.0 / ++*count); })();
  });
  expect_compiled(l, "forward");
}

TEST(Leaves, OneThatTheStepItselfMakesGoesWithIt) {
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> made;
  Lockstep l([&] {
    return mlp_with([&](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
      const auto extra = torch::zeros({4}, at::TensorOptions().requires_grad(true));
      made.push_back(extra.storage().getWeakStorageImpl());
      return (net.forward(x) + extra).square().mean();
    })();
  });
  l.steps(10, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  for (const auto& m : made) EXPECT_TRUE(m.expired());
}

TEST(Leaves, NewOnesThatOutliveEachStepAreRefused) {
  std::vector<at::Tensor> kept;
  Lockstep l([&] {
    return mlp_with([&](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
      const auto extra = kept.emplace_back(torch::zeros({4}, at::TensorOptions().requires_grad(true)));
      return (net.forward(x) + extra).square().mean();
    })();
  });
  expect_eager(l, "a new leaf tensor in each step");
}

TEST(Leaves, OneThatNobodyListsIsTrainedAlongOnceItIsKnown) {
  Lockstep l([] {
    auto extra = torch::zeros({4}, at::TensorOptions().requires_grad(true));
    return mlp_with([extra](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return (net.forward(x) + extra).square().mean(); })();
  });
  l.steps(8, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
  EXPECT_TRUE(says(l.report(), "it is known from the next step on"));
}

}  // namespace
}  // namespace tandem::test
