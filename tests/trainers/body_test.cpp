// The caller's whole step as one body: zero_grad, forward, backward, clipping and update are the caller's own code.
#include "tests/support/lockstep.h"

#include <torch/nn/utils/clip_grad.h>

namespace tandem::test {
namespace {

struct Mlp : torch::nn::Module {
  Mlp() {
    first = register_module("first", torch::nn::Linear(6, 9));
    second = register_module("second", torch::nn::Linear(9, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

Inputs batch(int i) {
  torch::manual_seed(300 + i);
  return {torch::randn({8, 6}), torch::randn({8, 4})};
}

/// One side: a model, whatever optimizes it, and the body.
struct Side {
  std::shared_ptr<Mlp> net;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> body;
};
using MakeSide = std::function<Side()>;

void expect_equal(Mlp& a, Mlp& b) {
  const auto x = a.named_parameters(), y = b.named_parameters();
  for (const auto& p : x) {
    const auto& other = y[p.key()];
    EXPECT_EQ(distance(p.value(), other, 2e-5), "") << p.key();
    EXPECT_EQ(p.value().grad().defined(), other.grad().defined());
    if (p.value().grad().defined()) {
      EXPECT_EQ(distance(p.value().grad(), other.grad(), 2e-5), "") << "gradient of " << p.key();
      p.value().grad().data().copy_(other.grad());
    }
    p.value().data().copy_(other);
  }
}

/// Steps both sides; how many of them were compiled.
int run(const MakeSide& make, int steps, Report& report, Options options = {.shadow_every = 1000}) {
  const auto fresh = [&] {
    torch::manual_seed(9);
    return make();
  };
  auto mine = fresh(), eager = fresh();
  TrainStep step(mine.body, as_tested(options));
  int compiled = 0;
  for (int i = 0; i < steps; i++) {
    const auto in = batch(i);
    torch::manual_seed(i);
    const auto expected = eager.body(in[0], in[1]);
    torch::manual_seed(i);
    const auto found = step(in[0], in[1]);
    SCOPED_TRACE("step " + std::to_string(i + 1) + (found.compiled ? " (compiled)" : " (eager)"));
    compiled += found.compiled;
    EXPECT_EQ(distance(found.loss, expected.detach(), 1e-5), "") << "loss";
    expect_equal(*mine.net, *eager.net);
  }
  report = step.report();
  return compiled;
}

template <class Optimizer, class Settings>
MakeSide with(Settings settings) {
  return [settings] {
    auto net = std::make_shared<Mlp>();
    auto optimizer = std::make_shared<Optimizer>(net->parameters(), settings);
    return Side{net, [net, optimizer](const at::Tensor& x, const at::Tensor& y) {
                  optimizer->zero_grad();
                  auto loss = torch::mse_loss(net->forward(x), y);
                  loss.backward();
                  optimizer->step();
                  return loss;
                }};
  };
}

TEST(WholeBody, Sgd) {
  Report r;
  EXPECT_GE(run(with<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9)), 8, r), 4) << r.to_string();
}

TEST(WholeBody, AdamReadsItsStepCountAnew) {
  Report r;
  EXPECT_GE(run(with<torch::optim::Adam>(torch::optim::AdamOptions(1e-2)), 8, r), 4) << r.to_string();
  EXPECT_EQ(active_plans(r), 1);
}

TEST(WholeBody, AHandWrittenAdam) {
  Report r;
  const MakeSide make = [] {
    auto net = std::make_shared<Mlp>();
    auto m = std::make_shared<std::vector<at::Tensor>>(), v = std::make_shared<std::vector<at::Tensor>>();
    for (const auto& p : net->parameters()) {
      m->push_back(torch::zeros_like(p).detach());
      v->push_back(torch::zeros_like(p).detach());
    }
    auto t = std::make_shared<int>(0);
    return Side{net, [=](const at::Tensor& x, const at::Tensor& y) {
                  for (auto& p : net->parameters()) p.mutable_grad() = at::Tensor();
                  auto loss = torch::mse_loss(net->forward(x), y);
                  loss.backward();
                  ++*t;
                  const at::NoGradGuard no_grad;
                  const double scale = 1e-2 * std::sqrt(1 - std::pow(0.999, *t)) / (1 - std::pow(0.9, *t));
                  auto parameters = net->parameters();
                  for (std::size_t i = 0; i < parameters.size(); i++) {
                    const auto g = parameters[i].grad();
                    (*m)[i].mul_(0.9).add_(g, 0.1);
                    (*v)[i].mul_(0.999).addcmul_(g, g, 0.001);
                    parameters[i].addcdiv_((*m)[i], (*v)[i].sqrt().add_(1e-8), -scale);
                  }
                  return loss;
                }};
  };
  EXPECT_GE(run(make, 9, r), 5) << r.to_string();
  EXPECT_EQ(active_plans(r), 1) << r.to_string();
}

TEST(WholeBody, TwoOptimizersAndTwoBackwards) {
  Report r;
  const MakeSide make = [] {
    auto net = std::make_shared<Mlp>();
    auto one = std::make_shared<torch::optim::SGD>(net->first->parameters(), torch::optim::SGDOptions(0.05));
    auto two = std::make_shared<torch::optim::Adam>(net->second->parameters(), torch::optim::AdamOptions(1e-2));
    return Side{net, [=](const at::Tensor& x, const at::Tensor& y) {
                  one->zero_grad();
                  auto first = net->forward(x).pow(2).mean();
                  first.backward();
                  one->step();
                  two->zero_grad();
                  auto loss = torch::mse_loss(net->forward(x), y);
                  loss.backward();
                  two->step();
                  return loss;
                }};
  };
  EXPECT_GE(run(make, 9, r), 4) << r.to_string();
}

TEST(WholeBody, GradientsThatAccumulateInPlace) {
  Report r;
  const MakeSide make = [] {
    auto net = std::make_shared<Mlp>();
    auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.05));
    return Side{net, [=](const at::Tensor& x, const at::Tensor& y) {
                  optimizer->zero_grad(false);
                  auto loss = torch::mse_loss(net->forward(x), y);
                  loss.backward();
                  torch::l1_loss(net->forward(x), y).backward();
                  optimizer->step();
                  return loss;
                }};
  };
  EXPECT_GE(run(make, 9, r), 4) << r.to_string();
}

TEST(WholeBody, DropoutDrawsTheCallersNumbers) {
  Report r;
  const MakeSide make = [] {
    auto net = std::make_shared<Mlp>();
    auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.05));
    return Side{net, [=](const at::Tensor& x, const at::Tensor& y) {
                  optimizer->zero_grad();
                  auto loss = torch::mse_loss(torch::dropout(net->forward(x), 0.3, true), y);
                  loss.backward();
                  optimizer->step();
                  return loss;
                }};
  };
  EXPECT_GE(run(make, 8, r), 4) << r.to_string();
}

TEST(WholeBody, ClippingByTheNormReadsItOnTheHost) {
  Report r;
  const MakeSide make = [] {
    auto net = std::make_shared<Mlp>();
    auto optimizer = std::make_shared<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(1e-2));
    return Side{net, [=](const at::Tensor& x, const at::Tensor& y) {
                  optimizer->zero_grad();
                  auto loss = torch::mse_loss(net->forward(x), y);
                  loss.backward();
                  torch::nn::utils::clip_grad_norm_(net->parameters(), 0.1);
                  optimizer->step();
                  return loss;
                }};
  };
  EXPECT_GE(run(make, 9, r), 4) << r.to_string();
}

TEST(WholeBody, OptionsThatTheBodyDoesItselfAreWrongUse) {
  auto body = [](const at::Tensor& x) { return x.sum(); };
  try {
    TrainStep step(body, {.accumulate = 2});
    ADD_FAILURE() << "expected an Error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "Options::accumulate: expected none where the body is the whole step and does it itself, found one");
  }
}

TEST(WholeBody, ABackwardThatReadsANumberIsReplayedInFull) {
  Report r;
  const MakeSide make = [] {
    auto net = std::make_shared<Mlp>();
    auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.05));
    return Side{net, [=](const at::Tensor& x, const at::Tensor& y) {
                  optimizer->zero_grad();
                  auto loss = torch::mse_loss(net->forward(x), y) + torch::min(net->second->bias) + torch::prod(net->first->bias);
                  loss.backward();
                  optimizer->step();
                  return loss;
                }};
  };
  run(make, 12, r);
}

TEST(ClosureWithReadsInBackward, GradientsAreThereAndRight) {
  std::vector<std::unique_ptr<torch::optim::SGD>> optimizers;
  auto side = [&](std::unique_ptr<TrainStep>& step, std::shared_ptr<Mlp>& net, bool compile) {
    torch::manual_seed(9);
    net = std::make_shared<Mlp>();
    optimizers.push_back(std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.05)));
    step = std::make_unique<TrainStep>(
        net, *optimizers.back(),
        [n = net](const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(n->forward(x), y) + torch::min(n->second->bias); },
        as_tested({.compile = compile, .keep_grads = true, .shadow_every = 1000}));
  };
  std::unique_ptr<TrainStep> mine, eager;
  std::shared_ptr<Mlp> net, other;
  side(mine, net, true);
  side(eager, other, false);
  for (int i = 0; i < 12; i++) {
    const auto in = batch(i);
    mine->run(in);
    eager->run(in);
    SCOPED_TRACE("step " + std::to_string(i + 1));
    expect_equal(*net, *other);
  }
}

}  // namespace
}  // namespace tandem::test
