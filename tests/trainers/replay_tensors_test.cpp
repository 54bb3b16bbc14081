// The tensors that a replayed closure sees: whose memory they have, and which objects they are.
#include "tests/support/lockstep.h"

#include <ATen/ops/lift_fresh.h>

namespace tandem::test {
namespace {

struct Counted : torch::nn::Module {
  Counted() {
    register_module("line", line);
    seen = register_buffer("seen", torch::zeros({4}));
  }
  torch::nn::Linear line{6, 4};
  at::Tensor seen;
};

using Body = std::function<at::Tensor(Counted& net, const at::Tensor& x)>;

MakeToy toys(Body body) {
  return [body]() -> Toy {
    torch::manual_seed(3);
    auto net = std::make_shared<Counted>();
    return {net, momentum_sgd(net->parameters()),
            [net, body](const at::Tensor& x, const at::Tensor& y) -> Inputs { return {torch::mse_loss(body(*net, x), y)}; }};
  };
}

Inputs batch(std::uint64_t i) {
  torch::manual_seed(100 + i);
  return {torch::randn({8, 6}), torch::randn({8, 4})};
}

TEST(ReplayTensors, RawMemoryAccessBehindAWriteIsARerunOnUnwrittenMemory) {
  bool reads = false;
  const auto body = [&](Counted& net, const at::Tensor& x) {
    net.seen.add_(1);
    auto out = net.line(x);
    return reads ? out * double(out.data_ptr<float>()[0]) : out;
  };
  Lockstep both(toys(body));
  both.activate(batch);
  reads = true;
  both.steps(3, batch);
  EXPECT_EQ(events(both.report(), "rerun"), 1) << both.report().to_string();
}

TEST(ReplayTensors, RawMemoryAccessToWhatTheStepWritesIsARerun) {
  bool reads = false;
  const auto body = [&](Counted& net, const at::Tensor& x) {
    net.seen.add_(1);
    return reads ? net.line(x) * double(net.seen.data_ptr<float>()[0]) : net.line(x);
  };
  Lockstep both(toys(body));
  both.activate(batch);
  reads = true;
  both.steps(3, batch);
  EXPECT_EQ(events(both.report(), "rerun"), 1) << both.report().to_string();
}

TEST(ReplayTensors, AnOpThatReturnsItsArgumentReturnsThatObject) {
  int same = 0, calls = 0;
  const auto body = [&](Counted& net, const at::Tensor& x) {
    auto out = net.line(x);
    const auto lifted = at::lift_fresh(out);
    calls++;
    same += lifted.is_same(out);
    return out.sigmoid() + lifted;
  };
  Lockstep both(toys(body));
  both.activate(batch);
  both.steps(2, batch);
  EXPECT_EQ(same, calls);
}

TEST(ReplayTensors, AWriteThroughAReturnedArgumentIsInBothGradients) {
  const auto body = [](Counted& net, const at::Tensor& x) {
    auto out = net.line(x);
    const auto lifted = at::lift_fresh(out);
    out.mul_(0.5);
    return lifted;
  };
  Lockstep both(toys(body));
  both.activate(batch);
  both.steps(3, batch);
}

TEST(ReplayTensors, ALeafThatTheStepMakesGoesWithItAtLevelFull) {
  auto options = watched();
  options.replay = Replay::full;
  Lockstep lockstep(toys([](Counted& net, const at::Tensor& x) {
                      const auto points = x.detach().requires_grad_(true);  // its gradient is nobody's
                      const auto u = net.line(points).tanh();
                      return u + torch::autograd::grad({u.sum()}, {points}, {}, true, true)[0].slice(1, 0, 4);
                    }),
                    options);
  int compiled = 0;
  for (int i = 0; i < 9; i++) compiled += lockstep.step(batch(std::uint64_t(i))).compiled;
  EXPECT_EQ(compiled, 6) << lockstep.report().to_string();
  for (const auto& e : lockstep.report().events) EXPECT_NE(e.kind, "path") << e.sentence;
}

TEST(ReplayTensors, WhatTheHostKeepsAndNoRecordingShowsIsEagersInTheEnd) {
  std::vector<std::shared_ptr<int>> calls;
  Lockstep lockstep([&] {
    auto count = std::make_shared<int>(0);
    auto kept = std::make_shared<at::Tensor>();
    calls.push_back(count);
    return toys([count, kept](Counted& net, const at::Tensor& x) {
      const auto h = net.line(x).tanh();
      // Not in the steps that are recorded: three at first, then each one behind a step that has kept it.
      *kept = *count >= 3 && *count % 2 == 1 ? h.detach().mul(2) : at::Tensor();
      if (*count % 2 == 0 || *count < 3) h.detach().mul(2);
      ++*count;
      return h;
    })();
  });
  for (int i = 0; i < 12; i++) lockstep.step(batch(std::uint64_t(i)));
  EXPECT_FALSE(lockstep.report().active);
  EXPECT_NE(lockstep.report().reason.find("the host keeps a tensor that the step made alive after its end"), std::string::npos)
      << lockstep.report().to_string();
}

}  // namespace
}  // namespace tandem::test
