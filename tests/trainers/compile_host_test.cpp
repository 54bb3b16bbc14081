// Host state of a compiled function: it is called each time, and a call that does something else is eager's.
#include "tandem/tandem.h"
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

struct Host {
  bool flag = false;
  double factor = 1;
  int calls = 0;
  at::Tensor kept;
};

/// The function, compiled and plain, each with a weight and a host of its own.
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
    const auto mine = compiled(x), eagers = plain(x);
    EXPECT_TRUE(at::allclose(mine, eagers, 1e-5, 1e-6));
    EXPECT_EQ(mine.requires_grad(), eagers.requires_grad());
    if (!mine.requires_grad()) return;
    for (auto& w : weights) w.mutable_grad() = at::Tensor();
    mine.square().sum().backward();
    eagers.square().sum().backward();
    EXPECT_EQ(weights[0].grad().defined(), weights[1].grad().defined());
    if (weights[1].grad().defined()) {
      EXPECT_TRUE(at::allclose(weights[0].grad(), weights[1].grad(), 1e-5, 1e-6));
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

TEST(CompileHost, TheFunctionIsCalledEachTime) {
  Pair p([](const at::Tensor& w, Host&, const at::Tensor& x) { return torch::tanh(x.mm(w)); });
  for (int i = 0; i < 8; i++) p.call(i);
  EXPECT_TRUE(p.report().active) << p.report().to_string();
  EXPECT_GE(p.report().compiled_steps, 4);
}

TEST(CompileHost, ABranchIsEagersAndThePlanGoesOnAfterwards) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) { return h.flag ? torch::sigmoid(x.mm(w)) : torch::tanh(x.mm(w)); });
  for (int i = 0; i < 16; i++) {
    p.set([&](Host& h) { h.flag = i == 6 || i == 9; });
    p.call(i);
  }
  EXPECT_TRUE(p.report().active) << p.report().to_string();
  EXPECT_GE(p.report().compiled_steps, 8);
}

TEST(CompileHost, ANumberThatChangesIsEagers) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) { return torch::tanh(x.mm(w) * h.factor); });
  for (int i = 0; i < 24; i++) {
    p.set([&](Host& h) { h.factor = i < 6 ? 1 : i; });
    p.call(i);
  }
  EXPECT_FALSE(p.report().active);
  EXPECT_NE(p.report().reason.find("is another number than in the recorded steps"), std::string::npos) << p.report().reason;
}

TEST(CompileHost, GradModeThatIsSwitchedOffInside) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    at::Tensor hidden;
    {
      const at::AutoGradMode mode(!h.flag);
      hidden = x.mm(w);
    }
    return torch::tanh(hidden) + w.sum();
  });
  for (int i = 0; i < 14; i++) {
    p.set([&](Host& h) { h.flag = i >= 6 && i < 9; });
    p.call(i);
  }
}

TEST(CompileHost, ATensorThatTheFunctionStartsToKeepHasItsData) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    auto hidden = x.mm(w);
    if (h.flag) h.kept = hidden.detach();
    return torch::tanh(hidden);
  });
  for (int i = 0; i < 12; i++) {
    p.set([&](Host& h) { h.flag = i >= 6; });
    p.call(i);
    if (i >= 6) {
      EXPECT_TRUE(at::allclose(p.hosts[0]->kept, p.hosts[1]->kept)) << i;
    }
  }
}

TEST(CompileHost, WhatTheFunctionThrowsComesThrough) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    auto hidden = x.mm(w);
    if (h.flag) throw std::runtime_error("the user's own");
    return torch::tanh(hidden);
  });
  for (int i = 0; i < 6; i++) p.call(i);
  p.set([](Host& h) { h.flag = true; });
  EXPECT_THROW(p.compiled(torch::randn({5, 3})), std::runtime_error);
  p.set([](Host& h) {
    h.flag = false;
    h.calls = 0;
  });
  for (int i = 6; i < 10; i++) p.call(i);
}

}  // namespace
}  // namespace tandem::test
