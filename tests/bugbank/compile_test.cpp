// Functions behind tandem::compile(), with the user's own backward().
#include "tandem/compile.h"
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

/// A leaf on both sides, so that the same program can be run by a compiled and by an eager function.
struct Leaves {
  explicit Leaves(const std::vector<at::Tensor>& start) {
    for (const auto& t : start) {
      mine.push_back(t.clone().requires_grad_());
      eagers.push_back(t.clone().requires_grad_());
    }
  }
  void forget_gradients() {
    for (auto* side : {&mine, &eagers})
      for (auto& t : *side) t.mutable_grad() = at::Tensor();
  }
  void expect_equal_gradients() const {
    for (std::size_t i = 0; i < mine.size(); i++) EXPECT_EQ(difference(mine[i].grad(), eagers[i].grad()), "") << "leaf " << i;
  }
  std::vector<at::Tensor> mine, eagers;
};

/// Runs `program` of a function and its leaves on both sides, ten times; the error texts must be the same. Returns the last one.
template <class F, class Program>
std::string expect_as_eager(Leaves& leaves, F f, Program program, bool compiled = true) {
  auto mine = compile(f, as_tested({.shadow_every = 1000}));
  std::string last;
  for (int s = 1; s <= 10; s++) {
    SCOPED_TRACE(fmt::format("round {}", s));
    leaves.forget_gradients();
    const auto generator = generator_state();
    const auto expected = Outcome::of([&](Outcome& o) { o.returned = program(f, leaves.eagers); });
    set_generator_state(generator);
    const auto found = Outcome::of([&](Outcome& o) { o.returned = program(mine, leaves.mine); });
    EXPECT_EQ(found.error, expected.error);
    EXPECT_EQ(difference(found.generator, expected.generator), "");
    EXPECT_EQ(found.returned.size(), expected.returned.size());
    for (std::size_t i = 0; i < std::min(found.returned.size(), expected.returned.size()); i++)
      EXPECT_EQ(difference(found.returned[i], expected.returned[i]), "") << "result " << i;
    leaves.expect_equal_gradients();
    last = found.error;
  }
  if (compiled) {
    EXPECT_GT(mine.report().compiled_steps, 0) << mine.report().to_string();
  }
  return last;
}

TEST(BugBankCompile, VIEW_4_AnInputThatIsOverwrittenBeforeBackwardThrows) {
  for (const bool overwritten : {false, true}) {
    Leaves leaves({torch::ones({3, 3})});
    const auto error = expect_as_eager(
        leaves, [](const at::Tensor& x, const at::Tensor& w) { return x.matmul(w); },
        [=](auto& f, std::vector<at::Tensor>& w) -> Inputs {
          const auto x = torch::ones({2, 3});
          const auto y = f(x, w[0]);
          if (overwritten) x.copy_(torch::full({2, 3}, 7.));
          y.sum().backward();
          return {y.detach()};
        });
    EXPECT_EQ(error.find("modified by an inplace operation") != std::string::npos, overwritten) << error;
  }
}

TEST(BugBankCompile, VIEW_4_AWeightThatIsOverwrittenBeforeBackwardThrows) {
  Leaves leaves({torch::ones({3, 3})});
  const auto error = expect_as_eager(
      leaves, [](const at::Tensor& x, const at::Tensor& w) { return x.matmul(w); },
      [](auto& f, std::vector<at::Tensor>& w) -> Inputs {
        const auto x = torch::ones({2, 3}).requires_grad_();
        const auto y = f(x, w[0]);
        {
          const at::NoGradGuard no_grad;
          w[0].mul_(2);
        }
        y.sum().backward();
        return {};
      });
  EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
}

TEST(BugBankCompile, RET_1_RetainTheGraphThenAgainThenOnceTooOften) {
  for (const int times : {1, 2, 3}) {
    Leaves leaves({torch::full({}, 2.)});
    const auto error = expect_as_eager(
        leaves, [](const at::Tensor& w) { return w.pow(3); },
        [=](auto& f, std::vector<at::Tensor>& w) -> Inputs {
          const auto loss = f(w[0]);
          loss.backward({}, /*retain_graph=*/true);
          for (int n = 1; n < times; n++) loss.backward();
          return {loss.detach()};
        });
    EXPECT_EQ(error.empty(), times < 3) << error;
    EXPECT_EQ(far(leaves.mine[0].grad(), {times == 1 ? 12. : 24.}), "");
  }
}

TEST(BugBankCompile, RET_2_ADetachedPassThenAnAttachedOne) {
  Leaves leaves({torch::full({}, 2.), torch::full({}, 3.)});
  expect_as_eager(
      leaves, [](const at::Tensor& g) { return g * 5; },
      [](auto& f, std::vector<at::Tensor>& p) -> Inputs {
        const auto fake = f(p[0]);
        (fake.detach() * p[1]).backward();
        EXPECT_FALSE(p[0].grad().defined());
        EXPECT_EQ(far(p[1].grad(), {10}), "");
        (fake * p[1]).backward();
        return {fake.detach()};
      });
  EXPECT_EQ(far(leaves.mine[0].grad(), {15}), "");
  EXPECT_EQ(far(leaves.mine[1].grad(), {20}), "");
}

TEST(BugBankCompile, RET_3_SeveralOutputsWithOneBackwardEach) {
  Leaves leaves({torch::ones(3)});
  expect_as_eager(
      leaves, [](const at::Tensor& w) { return std::make_tuple(w * 2, (w * 3).sum()); },
      [](auto& f, std::vector<at::Tensor>& w) -> Inputs {
        const auto [a, b] = f(w[0]);
        a.sum().backward();
        b.backward();
        return {a.detach(), b.detach()};
      });
  EXPECT_EQ(far(leaves.mine[0].grad(), {5, 5, 5}), "");
}

TEST(BugBankCompile, RET_3_PartsOfOneOutput) {
  Leaves leaves({torch::ones(3)});
  const auto parts_of = [](const at::Tensor& v) { return (v * v).unbind(0); };
  const auto error = expect_as_eager(
      leaves, parts_of,
      [](auto& f, std::vector<at::Tensor>& v) -> Inputs {
        const auto parts = f(v[0]);
        parts[0].backward();
        parts[1].backward();
        return {};
      },
      /*compiled=*/false);  // results that share memory are not compiled
  EXPECT_FALSE(error.empty());
  EXPECT_EQ(far(leaves.mine[0].grad(), {2, 0, 0}), "");
}

TEST(BugBankCompile, UNU_1_AnOutputThatNobodyUsesLeavesItsGradientUndefined) {
  Leaves leaves({torch::ones({}), torch::ones({})});
  expect_as_eager(
      leaves, [](const at::Tensor& a, const at::Tensor& b) { return std::make_pair(a * 2, b * 3); },
      [](auto& f, std::vector<at::Tensor>& p) -> Inputs {
        const auto [y1, y2] = f(p[0], p[1]);
        y1.backward();
        return {y1.detach(), y2.detach()};
      });
  EXPECT_EQ(far(leaves.mine[0].grad(), {2}), "");
  EXPECT_FALSE(leaves.mine[1].grad().defined());
}

TEST(BugBankCompile, ACC_1_GradientsAreNoAliasOfThePlan) {
  Leaves leaves({torch::ones({})});
  expect_as_eager(
      leaves, [](const at::Tensor& w, const at::Tensor& m) { return w * m / 4; },
      [](auto& f, std::vector<at::Tensor>& w) -> Inputs {
        at::Tensor handle;
        for (int m = 1; m <= 4; m++) {
          f(w[0], torch::full({}, double(m))).backward();
          if (m == 1) handle = w[0].grad();
        }
        EXPECT_TRUE(w[0].grad().is_alias_of(handle));
        return {handle.clone()};
      });
  EXPECT_EQ(far(leaves.mine[0].grad(), {2.5}), "");
}

TEST(BugBankCompile, GRD_2_WarmUpWithoutGradientsThenTraining) {
  torch::nn::Linear linear(2, 1);
  {
    const at::NoGradGuard no_grad;
    linear->weight.fill_(1);
  }
  auto f = compile(linear, as_tested({.shadow_every = 1000}));
  const auto x = torch::ones({1, 2});
  for (int s = 0; s < 8; s++) {
    {
      const at::NoGradGuard no_grad;
      EXPECT_FALSE(f(x).requires_grad());
    }
    linear->zero_grad();
    const auto y = f(x);
    EXPECT_TRUE(y.requires_grad());
    y.sum().backward();
    EXPECT_EQ(far(linear->weight.grad(), {1, 1}), "");
  }
  at::Tensor inference;
  {
    const c10::InferenceMode on;
    inference = torch::ones({1, 2});
  }
  EXPECT_THROW(f(inference).sum().backward(), c10::Error);
}

TEST(BugBankCompile, GRD_1_FreezeAndUnfreeze) {
  auto f = compile([](const at::Tensor& a, const at::Tensor& b) { return a * b * 2; }, as_tested({.shadow_every = 1000}));
  const auto a = torch::ones({}).requires_grad_(), b = torch::ones({}).requires_grad_();
  for (int round = 0; round < 4; round++)
    for (const bool frozen : {false, true, false}) {
      a.mutable_grad() = b.mutable_grad() = at::Tensor();
      b.set_requires_grad(!frozen);
      f(a, b).backward();
      EXPECT_EQ(far(a.grad(), {2}), "");
      EXPECT_EQ(b.grad().defined(), !frozen);
    }
}

TEST(BugBankCompile, HOK_1_HooksOnAParameterAndOnTheResult) {
  Leaves leaves({torch::ones({})});
  auto calls = std::make_shared<int>(0);
  leaves.mine[0].register_hook([calls](const at::Tensor& g) {
    ++*calls;
    return g * 10;
  });
  leaves.eagers[0].register_hook([](const at::Tensor& g) { return g * 10; });
  expect_as_eager(
      leaves, [](const at::Tensor& w) { return w * 2 + w * 3; },
      [](auto& f, std::vector<at::Tensor>& w) -> Inputs {
        const auto y = f(w[0]);
        y.register_hook([](const at::Tensor& g) { return g + 1; });
        y.backward();
        return {y.detach()};
      });
  EXPECT_EQ(*calls, 10);
  EXPECT_EQ(far(leaves.mine[0].grad(), {100}), "");
}

TEST(BugBankCompile, HOK_2_RetainedGradientOfTheResult) {
  Leaves leaves({torch::ones({})});
  expect_as_eager(
      leaves, [](const at::Tensor& z) { return z * 2; },
      [](auto& f, std::vector<at::Tensor>& z) -> Inputs {
        auto h = f(z[0]);
        h.retain_grad();
        h.register_hook([](const at::Tensor& g) { return g + 1; });
        (h * h).backward();
        return {h.detach(), h.grad()};
      });
  EXPECT_EQ(far(leaves.mine[0].grad(), {10}), "");
}

TEST(BugBankCompile, FMT_4_ReflectPadKeepsChannelsLast) {
  Leaves leaves({torch::rand({2, 4, 6, 5}).contiguous(at::MemoryFormat::ChannelsLast)});
  expect_as_eager(
      leaves,
      [](const at::Tensor& x) {
        return torch::reflection_pad2d(x, {1, 2, 2, 1});
      },
      [](auto& f, std::vector<at::Tensor>& x) -> Inputs {
        const auto y = f(x[0]);
        EXPECT_EQ(y.strides(), (std::vector<std::int64_t>{288, 1, 32, 4}));
        y.square().sum().backward();
        return {y.detach()};
      });
}

TEST(BugBankCompile, BN_1_RunningStatisticsMoveOnceACall) {
  torch::nn::BatchNorm1d norm(2);
  auto f = compile(norm, as_tested({.shadow_every = 1000}));
  const auto x = torch::tensor({{1.f, 2.f}, {3.f, 6.f}});
  double mean = 0;
  for (int s = 1; s <= 8; s++) {
    mean = 0.9 * mean + 0.1 * 2;
    f(x).pow(2).sum().backward();
    EXPECT_NEAR(norm->running_mean[0].item<double>(), mean, 1e-6);
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), s);
  }
}

TEST(BugBankCompile, RNG_1_BackwardUsesTheMaskOfForward) {
  Leaves leaves({torch::ones(1000)});
  expect_as_eager(
      leaves, [](const at::Tensor& x) { return torch::dropout(x, 0.5, true); },
      [](auto& f, std::vector<at::Tensor>& x) -> Inputs {
        const auto y = f(x[0]);
        y.sum().backward();
        EXPECT_EQ(difference(x[0].grad(), y.detach()), "");
        return {y.detach()};
      });
}

TEST(BugBankCompile, DBL_1_TheSameTensorInTwoSlots) {
  Leaves leaves({torch::ones({})});
  expect_as_eager(
      leaves, [](const at::Tensor& a, const at::Tensor& b) { return a * 5 + b * 7; },
      [](auto& f, std::vector<at::Tensor>& x) -> Inputs {
        f(x[0], x[0]).backward();
        return {};
      });
  EXPECT_EQ(far(leaves.mine[0].grad(), {12}), "");
}

TEST(BugBankCompile, EXC_1_ABadLabelThrowsAndTheNextCallWorks) {
  Leaves leaves({torch::ones({2, 3})});
  auto bad = std::make_shared<int>(0);
  expect_as_eager(
      leaves, [](const at::Tensor& scores, const at::Tensor& y) { return torch::cross_entropy_loss(scores, y); },
      [bad](auto& f, std::vector<at::Tensor>& w) -> Inputs {
        const bool wrong = (*bad)++ / 2 % 3 == 2;
        const auto loss = f(w[0], torch::tensor({0, wrong ? 7 : 2}, at::kLong));
        loss.backward();
        return {loss.detach()};
      });
}

}  // namespace
}  // namespace tandem::test
