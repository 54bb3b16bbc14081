// Host state of a compiled function: it is called each time, and a call that does something else is eager's.
#include "tests/trainers/compile_pair.h"

#include <gtest/gtest.h>

namespace tandem::test {
namespace {

TEST(CompileHost, TheFunctionIsCalledEachTime) {
  Pair p([](const at::Tensor& w, Host&, const at::Tensor& x) { return torch::tanh(x.mm(w)); });
  for (int i = 0; i < 8; i++) p.call(i);
  EXPECT_TRUE(p.report().active) << p.report().to_string();
  EXPECT_GE(p.report().compiled_steps, 4);
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
