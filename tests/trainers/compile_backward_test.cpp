// The backward of a compiled call is an ordinary autograd node: what eager allows it allows, what eager refuses it refuses in the same words.
#include "tests/trainers/compile_scenario.h"

namespace tandem {
namespace {

using test::Expected;
using test::Inputs;
using test::leaf;
using test::normal;
using test::numbers;
using test::tell;
using test::thrown_by;

constexpr const char* overwritten = "modified by an inplace operation";
constexpr const char* twice = "Trying to backward through the graph a second time";

const auto cube = [](const at::Tensor& w) { return w * w * w; };
const auto product = [](const at::Tensor& a, const at::Tensor& b) { return a * b; };

TEST(CompileBackward, RetainsTheGraphAndThrowsOnceItIsFreed) {
  tell(cube, {numbers({2}).requires_grad_(true)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto loss = f(in[0]);
    loss.backward({}, /*retain_graph=*/true);
    const auto first = in[0].grad().clone();
    loss.backward();
    const auto second = in[0].grad().clone();
    EXPECT_NE(thrown_by([&] { loss.backward(); }).find(twice), std::string::npos);
    EXPECT_EQ(first.template item<float>(), 12);
    EXPECT_EQ(in[0].grad().template item<float>(), 24);
    return {first, second, in[0].grad()};
  });
}

TEST(CompileBackward, OfADetachedPassThenOfAnAttachedOne) {
  tell(product, {numbers({2}).requires_grad_(true), numbers({3}).requires_grad_(true)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto fake = in[0] * 5;
    f(fake.detach(), in[1]).backward();
    const auto g = in[0].grad(), d = in[1].grad().clone();
    EXPECT_FALSE(g.defined());
    f(fake, in[1]).backward();
    return {g, d, in[0].grad(), in[1].grad()};
  });
}

TEST(CompileBackward, ThrowsWhenAParameterWasUpdatedInBetween) {
  tell(product, {numbers({10}).requires_grad_(true), numbers({3}).requires_grad_(true)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto out = f(in[0], in[1]);
    {
      const at::NoGradGuard no_grad;
      in[1].sub_(1);
    }
    const auto text = thrown_by([&] { out.backward(); });
    EXPECT_NE(text.find(overwritten), std::string::npos) << text;
    return {in[0].grad(), in[1].grad()};
  });
}

TEST(CompileBackward, ThrowsWhenAnInputWasOverwrittenInBetween) {
  const auto linear = [](const at::Tensor& x, const at::Tensor& w) { return x.matmul(w); };
  for (const bool deep : {false, true})
    tell(linear, {normal(deep ? at::IntArrayRef{2, 3, 3} : at::IntArrayRef{3, 3}, 1), leaf({3, 3}, 2)},
         [](auto& f, const Inputs& in) -> Inputs {
           const auto out = f(in[0], in[1]);
           in[0].copy_(normal(in[0].sizes(), 7));
           EXPECT_NE(thrown_by([&] { out.sum().backward(); }).find(overwritten), std::string::npos);
           f(in[0], in[1]).sum().backward();  // and not when nothing changes
           return {in[1].grad()};
         });
}

TEST(CompileBackward, DoesNotMindThatWhatEagerDoesNotSaveIsOverwritten) {
  const auto affine = [](const at::Tensor& x, const at::Tensor& b) { return torch::tanh(x + b); };
  tell(affine, {leaf({4, 3}, 1), leaf({3}, 2)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto out = f(in[0], in[1]);
    {
      const at::NoGradGuard no_grad;
      in[1].mul_(3);
      in[0].zero_();
    }
    out.sum().backward();
    return {out, in[0].grad(), in[1].grad()};
  });
}

TEST(CompileBackward, ThrowsWhenASavedOutputWasOverwritten) {
  const auto squash = [](const at::Tensor& x) { return torch::sigmoid(x); };
  tell(squash, {leaf({4}, 1)}, [](auto& f, const Inputs& in) -> Inputs {
    auto out = f(in[0]);
    {
      const at::NoGradGuard no_grad;
      out.mul_(2);
    }
    EXPECT_NE(thrown_by([&] { out.sum().backward(); }).find(overwritten), std::string::npos);
    return {out};
  });
}

TEST(CompileBackward, AnOutputThatIsChangedInPlaceGoesOnAsInEager) {
  const auto scaled = [](const at::Tensor& x) { return torch::relu(x * 3) + 1; };
  tell(scaled, {leaf({4}, 1)}, [](auto& f, const Inputs& in) -> Inputs {
    auto out = f(in[0]);
    out.mul_(2);
    out.sum().backward();
    return {out, in[0].grad()};
  });
}

TEST(CompileBackward, PartsOfAnOutputOneBackwardEach) {
  const auto twofold = [](const at::Tensor& w) { return w * 2; };
  tell(twofold, {numbers({1, 2, 3}).requires_grad_(true)}, [](auto& f, const Inputs& in) -> Inputs {
    for (const auto& part : f(in[0]).unbind(0)) part.backward();
    return {in[0].grad()};
  });
  const auto square = [](const at::Tensor& v) { return v * v; };
  tell(square, {numbers({1, 2, 3}).requires_grad_(true)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto parts = f(in[0]).unbind(0);
    parts[0].backward();
    EXPECT_NE(thrown_by([&] { parts[1].backward(); }).find(twice), std::string::npos);
    return {in[0].grad()};
  });
}

TEST(CompileBackward, PartsThatTheFunctionItselfReturnsStayEager) {
  const auto parts = [](const at::Tensor& w) { return (w * 2).unbind(0); };
  const auto report = tell(
      parts, {numbers({1, 2, 3}).requires_grad_(true)},
      [](auto& f, const Inputs& in) -> Inputs {
        for (const auto& part : f(in[0])) part.backward();
        return {in[0].grad()};
      },
      Expected::eager);
  EXPECT_NE(report.reason.find("shares memory with another output"), std::string::npos) << report.reason;
}

const auto pair_of_sums = [](const at::Tensor& a, const at::Tensor& b) { return std::tuple(a * 2, b.exp() * 3); };

TEST(CompileBackward, AnOutputThatIsNotUsedCostsNothingAndGivesNothing) {
  const auto report = tell(pair_of_sums, {leaf({3}, 1), leaf({3}, 2)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto [one, two] = f(in[0], in[1]);
    one.sum().backward();
    EXPECT_FALSE(in[1].grad().defined());
    return {one, two, in[0].grad(), in[1].grad()};
  });
  EXPECT_LE(report.plans.back().nodes_backward, 1) << report.to_string();
}

TEST(CompileBackward, ADefinedZeroIsNoMissingGradient) {
  const auto sum = [](const at::Tensor& a, const at::Tensor& c) { return 2 * a + 0 * c; };
  tell(sum, {leaf({3}, 1), leaf({3}, 2)}, [](auto& f, const Inputs& in) -> Inputs {
    f(in[0], in[1]).sum().backward();
    EXPECT_TRUE(in[1].grad().defined());
    return {in[0].grad(), in[1].grad()};
  });
}

TEST(CompileBackward, OfEachOutputAlone) {
  tell(pair_of_sums, {leaf({3}, 1), leaf({3}, 2)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto [one, two] = f(in[0], in[1]);
    one.sum().backward();
    const auto after_one = in[0].grad().clone();
    two.sum().backward();  // the two have no node in common: nothing was freed
    return {after_one, in[0].grad(), in[1].grad()};
  });
  const auto joined = [](const at::Tensor& a) {
    const auto square = a * a;
    return std::pair(square.exp(), square.sin());
  };
  tell(joined, {leaf({3}, 1)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto [one, two] = f(in[0]);
    one.sum().backward();
    EXPECT_NE(thrown_by([&, &second = two] { second.sum().backward(); }).find(twice), std::string::npos);
    const auto [three, four] = f(in[0]);
    three.sum().backward({}, true);
    four.sum().backward();
    return {in[0].grad()};
  });
}

TEST(CompileBackward, WhichOutputsAreUsedMayChangeFromCallToCall) {
  int n = 0;
  tell(pair_of_sums, {leaf({3}, 1), leaf({3}, 2)}, [&](auto& f, const Inputs& in) -> Inputs {
    const auto [one, two] = f(in[0], in[1]);
    switch (n++ / 2 % 3) {
      case 0: one.sum().backward(); break;
      case 1: two.sum().backward(); break;
      default: (one + two).sum().backward();
    }
    return {in[0].grad(), in[1].grad()};
  });
}

TEST(CompileBackward, AccumulatesIntoOneGradientThatNoPlanOwns) {
  const auto micro = [](const at::Tensor& w, const at::Tensor& m) { return (w * m / 4).sum(); };
  tell(micro, {numbers({1}).requires_grad_(true)}, [](auto& f, const Inputs& in) -> Inputs {
    at::Tensor handle;
    for (int m = 1; m <= 4; m++) {
      f(in[0], numbers({float(m)})).backward();
      if (m == 1) handle = in[0].grad();
    }
    EXPECT_EQ(handle.const_data_ptr(), in[0].grad().const_data_ptr());
    EXPECT_EQ(handle.template item<float>(), 2.5F);
    return {in[0].grad()};
  });
}

TEST(CompileBackward, GradientsThatTheCallerKeepsStayAsTheyWere) {
  const auto scaled = [](const at::Tensor& w, const at::Tensor& x) { return (w * x).tanh(); };
  tell(scaled, {leaf({8}, 1)}, [](auto& f, const Inputs& in) -> Inputs {
    Inputs kept;
    for (std::uint64_t i = 0; i < 5; i++) {
      in[0].mutable_grad() = at::Tensor();
      f(in[0], normal({8}, i)).sum().backward();
      kept.push_back(in[0].grad());
    }
    return kept;
  });
}

TEST(CompileBackward, AGradientThatIsTheTangentItself) {
  const auto add = [](const at::Tensor& a, const at::Tensor& b) { return a + b; };
  tell(add, {leaf({3}, 1), leaf({3}, 2)}, [](auto& f, const Inputs& in) -> Inputs {
    f(in[0], in[1]).backward(numbers({1, 2, 3}));
    EXPECT_NE(in[0].grad().const_data_ptr(), in[1].grad().const_data_ptr());
    in[0].mutable_grad().mul_(10);
    return {in[0].grad(), in[1].grad()};
  });
}

TEST(CompileBackward, AHookOnALeafRunsOncePerBackward) {
  int calls = 0;
  const auto sum = [](const at::Tensor& w) { return 2 * w + 3 * w; };
  tell(sum, {numbers({1}).requires_grad_(true)}, [&](auto& f, const Inputs& in) -> Inputs {
    calls = 0;
    in[0].register_hook([&](const at::Tensor& g) {
      calls++;
      return g * 10;
    });
    f(in[0]).backward();
    const auto first = in[0].grad().clone();
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(first.template item<float>(), 50);
    (in[0] * 1).backward();
    EXPECT_EQ(calls, 2);
    return {first, in[0].grad()};
  });
}

TEST(CompileBackward, HooksAndRetainedGradientsOfOutputsAndInputs) {
  const auto twofold = [](const at::Tensor& z) { return 2 * z; };
  tell(twofold, {numbers({1}).requires_grad_(true)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto before = in[0] * 1;
    before.retain_grad();
    const auto h = f(before);
    h.retain_grad();
    h.register_hook([](const at::Tensor& g) { return g + 1; });
    (h * h).backward();
    EXPECT_EQ(h.grad().template item<float>(), 5);
    EXPECT_EQ(in[0].grad().template item<float>(), 10);
    return {h.grad(), before.grad(), in[0].grad()};
  });
}

TEST(CompileBackward, AHookInsideTheFunctionStaysEager) {
  const auto hooked = [](const at::Tensor& z) {
    auto h = 2 * z;
    h.register_hook([](const at::Tensor& g) { return g + 1; });
    return h * h;
  };
  const auto report = tell(
      hooked, {numbers({1}).requires_grad_(true)},
      [](auto& f, const Inputs& in) -> Inputs {
        f(in[0]).backward();
        return {in[0].grad()};
      },
      Expected::eager);
  EXPECT_NE(report.reason.find("has a hook"), std::string::npos) << report.reason;
}

TEST(CompileBackward, GradientsOfSomeInputsOnly) {
  tell(product, {leaf({3}, 1), leaf({3}, 2)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto out = f(in[0], in[1]).sum();
    auto one = torch::autograd::grad({out}, {in[1]}, {}, /*retain_graph=*/true);
    auto both = torch::autograd::grad({out}, {in[0], in[1]});
    EXPECT_FALSE(in[0].grad().defined());
    return {one[0], both[0], both[1]};
  });
}

TEST(CompileBackward, OfTheBackwardRunsInEager) {
  const auto report = tell(cube, {leaf({4}, 3)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto first = torch::autograd::grad({f(in[0]).sum()}, {in[0]}, {}, true, /*create_graph=*/true)[0];
    const auto second = torch::autograd::grad({(first * first).sum()}, {in[0]})[0];
    (f(in[0] * 2).sum() + first.sum()).backward();
    return {first, second, in[0].grad()};
  });
  EXPECT_TRUE(test::says(report, "create_graph")) << report.to_string();
}

TEST(CompileBackward, OfTheBackwardOfRandomNumbersAndBuffersRepeatsTheForward) {
  auto seen = torch::zeros({4});
  const auto noisy = [=](const at::Tensor& x) mutable {
    {
      const at::NoGradGuard no_grad;
      seen.add_(x.detach());
    }
    return torch::dropout(x * x * x, 0.5, true) * seen.clone();
  };
  tell(noisy, {leaf({4}, 3)}, [&](auto& f, const Inputs& in) -> Inputs {
    seen.zero_();
    const auto out = f(in[0]);
    const auto first = torch::autograd::grad({out.sum()}, {in[0]}, {}, true, true)[0];
    first.sum().backward();
    return {out, first, in[0].grad(), seen.clone()};
  });
}

}  // namespace
}  // namespace tandem
