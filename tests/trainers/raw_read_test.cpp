// Host code that reads raw memory of what a replayed step has not computed: the step starts over, eager, and stays eager.
#include "tests/support/lockstep.h"
#include "tests/trainers/compile_pair.h"

#include <ATen/ops/choose_qparams_optimized.h>

namespace tandem::test {
namespace {

/// What bodies look at.
struct Net : torch::nn::Module {
  Net() {
    register_module("line", line);
    seen = register_buffer("seen", torch::zeros({4}));
  }
  torch::nn::Linear line{6, 4};
  at::Tensor seen;
  bool reads = false;
  double read = 0;
  int calls = 0;
};
using Body = std::function<at::Tensor(Net& net, const at::Tensor& x)>;

struct RawRead : testing::Test {
  static double memory_of(const at::Tensor& t) { return double(t.const_data_ptr<float>()[0]); }

  MakeToy toys(Body body) {
    return [this, body]() -> Toy {
      torch::manual_seed(3);
      auto net = std::make_shared<Net>();
      nets.push_back(net);
      auto loss = [net, body](const at::Tensor& x, const at::Tensor& y) -> Inputs {
        net->calls++;
        return {torch::mse_loss(body(*net, x), y)};
      };
      return {net, momentum_sgd(net->parameters()), loss};
    };
  }
  static Inputs batch(std::uint64_t i) {
    torch::manual_seed(100 + i);
    return {torch::randn({8, 6}), torch::randn({8, 4})};
  }
  /// Trains, reads in one step, trains on: nothing but the number of calls may show.
  void read_once(Body body, Options options = watched(), int micro = 0) {
    Lockstep both(toys(std::move(body)), options);
    both.steps(int(4 * options.accumulate) + micro, batch);
    EXPECT_TRUE(both.last().compiled) << both.report().to_string();
    for (auto& n : nets) n->reads = true;
    both.steps(1, batch);
    EXPECT_EQ(nets[0]->calls, nets[1]->calls + 1);
    EXPECT_EQ(nets[0]->read, nets[1]->read);
    EXPECT_EQ(events(both.report(), "rerun"), 1) << both.report().to_string();
    both.steps(3, batch);
    for (auto& n : nets) n->reads = false;
    both.steps(4, batch);
    EXPECT_LE(nets[0]->calls, nets[1]->calls + options.accumulate);
  }
  std::vector<std::shared_ptr<Net>> nets;
};

TEST_F(RawRead, BehindANumberThatTheHostHasRead) {
  read_once([](Net& net, const at::Tensor& x) {
    auto out = net.line(x);
    const auto scale = out.sum().item<double>();
    auto scaled = out * (scale < 1e6 ? 0.5 : 0.25);
    if (net.reads) net.read = memory_of(scaled);
    return scaled;
  });
}

TEST_F(RawRead, BehindANumberAndWhatWasWrittenAndDrawnBeforeIt) {
  read_once([](Net& net, const at::Tensor& x) {
    net.seen.mul_(0.5).add_(x.mean());
    auto out = torch::dropout(net.line(x), 0.3, true) + net.seen;
    net.seen.add_(out.sum().item<double>() < 1e6 ? 1 : 2);
    auto noisy = torch::dropout(out, 0.3, true);
    net.seen.add_(noisy.sum().item<double>() < 1e6 ? 1 : 2);
    auto last = noisy * net.seen;
    if (net.reads) net.read = memory_of(last);
    return last;
  });
}

TEST_F(RawRead, OfWhatTheStepWritesBehindANumber) {
  read_once([](Net& net, const at::Tensor& x) {
    net.seen.add_(1);
    auto out = net.line(x);
    const auto scale = out.sum().item<double>();
    net.seen.add_(scale < 1e6 ? 1 : 2);
    if (net.reads) net.read = memory_of(net.seen);
    return out * net.seen;
  });
}

TEST_F(RawRead, OfAGradientInAHook) {
  read_once([](Net& net, const at::Tensor& x) {
    net.seen.add_(1);
    auto out = net.line(x);
    out.register_hook([&net](const at::Tensor& g) {
      if (net.reads) net.read = memory_of(g);
      return g * 2;
    });
    return out + net.seen;
  });
}

TEST_F(RawRead, OfAGradientInAHookBehindAForwardThatMayThrow) {
  read_once([](Net& net, const at::Tensor& x) {
    net.seen.add_(1);
    auto out = net.line(x).index_select(0, torch::arange(8));
    out.register_hook([&net](const at::Tensor& g) {
      if (net.reads) net.read = memory_of(g);
      return g * 2;
    });
    return torch::dropout(out, 0.3, true) + net.seen;
  });
}

/// The hook runs when the gradient of the bias is there already.
TEST_F(RawRead, OfAGradientInAHookBehindOtherGradients) {
  const auto body = [](Net& net, const at::Tensor& x) {
    auto out = torch::tanh(x * net.line->weight.sum(0));
    out.register_hook([&net](const at::Tensor& g) {
      if (net.reads) net.read = memory_of(g);
      return g * 2;
    });
    return out.narrow(1, 0, 4) + net.line->bias;
  };
  read_once(body);
  auto zeroed = watched();
  zeroed.zero_grad_to_none = false;
  read_once(body, zeroed);
  auto accumulated = watched();
  accumulated.accumulate = 2;
  read_once(body, accumulated, 0);
  read_once(body, accumulated, 1);
}

/// The op reads its argument itself, in each step, so that the first replayed one finds out.
TEST_F(RawRead, InAnOpOfLibTorchsOwn) {
  Lockstep both(toys([](Net& net, const at::Tensor& x) {
    auto out = torch::dropout(net.line(x), 0.3, true);
    auto scaled = torch::dropout(out, 0.3, true) * (out.sum().item<double>() < 1e6 ? 0.5 : 0.25);
    net.read = memory_of(std::get<0>(at::choose_qparams_optimized(scaled.detach(), 2, 1, 0.8, 1)));
    return scaled;
  }));
  for (std::uint64_t i = 1; i < 7; i++) {
    both.step(batch(i));
    EXPECT_EQ(nets[0]->read, nets[1]->read);
  }
  EXPECT_EQ(nets[0]->calls, nets[1]->calls + 1);
  EXPECT_EQ(events(both.report(), "rerun"), 1) << both.report().to_string();
}

/// A user's own optimizer counts its steps: it is not called twice.
class CountingOptimizer : public torch::optim::Optimizer {
 public:
  CountingOptimizer(std::vector<at::Tensor> parameters, const Net& net)
      : Optimizer({torch::optim::OptimizerParamGroup(parameters)}, std::make_unique<torch::optim::SGDOptions>(0.1)), net_(net),
        parameters_(std::move(parameters)) {}
  at::Tensor step(LossClosure) override {
    const at::NoGradGuard no_grad;
    count++;
    for (auto& p : parameters_) p.sub_(p.grad() * 0.1);
    if (net_.reads) read = RawRead::memory_of(parameters_[0]);
    return {};
  }
  int count = 0;
  double read = 0;

 private:
  const Net& net_;
  std::vector<at::Tensor> parameters_;
};

TEST_F(RawRead, InAnOptimizerEndsTheStep) {
  auto net = std::make_shared<Net>();
  CountingOptimizer optimizer(net->parameters(), *net);
  auto step = TrainStep(
      net, optimizer, [net](const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(net->line(x), y); },
      as_tested({.shadow_every = 1000}));
  for (std::uint64_t i = 0; i < 4; i++) step.run(batch(i));
  ASSERT_TRUE(step.report().active) << step.report().to_string();
  net->reads = true;
  EXPECT_THROW(step.run(batch(4)), Error);
  EXPECT_EQ(optimizer.count, 5);
  step.run(batch(5));
  EXPECT_EQ(optimizer.count, 6);
  EXPECT_EQ(optimizer.read, RawRead::memory_of(net->parameters()[0]));
}

TEST(CompileRawRead, BehindANumberThatTheHostHasRead) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    auto hidden = x.mm(w);
    const auto scale = hidden.sum().item<double>();
    auto scaled = torch::dropout(hidden, 0.3, true) * (scale < 1e6 ? 0.5 : 0.25);
    if (h.flag) h.seen = double(scaled.const_data_ptr<float>()[0]);
    return scaled;
  });
  for (int i = 0; i < 6; i++) p.call(i);
  ASSERT_TRUE(p.report().active) << p.report().to_string();
  p.set([](Host& h) { h.flag = true; });
  p.hosts[0]->calls--;  // that of the rerun
  for (int i = 6; i < 10; i++) p.call(i);
  EXPECT_EQ(p.hosts[0]->seen, p.hosts[1]->seen);
}

}  // namespace
}  // namespace tandem::test
