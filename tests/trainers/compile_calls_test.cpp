// Where and how a compiled function is called: modes, shapes, other functions around it, threads, and what stays eager.
#include "tests/trainers/compile_scenario.h"
#include "tests/trainers/compile_twins.h"

#include <thread>

namespace tandem {
namespace {

using test::CallTwins;
using test::Expected;
using test::Inputs;
using test::leaf;
using test::normal;
using test::says;
using test::tell;
using test::thrown_by;

struct Net : torch::nn::Module {
  Net() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::relu(norm(torch::tanh(first(x))))); }
  torch::nn::Linear first{6, 8}, last{8, 4};
  torch::nn::BatchNorm1d norm{8};
};

Inputs backward_of(const at::Tensor& out, const Inputs& leaves) {
  out.sum().backward();
  Inputs all{out};
  for (const auto& t : leaves) all.push_back(t.grad());
  return all;
}

TEST(CompileCalls, TrainingEvaluationAndNoGradHavePlansOfTheirOwn) {
  CallTwins<Net> twins;
  for (int round = 0; round < 5; round++) {
    twins.for_both([](Net& net) { net.train(); });
    twins.call({normal({5, 6}, std::uint64_t(round))});
    twins.update();
    twins.for_both([](Net& net) { net.eval(); });
    twins.call({normal({5, 6}, 10)});
    const at::NoGradGuard no_grad;
    twins.call({normal({5, 6}, 20)});
    EXPECT_TRUE(round < 4 || twins.was_compiled());
    const c10::InferenceMode inference;
    twins.call({normal({5, 6}, 30)});
    EXPECT_TRUE(round < 4 || twins.was_compiled());
  }
  EXPECT_EQ(test::active_plans(twins.report()), 4) << twins.report().to_string();
}

TEST(CompileCalls, AWarmUpWithoutGradientsIsNotUsedForTraining) {
  torch::nn::Linear linear(2, 1);
  auto f = compile(linear);
  const auto x = normal({3, 2}, 1);
  for (int i = 0; i < 4; i++) {
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(f(x).requires_grad());
  }
  EXPECT_TRUE(f.report().active);
  const auto out = f(x);
  EXPECT_TRUE(out.requires_grad());
  out.sum().backward();
  EXPECT_TRUE(at::allclose(linear->weight.grad(), x.sum(0, true)));
}

TEST(CompileCalls, ATensorOfInferenceModeThrowsAsInEager) {
  torch::nn::Linear linear(2, 1);
  auto f = compile(linear);
  for (int i = 0; i < 4; i++) f(normal({3, 2}, 1)).sum().backward();
  EXPECT_TRUE(f.report().active);
  at::Tensor x;
  {
    const c10::InferenceMode inference;
    x = normal({3, 2}, 1);
  }
  const auto expected = thrown_by([&] { linear(x); });
  EXPECT_NE(expected.find("Inference tensors cannot be saved for backward"), std::string::npos) << expected;
  EXPECT_EQ(thrown_by([&] { f(x); }).substr(0, 60), expected.substr(0, 60));
}

TEST(CompileCalls, InferenceGivesInferenceTensors) {
  const auto f = [](const at::Tensor& x) { return torch::tanh(x * 2); };
  tell(f, {normal({4}, 1)}, [](auto& call, const Inputs& in) -> Inputs {
    const c10::InferenceMode inference;
    const auto out = call(in[0]);
    EXPECT_TRUE(out.is_inference());
    return {out};
  });
}

TEST(CompileCalls, FrozenAndThawedParameters) {
  CallTwins<Net> twins;
  for (int i = 0; i < 9; i++) {
    twins.for_both([&](Net& net) { net.first->weight.set_requires_grad(i % 3 != 1); });
    twins.call({normal({5, 6}, std::uint64_t(i))});
    twins.update();
  }
  EXPECT_TRUE(twins.was_compiled());
  EXPECT_EQ(test::active_plans(twins.report()), 2) << twins.report().to_string();
}

TEST(CompileCalls, EachShapeHasItsPlanAndNoMoreThanAllowed) {
  CallTwins<Net> twins(test::as_tested({.shadow_every = 1000, .max_plans = 2}));
  for (int i = 0; i < 12; i++) twins.call({normal({3 + i / 4, 6}, std::uint64_t(i))});
  EXPECT_LE(twins.report().plans.size(), 2U);
  EXPECT_EQ(test::events(twins.report(), "evicted"), 1);
}

TEST(CompileCalls, InsideAnUncompiledModel) {
  const auto inner = [](const at::Tensor& h, const at::Tensor& w) { return torch::gelu(h.matmul(w)); };
  tell(inner, {leaf({3, 4}, 1), leaf({4, 4}, 2), leaf({4}, 3)}, [](auto& f, const Inputs& in) -> Inputs {
    const auto h = torch::tanh(in[0] * in[2]);
    return backward_of(torch::sigmoid(f(f(h, in[1]), in[1]) + h), in);
  });
}

TEST(CompileCalls, AnInputThatWasComputedFromAParameterOfTheFunctionCountsOnce) {
  const auto f = [](const at::Tensor& h, const at::Tensor& w) { return torch::tanh(h * w) + h; };
  tell(f, {leaf({4}, 1), leaf({4}, 2)}, [](auto& call, const Inputs& in) { return backward_of(call(in[0] * in[1] * 2, in[1]), in); });
  tell(f, {leaf({4}, 1)}, [](auto& call, const Inputs& in) -> Inputs {
    const auto h = in[0] * 3;
    const auto first = torch::autograd::grad({call(h, h).sum()}, {in[0]}, {}, true, /*create_graph=*/true)[0];
    return backward_of(first * call(in[0], in[0]), in);
  });
}

TEST(CompileCalls, InsideATrainStepItIsAPartOfTheStep) {
  auto model = std::make_shared<Net>();
  auto f = compile(model);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  TrainStep step(
      *model, optimizer, [&](const at::Tensor& x) { return f(x).square().mean(); }, test::as_tested({.shadow_every = 1000}));
  for (std::uint64_t i = 0; i < 5; i++) step(normal({5, 6}, i));
  EXPECT_TRUE(step.report().active) << step.report().to_string();
  EXPECT_EQ(f.report().steps, 0);
}

TEST(CompileCalls, InsideAnotherCompiledFunction) {
  auto inner = compile([](const at::Tensor& x) { return torch::tanh(x) * x; }, test::calls());
  const auto outer = [&](const at::Tensor& x) { return inner(x) + inner(x * 2); };
  tell(outer, {leaf({4}, 1)}, [](auto& f, const Inputs& in) -> Inputs { return backward_of(f(in[0]), in); });
}

struct SinWithoutGradient : torch::autograd::Function<SinWithoutGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.sin(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, const torch::autograd::variable_list& g) {
    return {g[0] * 0};
  }
};

TEST(CompileCalls, AFunctionOfTheUsersOwnInsideStaysEagerAndOutsideDoesNotMatter) {
  const auto inside = [](const at::Tensor& x) { return SinWithoutGradient::apply(x * 2); };
  const auto report = tell(
      inside, {leaf({4}, 1)}, [](auto& f, const Inputs& in) { return backward_of(f(in[0]), in); }, Expected::eager);
  EXPECT_NE(report.reason.find("custom autograd::Function"), std::string::npos) << report.reason;
  const auto plain = [](const at::Tensor& x) { return torch::tanh(x * 2); };
  tell(plain, {leaf({4}, 1)}, [](auto& f, const Inputs& in) {
    return backward_of(SinWithoutGradient::apply(f(SinWithoutGradient::apply(in[0]) + in[0])) + f(in[0]), in);
  });
}

TEST(CompileCalls, OutputsThatNobodyCanDifferentiate) {
  const auto f = [](const at::Tensor& x) {
    const auto [values, places] = x.max(1);
    return std::tuple(values, places, x.detach() * 2);
  };
  tell(f, {leaf({3, 4}, 1)}, [](auto& call, const Inputs& in) -> Inputs {
    const auto [values, places, copy] = call(in[0]);
    EXPECT_FALSE(places.requires_grad());
    EXPECT_FALSE(copy.requires_grad());
    values.sum().backward();
    return {values, places, copy, in[0].grad()};
  });
}

TEST(CompileCalls, AnOutputThatIsAnInputStaysEager) {
  const auto f = [](const at::Tensor& x) { return std::pair(x * 2, x.view({-1})); };
  const auto report = tell(
      f, {leaf({3, 4}, 1)},
      [](auto& call, const Inputs& in) -> Inputs {
        const auto [one, two] = call(in[0]);
        (one.sum() + two.sum()).backward();
        return {one, two, in[0].grad()};
      },
      Expected::eager);
  EXPECT_NE(report.reason.find("is a view of, input '0'"), std::string::npos) << report.reason;
}

TEST(CompileCalls, NestedResultsComeBackAsTheyWere) {
  auto f = compile([](const at::Tensor& x) {
    return std::tuple(x * 2, std::vector<at::Tensor>{x + 1, x - 1, x * x}, std::pair(x.exp(), x.sin()));
  });
  for (int i = 0; i < 4; i++) {
    const auto x = normal({3}, 1);
    const auto [twice, list, pair] = f(x);
    ASSERT_EQ(list.size(), 3U);
    EXPECT_TRUE(at::allclose(list[2], x * x));
    EXPECT_TRUE(at::allclose(pair.second, x.sin()));
  }
  EXPECT_TRUE(f.report().active);
}

TEST(CompileCalls, AStateThatIsWrittenIsWrittenOnce) {
  auto count = torch::zeros({1});
  const auto f = [=](const at::Tensor& x) {
    const at::NoGradGuard no_grad;
    count.add_(1);
    return x * count;
  };
  auto compiled = compile(f);
  for (int i = 1; i <= 6; i++) {
    EXPECT_TRUE(at::allclose(compiled(torch::ones({2})), torch::full({2}, float(i))));
    EXPECT_EQ(count.item<float>(), float(i));
  }
  EXPECT_GT(compiled.report().compiled_steps, 0);
}

TEST(CompileCalls, AnInputThatIsWrittenInPlace) {
  const auto f = [](const at::Tensor& x, const at::Tensor& w) {
    const at::NoGradGuard no_grad;
    auto target = x;
    target.mul_(3);
    const at::AutoGradMode grad(true);
    return x.detach().clone() * w;
  };
  tell(f, {normal({4}, 1), leaf({4}, 2)}, [](auto& call, const Inputs& in) -> Inputs {
    const auto version = in[0]._version();
    const auto out = call(in[0], in[1]);
    EXPECT_EQ(in[0]._version(), version + 1);
    return {out, in[0], backward_of(out, {in[1]})[1]};
  });
}

TEST(CompileCalls, ABufferThatIsReadAndThenWritten) {
  auto buffer = torch::tensor({3.0F, 3.0F});
  const auto f = [buffer](const at::Tensor& x) {
    const auto scale = buffer * 2;
    const auto y = (x * scale).sum();
    const at::NoGradGuard no_grad;
    auto target = buffer;
    target.mul_(10);
    return y;
  };
  tell(f, {leaf({2}, 1)}, [&](auto& call, const Inputs& in) -> Inputs {
    buffer.fill_(3);
    return {backward_of(call(in[0]), in)[1], backward_of(call(in[0]), in)[1], buffer.clone()};
  });
}

TEST(CompileCalls, WhatTheBackwardNeedsGoesWithIt) {
  auto f = compile([](const at::Tensor& x) {
    const auto h = torch::tanh(x);
    return std::pair(h, (h * h).sum());
  });
  const auto x = leaf({64}, 1);
  for (int i = 0; i < 5; i++) f(x).second.backward();
  EXPECT_EQ(f.report().recompiles, 0) << f.report().to_string();
  ASSERT_TRUE(f.report().active) << f.report().to_string();
  // h is a result that the backward reads, too: its memory is used again once nobody needs it.
  const auto place = [](const std::pair<at::Tensor, at::Tensor>& result) { return result.first.const_data_ptr(); };
  auto loss = f(x).second;
  const void* first = nullptr;
  {
    auto result = f(x);
    first = place(result);
    loss = result.second;
  }
  EXPECT_NE(place(f(x)), first) << "while the graph lives";
  loss.backward();
  const auto one = f(x), two = f(x);
  EXPECT_TRUE(place(one) == first || place(two) == first) << "the loss alone keeps nothing";
}

TEST(CompileCalls, AShadowCallNoticesHostState) {
  double factor = 2;
  auto f = compile([&](const at::Tensor& x) { return x * factor; }, {.replay = Replay::trusted, .shadow_every = 3});
  for (int i = 0; i < 3; i++) f(torch::ones({2}));
  EXPECT_TRUE(f.report().active);
  factor = 3;
  for (int i = 0; i < 3; i++) f(torch::ones({2}));
  EXPECT_FALSE(f.report().active);
  EXPECT_TRUE(says(f.report(), "does the function depend on host state")) << f.report().to_string();
  EXPECT_TRUE(at::allclose(f(torch::ones({2})), torch::full({2}, 3.0)));
}

TEST(CompileCalls, WhatEagerThrowsComesThrough) {
  const auto f = [](const at::Tensor& table, const at::Tensor& ids) { return torch::embedding(table, ids).tanh(); };
  auto compiled = compile(f);
  const auto table = leaf({4, 2}, 1);
  const auto good = torch::tensor({1, 2, 3}, at::kLong), bad = torch::tensor({1, 2, 4}, at::kLong);
  for (int i = 0; i < 4; i++) compiled(table, good).sum().backward();
  EXPECT_TRUE(compiled.report().active) << compiled.report().to_string();
  EXPECT_EQ(thrown_by([&] { compiled(table, bad); }), thrown_by([&] { f(table, bad); }));
  table.mutable_grad() = at::Tensor();
  compiled(table, good).sum().backward();
  EXPECT_TRUE(table.grad().defined());
}

TEST(CompileCalls, ALeafThatTheFunctionCapturesGetsItsGradient) {
  const auto w = leaf({4}, 1);
  auto f = compile([w](const at::Tensor& x) { return (x * w).tanh(); });
  for (std::uint64_t i = 0; i < 5; i++) {
    w.mutable_grad() = at::Tensor();
    const auto x = normal({4}, i);
    f(x).sum().backward();
    EXPECT_TRUE(at::allclose(w.grad(), x * (1 - (x * w.detach()).tanh().square()))) << i;
  }
  EXPECT_TRUE(f.report().active) << f.report().to_string();
}

TEST(CompileCalls, ModulesByHolderPointerAndReference) {
  torch::nn::Sequential holder(torch::nn::Linear(6, 4), torch::nn::Tanh());
  const auto pointer = std::make_shared<Net>();
  Net net;
  auto by_holder = compile(holder);
  auto by_pointer = compile(pointer);
  auto by_reference = compile(net);
  for (int i = 0; i < 4; i++) {
    by_holder(normal({5, 6}, 1)).sum().backward();
    by_pointer(normal({5, 6}, 1)).sum().backward();
    by_reference(normal({5, 6}, 1)).sum().backward();
  }
  EXPECT_TRUE(by_holder.report().active) << by_holder.report().to_string();
  EXPECT_TRUE(by_pointer.report().active) << by_pointer.report().to_string();
  EXPECT_TRUE(by_reference.report().active) << by_reference.report().to_string();
  EXPECT_THROW(compile(std::shared_ptr<Net>()), Error);
}

TEST(CompileCalls, OptionsThatMakeNoSenseAreRefused) {
  EXPECT_THROW(compile([](const at::Tensor& x) { return x * 2; }, {.max_plans = 0}), Error);
}

/// The parameters after some steps of a model that draws nothing: the default generator belongs to all threads.
Inputs trained(const std::shared_ptr<Net>& net, std::int64_t rows) {
  std::uint64_t seed = 0;
  {
    const at::NoGradGuard no_grad;
    for (auto& p : net->parameters()) p.copy_(normal(p.sizes(), ++seed));
  }
  auto f = compile(net, test::calls());
  for (std::uint64_t i = 0; i < 40; i++) {
    for (auto& p : net->parameters()) p.mutable_grad() = at::Tensor();
    f(normal({rows, 6}, i)).square().mean().backward();
    const at::NoGradGuard no_grad;
    for (auto& p : net->parameters()) p.sub_(p.grad(), 0.05);
  }
  EXPECT_TRUE(f.report().active) << f.report().to_string();
  return net->parameters();
}

TEST(CompileCalls, TwoThreadsTrainModelsOfTheirOwn) {
  const auto fresh = [] { return std::make_shared<Net>(); };
  const auto alone_three = trained(fresh(), 3), alone_five = trained(fresh(), 5);
  Inputs three, five;
  std::thread one([&, net = fresh()] { three = trained(net, 3); }), two([&, net = fresh()] { five = trained(net, 5); });
  one.join();
  two.join();
  for (std::size_t i = 0; i < three.size(); i++) {
    EXPECT_TRUE(at::equal(three[i], alone_three[i])) << i;
    EXPECT_TRUE(at::equal(five[i], alone_five[i])) << i;
  }
}

TEST(CompileCalls, TwoThreadsTakeTurnsOnOneFunction) {
  const auto w = leaf({4, 4}, 1);
  auto f = compile([w](const at::Tensor& x) { return torch::tanh(x.matmul(w)); });
  const auto x = normal({3, 4}, 1);
  for (int i = 0; i < 4; i++) f(x).sum().backward();
  const auto expected = torch::tanh(x.matmul(w)).detach();
  auto work = [&] {
    for (int i = 0; i < 50; i++) {
      const auto in = x.detach().clone().requires_grad_(true);
      const auto out = f(in);
      ASSERT_TRUE(at::allclose(out, expected));
      ASSERT_TRUE(torch::autograd::grad({out.sum()}, {in})[0].defined());
    }
  };
  std::thread one(work), two(work);
  one.join();
  two.join();
}

}  // namespace
}  // namespace tandem
