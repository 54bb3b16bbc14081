// A small net with a closure that looks at host state, compiled and plain.
#pragma once

#include "tests/support/lockstep.h"

namespace tandem::test::replayed {

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(6, 9));
    second = register_module("second", torch::nn::Linear(9, 4));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

template <class Optimizer = torch::optim::Adam, class Settings = torch::optim::AdamOptions>
Toy toy_of(const std::shared_ptr<Net>& net, Loss loss, Settings settings = Settings(1e-2)) {
  torch::manual_seed(5);
  const at::NoGradGuard no_grad;
  for (auto& p : net->parameters()) p.uniform_(-0.5, 0.5);
  return {net, std::make_unique<Optimizer>(net->parameters(), settings), std::move(loss)};
}

inline Inputs batch(std::uint64_t i) {
  torch::manual_seed(100 + i);
  return {torch::randn({8, 6}), torch::randn({8, 4})};
}

/// The number of times that the closures of both sides have been called, and whatever else they look at.
struct Host {
  int calls = 0, loops = 1;
  double weight = 1;
  bool flag = false;
  at::Tensor kept, captured;
};

using Body = std::function<at::Tensor(Net& net, Host& host, const at::Tensor& x, const at::Tensor& y)>;

/// Two sides whose closures share one host state; it is moved on by the test between steps.
struct Case {
  explicit Case(Body body, Options options = watched()) : lockstep([this, body] { return make(body); }, options) {}
  Toy make(const Body& body) {
    auto net = std::make_shared<Net>();
    auto mine = std::make_shared<Host>();
    hosts.push_back(mine);
    return toy_of(net, [net, mine, body](const at::Tensor& x, const at::Tensor& y) -> Inputs {
      mine->calls++;
      return {body(*net, *mine, x, y)};
    });
  }
  void set(const std::function<void(Host&)>& f) {
    for (auto& h : hosts) f(*h);
  }
  Outcome step() { return lockstep.step(batch(std::uint64_t(++steps))); }
  std::vector<std::shared_ptr<Host>> hosts;
  int steps = 0;
  Lockstep lockstep;
};

inline at::Tensor mse(Net& net, const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(net.forward(x), y); }

}  // namespace tandem::test::replayed
