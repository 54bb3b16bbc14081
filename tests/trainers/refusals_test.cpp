// Steps that a plan cannot stand for: they stay eager, with eager's values, and say why.
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
template <class F>
void expect_eager_loss(F loss, const std::string& sentence) {
  Lockstep l(mlp_with(loss));
  expect_eager(l, sentence);
}

TEST(Refusals, AHookOnATensorInsideTheLoss) {
  expect_eager_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        auto h = net.forward(x);
        h.register_hook([](const at::Tensor& g) { return g * 0.5; });
        return h.square().mean();
      },
      "has a hook, expected none");
}

TEST(Refusals, AHookThatComesWithALaterStep) {
  auto on = std::make_shared<bool>(false);
  Options o = watched();
  o.shadow_every = 4;
  Lockstep l(mlp_with([on](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
               auto h = net.forward(x);
               if (*on) h.register_hook([](const at::Tensor&) {});
               return h.square().mean();
             }),
             o);
  l.activate(batch);
  *on = true;  // host state: seen at the next shadow step
  l.steps(4, batch);
  EXPECT_FALSE(l.report().active);
  EXPECT_TRUE(says(l.report(), "has a hook, expected none")) << l.report().to_string();
}

TEST(Refusals, RetainGradInsideTheLoss) {
  expect_eager_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        auto h = net.forward(x);
        h.retain_grad();
        return h.square().mean();
      },
      "has a hook, expected none");
}

struct Halve : torch::autograd::Function<Halve> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 0.5; }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list g) { return {g[0] * 0.25}; }
};

TEST(Refusals, ACustomAutogradFunction) {
  expect_eager_loss([](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return Halve::apply(net.forward(x)).square().mean(); },
                    "custom autograd::Function");
}

TEST(Refusals, AHostReadInTheLoss) {
  expect_eager_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        const auto loss = net.forward(x).square().mean();
        return loss.item<float>() > 0.1f ? loss * 0.5 : loss;
      },
      "reads a tensor on the host in");
}

TEST(Refusals, SizesThatDependOnValues) {
  expect_eager_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        const auto h = net.forward(x);
        return h.masked_select(h.detach().gt(0)).square().sum();
      },
      "depend on its operands' values");
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

TEST(Refusals, AThreadInsideTheLoss) {
  expect_eager_loss(
      [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
        at::Tensor factor;
        std::thread other([&] { factor = x.detach().abs().mean(); });
        other.join();
        return (net.forward(x) * factor).square().mean();
      },
      "another thread");
}

TEST(Refusals, AnActivationThatTheClosureKeeps) {
  Lockstep l([] {
    auto kept = std::make_shared<at::Tensor>();
    return mlp_with([kept](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
      const auto h = net.forward(x);
      *kept = h.detach();
      return h.square().mean();
    })();
  });
  expect_eager(l, "alive after its end");
}

TEST(Refusals, AStateTensorThatTheStepReplaces) {
  Lockstep l([] {
    auto state = std::make_shared<at::Tensor>(torch::zeros({5, 4}));
    return mlp_with([state](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
      const auto h = net.forward(x) + *state * 0.5;
      *state = h.detach();
      return h.square().mean();
    })();
  });
  expect_eager(l, "alive after its end");
}

TEST(Refusals, AStateTensorThatTheHostReplacesBetweenSteps) {
  std::vector<std::shared_ptr<at::Tensor>> states;
  Lockstep l([&] {
    auto state = states.emplace_back(std::make_shared<at::Tensor>());
    return mlp_with([state](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return (net.forward(x) + *state).square().mean(); })();
  });
  std::vector<at::Tensor> alive;
  expect_eager(l, "another one in each step", [&](std::uint64_t i) {
    for (auto& s : states) alive.push_back(*s = torch::full({4}, double(i)));
  });
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

TEST(Refusals, HostNumbersThatDifferInEachStep) {
  Lockstep l([] {
    auto count = std::make_shared<int>(0);
    return mlp_with(
        [count](MlpNet& net, const at::Tensor& x, const at::Tensor&) { return net.forward(x).square().mean() * (1.0 / ++*count); })();
  });
  expect_eager(l, "two recordings of this step do not agree");
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
