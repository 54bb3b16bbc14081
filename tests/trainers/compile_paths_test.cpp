// Paths of a compiled function, numbers that move, values that its host waits for.
#include "tests/trainers/compile_pair.h"

#include <gtest/gtest.h>

namespace tandem::test {
namespace {

std::int64_t active_plans(const Report& r) {
  return std::count_if(r.plans.begin(), r.plans.end(), [](const PlanReport& p) { return p.active; });
}

TEST(CompilePaths, ABranchThatComesRarelyIsEagersFirst) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) { return h.flag ? torch::sigmoid(x.mm(w)) : torch::tanh(x.mm(w)); });
  for (int i = 0; i < 16; i++) {
    p.set([&](Host& h) { h.flag = i == 6; });
    p.call(i);
  }
  EXPECT_TRUE(p.report().active) << p.report().to_string();
  EXPECT_EQ(active_plans(p.report()), 1);
  EXPECT_GE(p.report().compiled_steps, 11);
}

TEST(CompilePaths, EachBranchGetsAPlan) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) { return h.flag ? torch::sigmoid(x.mm(w)) : torch::tanh(x.mm(w)); });
  for (int i = 0; i < 24; i++) {
    p.set([&](Host& h) { h.flag = i % 3 == 2; });
    p.call(i);
  }
  EXPECT_EQ(active_plans(p.report()), 2) << p.report().to_string();
  EXPECT_GE(p.report().compiled_steps, 16);
}

TEST(CompilePaths, ALoopOfChangingLengthIsAPathPerLength) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    auto y = x.mm(w);
    for (int k = 0; k < int(h.factor); k++) y = torch::tanh(y) * 0.5;
    return y;
  });
  for (int i = 0; i < 40; i++) {
    p.set([&](Host& h) { h.factor = 1 + i % 3; });
    p.call(i);
  }
  EXPECT_EQ(active_plans(p.report()), 3) << p.report().to_string();
}

TEST(CompilePaths, ANumberThatMovesInEachCallIsReadAnew) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) { return torch::tanh(x.mm(w) * h.factor); });
  for (int i = 0; i < 12; i++) {
    p.set([&](Host& h) { h.factor = 0.5 + 0.1 * i; });
    p.call(i);
  }
  const auto r = p.report();
  EXPECT_TRUE(r.active) << r.to_string();
  EXPECT_EQ(active_plans(r), 1) << r.to_string();
  EXPECT_GE(r.plans.back().run_time_numbers, 2) << "that of the forward, and what follows from it in the backward";
  EXPECT_GE(r.compiled_steps, 9);
}

TEST(CompilePaths, ANumberThatStartsToMoveIsRecordedOnceMore) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) { return torch::tanh(x.mm(w) * h.factor); });
  for (int i = 0; i < 24; i++) {
    p.set([&](Host& h) { h.factor = i < 6 ? 1 : 1 + 0.1 * i; });
    p.call(i);
  }
  const auto r = p.report();
  EXPECT_TRUE(r.active) << r.to_string();
  EXPECT_EQ(active_plans(r), 1);
  EXPECT_GE(r.compiled_steps, 18);
}

TEST(CompilePaths, TheSameMovingNumberInTwoPlaces) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    const auto y = x.mm(w);
    return torch::tanh(y * h.factor) + torch::sigmoid(y).mul(h.factor);
  });
  for (int i = 0; i < 12; i++) {
    p.set([&](Host& h) { h.factor = 0.5 + 0.1 * i; });
    p.call(i);
  }
  EXPECT_TRUE(p.report().active) << p.report().to_string();
}

TEST(CompilePaths, ATensorThatTheHostMakesInEachCall) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    return torch::tanh(x.mm(w)) * torch::tensor({h.factor, 1., 2., 3.}).to(at::kFloat);
  });
  for (int i = 0; i < 12; i++) {
    p.set([&](Host& h) { h.factor = 0.5 + i; });
    p.call(i);
  }
  EXPECT_TRUE(p.report().active) << p.report().to_string();
}

TEST(CompilePaths, ACapturedTensorThatIsAnotherInEachCall) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) { return torch::tanh(x.mm(w)) * h.kept; });
  for (int i = 0; i < 12; i++) {
    p.set([&](Host& h) { h.kept = torch::full({4}, 1. + i); });
    p.call(i);
  }
  EXPECT_TRUE(p.report().active) << p.report().to_string();
  EXPECT_GE(p.report().compiled_steps, 8) << p.report().to_string();
}

TEST(CompilePaths, AValueThatTheHostWaitsForIsABreak) {
  Pair p([](const at::Tensor& w, Host&, const at::Tensor& x) {
    const auto y = torch::tanh(x.mm(w));
    return y.mean().item<float>() > 0 ? y * 2 : torch::sigmoid(y);
  });
  for (int i = 0; i < 40; i++) p.call(i);
  const auto r = p.report();
  EXPECT_EQ(active_plans(r), 2) << r.to_string();
  EXPECT_GE(r.compiled_steps, 25);
  for (const auto& plan : r.plans) {
    if (!plan.active) continue;
    ASSERT_EQ(plan.breaks.size(), 1u) << r.to_string();
    EXPECT_NE(plan.breaks[0].node.find("_local_scalar_dense"), std::string::npos) << plan.breaks[0].node;
  }
}

TEST(CompilePaths, AValueThatEntersTheComputationAgain) {
  Pair p([](const at::Tensor& w, Host&, const at::Tensor& x) {
    const auto y = x.mm(w);
    return torch::tanh(y / y.detach().norm().item<float>());
  });
  for (int i = 0; i < 10; i++) p.call(i);
  EXPECT_TRUE(p.report().active) << p.report().to_string();
  EXPECT_GE(p.report().compiled_steps, 6);
}

TEST(CompilePaths, RandomNumbersBeforeAndAfterABreak) {
  Pair p([](const at::Tensor& w, Host&, const at::Tensor& x) {
    const auto y = torch::dropout(x.mm(w), 0.5, true);
    const auto scale = y.abs().max().item<float>() + 1;
    return torch::dropout(y / scale, 0.25, true);
  });
  for (int i = 0; i < 10; i++) p.call(i);
  EXPECT_TRUE(p.report().active) << p.report().to_string();
}

TEST(CompilePaths, AReadAtTheVeryEnd) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    auto y = torch::tanh(x.mm(w));
    h.seen = y.detach().sum().item<double>();
    return y;
  });
  for (int i = 0; i < 10; i++) {
    p.call(i);
    EXPECT_NEAR(p.hosts[0]->seen, p.hosts[1]->seen, 1e-4);
  }
  EXPECT_TRUE(p.report().active) << p.report().to_string();
}

TEST(CompilePaths, ARawReadCallsTheFunctionOnceMoreAndIsAGraphBreakThen) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    auto y = torch::tanh(x.mm(w));
    if (h.flag) h.seen = y.data_ptr<float>()[0];
    return y * 2;
  });
  for (int i = 0; i < 5; i++) p.call(i);
  EXPECT_TRUE(p.report().active);
  p.set([](Host& h) { h.flag = true; });
  const auto x = torch::randn({5, 3});
  EXPECT_TRUE(at::allclose(p.compiled(x), p.plain(x)));
  EXPECT_FLOAT_EQ(float(p.hosts[0]->seen), float(p.hosts[1]->seen));
  p.hosts[0]->calls = p.hosts[1]->calls;
  for (int i = 5; i < 10; i++) p.call(i);
  EXPECT_TRUE(p.report().active) << p.report().to_string();
  EXPECT_EQ(p.report().plans.back().breaks.size(), 1U) << p.report().to_string();
  EXPECT_NEAR(p.hosts[0]->seen, p.hosts[1]->seen, 1e-5);
}

TEST(CompilePaths, FullgraphMakesAnErrorOfABreak) {
  Pair p([](const at::Tensor& w, Host&, const at::Tensor& x) { return x.mm(w) * x.mm(w).max().item<float>(); }, {.fullgraph = true});
  try {
    p.compiled(torch::randn({5, 3}));
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Options::fullgraph"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("_local_scalar_dense"), std::string::npos) << e.what();
  }
}

TEST(CompilePaths, FailOnRecompileStopsBeforeAnythingRuns) {
  Pair p(
      [](const at::Tensor& w, Host& h, const at::Tensor& x) {
        h.kept.add_(1);
        return h.flag ? torch::sigmoid(x.mm(w)) : torch::tanh(x.mm(w)) + h.kept;
      },
      {.fail_on_recompile = true, .shadow_every = 1000});
  p.set([](Host& h) { h.kept = torch::zeros({4}); });
  for (int i = 0; i < 6; i++) p.call(i);
  ASSERT_TRUE(p.report().active) << p.report().to_string();
  const auto before = p.hosts[0]->kept.clone();
  const auto version = p.hosts[0]->kept._version();
  p.hosts[0]->flag = true;
  try {
    p.compiled(torch::randn({5, 3}));
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Options::fail_on_recompile"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(p.hosts[0]->kept.equal(before));
  EXPECT_EQ(p.hosts[0]->kept._version(), version);
  EXPECT_THROW(p.compiled(torch::randn({6, 3})), Error) << "another shape is a recompile, too";
}

TEST(CompilePaths, ABackwardThatRunsTheFunctionAgainSeesThatItsNumberIsAnother) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) { return torch::tanh(x.mm(w) * h.factor); });
  for (int i = 0; i < 6; i++) {
    p.set([&](Host& h) { h.factor = 0.5 + 0.1 * i; });
    p.call(i);
  }
  auto loss = p.compiled(torch::ones({5, 3})).square().sum();
  p.hosts[0]->factor = 7;
  try {
    torch::autograd::grad({loss}, {p.weights[0]}, {}, true, /*create_graph=*/true);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("another number"), std::string::npos) << e.what();
  }
  p.hosts[0]->factor = 1;
  EXPECT_TRUE(torch::autograd::grad({loss}, {p.weights[0]}, {}, true, true).at(0).defined());
}

TEST(CompilePaths, ABadIndexBehindABreakLeavesWhatEagerLeaves) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    h.kept.add_(1);
    const auto y = torch::tanh(x.mm(w));
    h.seen = y.detach().sum().item<double>();
    const auto picked = y.index_select(0, h.index);
    h.kept.mul_(2);
    return picked + h.kept;
  });
  p.set([](Host& h) {
    h.kept = torch::zeros({4});
    h.index = torch::tensor({0, 2, 1});
  });
  for (int i = 0; i < 6; i++) p.call(i);
  ASSERT_TRUE(p.report().active) << p.report().to_string();
  p.set([](Host& h) { h.index.fill_(99); });
  const auto x = torch::randn({5, 3});
  EXPECT_ANY_THROW(p.plain(x));
  EXPECT_ANY_THROW(p.compiled(x));
  EXPECT_TRUE(p.hosts[0]->kept.equal(p.hosts[1]->kept)) << p.hosts[0]->kept << p.hosts[1]->kept;
  EXPECT_EQ(p.hosts[0]->kept._version(), p.hosts[1]->kept._version());
  p.set([](Host& h) { h.index.fill_(1); });
  for (int i = 6; i < 9; i++) p.call(i);
  EXPECT_TRUE(p.report().active) << p.report().to_string();
}

TEST(CompilePaths, ShadowCallsRunThePlansOnCopies) {
  Pair p(
      [](const at::Tensor& w, Host& h, const at::Tensor& x) {
        h.kept.add_(1);
        return torch::dropout(torch::tanh(x.mm(w) * h.factor), 0.5, true) + h.kept;
      },
      {.shadow_every = 3});
  p.set([](Host& h) { h.kept = torch::zeros({4}); });
  for (int i = 0; i < 20; i++) {
    p.set([&](Host& h) { h.factor = 0.5 + 0.1 * i; });
    p.call(i);
    EXPECT_TRUE(p.hosts[0]->kept.equal(p.hosts[1]->kept));
  }
  EXPECT_GE(p.report().shadow_steps, 4);
  EXPECT_TRUE(p.report().active) << p.report().to_string();
}

}  // namespace
}  // namespace tandem::test
