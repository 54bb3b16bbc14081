// A compiled function and the same one plain, each with a weight and host state of its own, called in turn and compared.
#pragma once

#include "tandem/tandem.h"
#include "tests/support/bugbank.h"

namespace tandem::test {

struct Host {
  bool flag = false;
  double factor = 1;
  int calls = 0;
  double seen = 0;
  at::Tensor kept, index;
};

struct Pair {
  template <class F>
  explicit Pair(F f, Options options = {.shadow_every = 1000}) {
    torch::manual_seed(3);
    for (int side = 0; side < 2; side++) {
      weights.push_back(torch::linspace(-1, 1, 12).view({3, 4}).clone().set_requires_grad(true));
      hosts.push_back(std::make_shared<Host>());
    }
    auto of = [&](int side) {
      return [f, w = weights[std::size_t(side)], h = hosts[std::size_t(side)]](const at::Tensor& x) {
        h->calls++;
        return f(w, *h, x);
      };
    };
    plain = of(1);
    auto shared = std::make_shared<decltype(compile(of(0)))>(compile(of(0), as_tested(options)));
    compiled = [shared](const at::Tensor& x) { return (*shared)(x); };
    report = [shared] { return shared->report(); };
  }
  void call(int i) {
    SCOPED_TRACE("call " + std::to_string(i));
    torch::manual_seed(i);
    const auto x = torch::randn({5, 3});
    torch::manual_seed(i);
    const auto mine = compiled(x);
    torch::manual_seed(i);
    const auto eagers = plain(x);
    EXPECT_TRUE(at::allclose(mine, eagers, 1e-5, 1e-6));
    EXPECT_EQ(mine.requires_grad(), eagers.requires_grad());
    if (!mine.requires_grad()) return;
    for (auto& w : weights) w.mutable_grad() = at::Tensor();
    mine.square().sum().backward();
    eagers.square().sum().backward();
    EXPECT_EQ(weights[0].grad().defined(), weights[1].grad().defined());
    if (weights[1].grad().defined()) {
      EXPECT_TRUE(at::allclose(weights[0].grad(), weights[1].grad(), 1e-5, 1e-5)) << weights[0].grad() - weights[1].grad();
    }
    EXPECT_EQ(hosts[0]->calls, hosts[1]->calls);
  }
  void set(const std::function<void(Host&)>& f) {
    for (auto& h : hosts) f(*h);
  }
  std::vector<at::Tensor> weights;
  std::vector<std::shared_ptr<Host>> hosts;
  std::function<at::Tensor(const at::Tensor&)> compiled, plain;
  std::function<Report()> report;
};

}  // namespace tandem::test
