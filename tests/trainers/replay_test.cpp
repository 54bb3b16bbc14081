// The host replay check: the closure runs in each compiled step, and what it does on the host counts.
#include "tests/trainers/replay_case.h"

namespace tandem::test::replayed {
namespace {

TEST(Replay, TheClosureIsCalledOnceInEachStep) {
  Case c([](Net& net, Host&, const at::Tensor& x, const at::Tensor& y) { return mse(net, x, y); });
  for (int i = 0; i < 10; i++) c.step();
  EXPECT_TRUE(c.lockstep.report().active) << c.lockstep.report().to_string();
  EXPECT_EQ(c.hosts[0]->calls, 10);
  EXPECT_EQ(c.hosts[0]->calls, c.hosts[1]->calls);
}

TEST(Replay, ALossWeightThatChangesInEachStepIsOneNumberOfOnePlan) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) { return mse(net, x, y) * h.weight; });
  int compiled = 0;
  for (int i = 0; i < 12; i++) {
    c.set([&](Host& h) { h.weight = 1.0 / (1 + i); });
    compiled += c.step().compiled;
  }
  EXPECT_GE(compiled, 8) << c.lockstep.report().to_string();
  EXPECT_EQ(active_plans(c.lockstep.report()), 1);
}

TEST(Replay, ANumberThatChangesLateIsReadAnewFromThenOn) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) { return mse(net, x, y) * h.weight; });
  int compiled = 0;
  for (int i = 0; i < 14; i++) {
    if (i >= 6) c.set([&](Host& h) { h.weight = 0.5 + i; });
    compiled += c.step().compiled;
  }
  EXPECT_GE(compiled, 9) << c.lockstep.report().to_string();
  EXPECT_EQ(active_plans(c.lockstep.report()), 1);
}

TEST(Replay, AWholeNumberThatChanges) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) { return mse(net, x, y) * std::int64_t(h.loops); });
  int compiled = 0;
  for (int i = 0; i < 10; i++) {
    c.set([&](Host& h) { h.loops = 2 + i; });
    compiled += c.step().compiled;
  }
  EXPECT_GE(compiled, 6) << c.lockstep.report().to_string();
}

TEST(Replay, ABranchOnHostStateIsAnotherPath) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    return h.flag ? mse(net, x, y) : torch::l1_loss(net.forward(x), y);
  });
  int compiled = 0;
  for (int i = 0; i < 20; i++) {
    c.set([&](Host& h) { h.flag = i >= 6 && i % 2; });
    compiled += c.step().compiled;
  }
  EXPECT_GE(compiled, 12) << c.lockstep.report().to_string();
  EXPECT_EQ(active_plans(c.lockstep.report()), 2) << c.lockstep.report().to_string();
}

TEST(Replay, ALoopCountThatChanges) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    auto out = net.forward(x);
    for (int k = 0; k < h.loops; k++) out = torch::sin(out);
    return torch::mse_loss(out, y);
  });
  for (int i = 0; i < 24; i++) {
    c.set([&](Host& h) { h.loops = 1 + i % 3; });
    c.step();
  }
  EXPECT_EQ(active_plans(c.lockstep.report()), 3) << c.lockstep.report().to_string();
}

TEST(Replay, ATensorThatTheClosureKeepsHasItsData) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    auto out = net.forward(x);
    h.kept = out.detach();
    return torch::mse_loss(out, y);
  });
  int compiled = 0;
  for (int i = 0; i < 8; i++) {
    compiled += c.step().compiled;
    EXPECT_EQ(distance(c.hosts[0]->kept, c.hosts[1]->kept, 1e-5), "");
  }
  EXPECT_GE(compiled, 4) << c.lockstep.report().to_string();
}

TEST(Replay, ATensorThatTheClosureStartsToKeepHasItsDataAtOnce) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    auto out = net.forward(x);
    if (h.flag) h.kept = out.detach();
    return torch::mse_loss(out, y);
  });
  int compiled = 0;
  for (int i = 0; i < 12; i++) {
    c.set([&](Host& h) { h.flag = i >= 5; });
    compiled += c.step().compiled;
    EXPECT_EQ(i < 5 ? "" : distance(c.hosts[0]->kept, c.hosts[1]->kept, 1e-5), "") << i;
  }
  EXPECT_GE(compiled, 5) << c.lockstep.report().to_string();
}

TEST(Replay, ACapturedTensorThatIsAnotherInEachStep) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(net.forward(x) + h.captured, y); });
  int compiled = 0;
  for (int i = 0; i < 8; i++) {
    c.set([&](Host& h) {
      torch::manual_seed(i);
      h.captured = torch::randn({8, 4});
    });
    compiled += c.step().compiled;
  }
  EXPECT_GE(compiled, 5) << c.lockstep.report().to_string();
}

TEST(Replay, GradModeThatIsSwitchedOffForAPart) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    at::Tensor hidden;
    {
      at::AutoGradMode mode(!h.flag);
      hidden = net.first(x);
    }
    return torch::mse_loss(net.second(torch::tanh(hidden)), y);
  });
  for (int i = 0; i < 14; i++) {
    c.set([&](Host& h) { h.flag = i >= 6 && i < 10; });
    c.step();
  }
}

TEST(Replay, AHookOnAnIntermediateRunsInEachStep) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    auto out = net.forward(x);
    out.register_hook([&h](const at::Tensor& g) {
      h.loops++;
      return g * 2;
    });
    return torch::mse_loss(out, y);
  });
  int compiled = 0;
  for (int i = 0; i < 8; i++) compiled += c.step().compiled;
  EXPECT_EQ(c.hosts[0]->loops, 9);
  EXPECT_GE(compiled, 4) << c.lockstep.report().to_string();
  EXPECT_EQ(c.lockstep.report().plans.back().replay, "full");
}

TEST(Replay, RawMemoryAccessIsOneRerunAndThenAGraphBreak) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    auto out = net.forward(x);
    if (h.flag) h.weight = double(out.data_ptr<float>()[0]);
    return torch::mse_loss(out, y);
  });
  int compiled = 0;
  for (int i = 0; i < 14; i++) {
    c.set([&](Host& h) { h.flag = i >= 5; });
    compiled += c.step().compiled && i > 5;
  }
  EXPECT_EQ(c.hosts[0]->calls, 15);
  EXPECT_EQ(events(c.lockstep.report(), "rerun"), 1);
  EXPECT_GE(compiled, 5) << c.lockstep.report().to_string();
}

TEST(Replay, AnExceptionOfTheClosureLeavesWhatEagerLeaves) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    auto out = net.forward(x);
    if (h.flag) throw std::runtime_error("the user's own");
    return torch::mse_loss(out, y);
  });
  for (int i = 0; i < 10; i++) {
    c.set([&](Host& h) { h.flag = i == 6; });
    c.step();
  }
  EXPECT_TRUE(c.lockstep.report().active);
}

TEST(Replay, FailOnRecompileStopsBeforeAnythingRuns) {
  const Options options{.keep_grads = true, .fail_on_recompile = true, .shadow_every = 1000};
  auto net = std::make_shared<Net>();
  bool flag = false;
  auto toy = toy_of(net, [&, net](const at::Tensor& x, const at::Tensor& y) -> Inputs {
    return {flag ? mse(*net, x, y) : torch::l1_loss(net->forward(x), y)};
  });
  TrainStep step(toy.module, *toy.optimizer, toy.loss, as_tested(options));
  for (std::uint64_t i = 0; i < 6; i++) step.run(batch(i));
  ASSERT_TRUE(step.report().active);
  flag = true;
  const auto before = net->first->weight.clone();
  try {
    step.run(batch(7));
    ADD_FAILURE() << "expected an Error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Options::fail_on_recompile: expected a step that a plan fits, found another"), std::string::npos)
        << e.what();
  }
  EXPECT_TRUE(torch::equal(before, net->first->weight));
}

TEST(GraphBreak, TheClosureReadsItsOwnLoss) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    auto loss = mse(net, x, y);
    h.weight = loss.item<double>();
    return loss * 2;
  });
  int compiled = 0;
  for (int i = 0; i < 9; i++) {
    compiled += c.step().compiled;
    EXPECT_NEAR(c.hosts[0]->weight, c.hosts[1]->weight, with_kernels() ? 1e-6 : 0);
  }
  EXPECT_GE(compiled, 5) << c.lockstep.report().to_string();
  ASSERT_FALSE(c.lockstep.report().plans.empty());
  EXPECT_EQ(c.lockstep.report().plans.back().breaks.size(), 1u);
}

TEST(GraphBreak, WhatTheHostReadsIsANumberOfTheRest) {
  Case c([](Net& net, Host&, const at::Tensor& x, const at::Tensor& y) {
    auto out = net.first(x);
    const double scale = out.abs().max().item<double>();
    return torch::mse_loss(net.second(torch::tanh(out / scale)), y);
  });
  int compiled = 0;
  for (int i = 0; i < 9; i++) compiled += c.step().compiled;
  EXPECT_GE(compiled, 5) << c.lockstep.report().to_string();
}

TEST(GraphBreak, ABranchOnTheValue) {
  Case c([](Net& net, Host&, const at::Tensor& x, const at::Tensor& y) {
    auto out = net.forward(x);
    return (out.sum() > 0).item<bool>() ? torch::mse_loss(out, y) : torch::l1_loss(out, y);
  });
  int compiled = 0;
  for (int i = 0; i < 24; i++) compiled += c.step().compiled;
  EXPECT_GE(compiled, 8) << c.lockstep.report().to_string();
}

TEST(GraphBreak, SizesThatDependOnValues) {
  Case c([](Net& net, Host&, const at::Tensor& x, const at::Tensor& y) {
    auto out = net.forward(x);
    auto rows = (x.select(1, 0) > 0).nonzero().squeeze(1);
    return torch::mse_loss(out.index_select(0, rows), y.index_select(0, rows)) + out.pow(2).mean();
  });
  for (int i = 0; i < 24; i++) c.step();
}

TEST(GraphBreak, AReadOfAnInputNeedsNoPartOfItsOwn) {
  Case c(
      [](Net& net, Host&, const at::Tensor& x, const at::Tensor& y) { return torch::equal(x, y) ? net.forward(x).sum() : mse(net, x, y); });
  int compiled = 0;
  for (int i = 0; i < 9; i++) compiled += c.step().compiled;
  EXPECT_GE(compiled, 5) << c.lockstep.report().to_string();
  EXPECT_EQ(c.lockstep.report().plans.back().breaks.size(), 0u);
}

TEST(GraphBreak, ReadingAParameterThatTheStepHasWritten) {
  auto net = std::make_shared<Net>(), other = std::make_shared<Net>();
  auto body_of = [](std::shared_ptr<Net> n, double& seen) {
    auto optimizer = std::make_shared<torch::optim::SGD>(n->parameters(), 0.1);
    return [n, optimizer, &seen](const at::Tensor& x, const at::Tensor& y) {
      optimizer->zero_grad();
      auto loss = mse(*n, x, y);
      loss.backward();
      optimizer->step();
      seen = n->first->weight.sum().item<double>();
      return loss;
    };
  };
  {
    const at::NoGradGuard no_grad;
    for (const auto& p : net->named_parameters()) other->named_parameters()[p.key()].copy_(p.value());
  }
  double mine = 0, eager = 0;
  TrainStep step(body_of(net, mine), as_tested({.shadow_every = 1000}));
  auto plain = body_of(other, eager);
  int compiled = 0;
  for (std::uint64_t i = 0; i < 9; i++) {
    const auto in = batch(i);
    compiled += step(in[0], in[1]).compiled;
    plain(in[0], in[1]);
    EXPECT_NEAR(mine, eager, 1e-4);
  }
  EXPECT_GE(compiled, 5) << step.report().to_string();
}

TEST(Replay, ATensorOfHostNumbersThatTheClosureMakes) {
  Case c([](Net& net, Host& h, const at::Tensor& x, const at::Tensor& y) {
    const auto weights = torch::tensor({float(h.weight), 2.0f, 0.0f, float(h.loops)});
    auto table = torch::zeros({8, 1});
    table.accessor<float, 2>()[h.loops % 8][0] = float(h.weight);
    return torch::mse_loss(net.forward(x) * weights + table, y);
  });
  int compiled = 0;
  for (int i = 0; i < 10; i++) {
    c.set([&](Host& h) {
      h.weight = 0.1 * i;
      h.loops = i;
    });
    compiled += c.step().compiled;
  }
  EXPECT_GE(compiled, 6) << c.lockstep.report().to_string();
  EXPECT_EQ(active_plans(c.lockstep.report()), 1);
}

TEST(GraphBreak, FullgraphMakesAReadAnErrorWithItsOp) {
  const Options options{.keep_grads = true, .fullgraph = true, .shadow_every = 1000};
  auto net = std::make_shared<Net>();
  auto toy = toy_of(net, [net](const at::Tensor& x, const at::Tensor& y) -> Inputs {
    auto loss = mse(*net, x, y);
    return {loss * loss.item<double>()};
  });
  TrainStep step(toy.module, *toy.optimizer, toy.loss, as_tested(options));
  try {
    step.run(batch(1));
    ADD_FAILURE() << "expected an Error";
  } catch (const Error& e) {
    EXPECT_NE(
        std::string(e.what()).find("Options::fullgraph: expected a step in which the host reads nothing that it computes, found node "),
        std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("aten::_local_scalar_dense (forward)"), std::string::npos) << e.what();
  }
}

TEST(Replay, WritingAParameterByHandAfterAReplayedWriteIsNoticed) {
  auto net = std::make_shared<Net>();
  auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
  bool raw = false;
  double seen = 0;
  TrainStep step(
      [&](const at::Tensor& x, const at::Tensor& y) {
        optimizer->zero_grad();
        auto loss = mse(*net, x, y);
        loss.backward();
        optimizer->step();
        if (raw) seen = net->first->weight.data_ptr<float>()[0];
        return loss;
      },
      as_tested({.shadow_every = 1000}));
  for (std::uint64_t i = 0; i < 6; i++) step.run(batch(i));
  ASSERT_TRUE(step.report().active) << step.report().to_string();
  raw = true;
  EXPECT_THROW(step.run(batch(7)), Error);
  step.run(batch(8));  // eager from now on
  EXPECT_EQ(seen, net->first->weight.data_ptr<float>()[0]);
  EXPECT_FALSE(step.report().active);
}

}  // namespace
}  // namespace tandem::test::replayed
