// Memory that the host reads through a pointer in each step: recordings find out where, and plans are cut there.
#include "tests/support/lockstep.h"
#include "tests/trainers/compile_pair.h"

#include <sstream>

namespace tandem::test {
namespace {

double first_of(const at::Tensor& t) { return t.data_ptr<float>()[0]; }
at::Tensor halved_where_positive(const at::Tensor& t) {
  const auto numbers = t.accessor<float, 2>();
  return numbers[0][0] > 0 ? t * 0.5 : t;
}
double printed(const at::Tensor& t) {
  std::ostringstream out;
  out << t;
  return std::stod(out.str());
}

struct Net : torch::nn::Module {
  Net() { register_module("line", line); }
  torch::nn::Linear line{6, 4};
};
using Body = std::function<at::Tensor(Net& net, const at::Tensor& x)>;

struct Pointers : testing::Test {
  MakeToy toys(Body body) {
    return [this, body]() -> Toy {
      torch::manual_seed(3);
      auto net = std::make_shared<Net>();
      auto loss = [this, net, body](const at::Tensor& x, const at::Tensor& y) -> Inputs {
        calls++;
        return {torch::mse_loss(body(*net, x), y)};
      };
      return {net, momentum_sgd(net->parameters()), loss};
    };
  }
  static Inputs batch(std::uint64_t i) {
    torch::manual_seed(100 + i);
    return {torch::randn({8, 6}), torch::randn({8, 4})};
  }
  /// What both sides have seen must agree, and each closure is called once in each step.
  void steps(Lockstep& both, int n) {
    for (int i = 0; i < n; i++) {
      calls = 0;
      seen.clear();
      compiled += both.step(batch(std::uint64_t(i % 3))).compiled;
      EXPECT_EQ(calls, 2);
      ASSERT_EQ(seen.size() % 2, 0U);
      for (std::size_t k = 0; k < seen.size() / 2; k++) EXPECT_NEAR(seen[k], seen[k + seen.size() / 2], 1e-5) << "number " << k;
    }
    EXPECT_EQ(events(both.report(), "rerun"), 0) << both.report().to_string();
  }
  int calls = 0, compiled = 0;
  std::vector<double> seen;
};

TEST_F(Pointers, AResultThatIsReadIsAGraphBreak) {
  Lockstep both(toys([&](Net& net, const at::Tensor& x) {
    const auto h = net.line(x).tanh();
    seen.push_back(first_of(h));
    return h.exp();
  }));
  steps(both, 10);
  EXPECT_EQ(compiled, 6) << both.report().to_string();
  ASSERT_EQ(both.report().plans.back().breaks.size(), 1U);
  EXPECT_NE(both.report().plans.back().breaks[0].node.find("aten::tanh"), std::string::npos) << both.report().to_string();
}

TEST_F(Pointers, SeveralOfThemAndABranchOnOne) {
  Lockstep both(toys([&](Net& net, const at::Tensor& x) {
    const auto h = net.line(x).tanh();
    seen.push_back(first_of(h));
    const auto out = halved_where_positive(h.exp() - 1);
    const auto size = out.detach().abs();
    seen.push_back(first_of(size));
    return out * seen.back();
  }));
  steps(both, 20);
  EXPECT_GT(compiled, 8) << both.report().to_string();
  EXPECT_EQ(both.report().plans.back().breaks.size(), 3U) << both.report().to_string();
}

TEST_F(Pointers, ATemporaryThatIsReadShowsOnlyInAReplayAndIsAGraphBreakThen) {
  Lockstep both(toys([&](Net& net, const at::Tensor& x) {
    const auto h = net.line(x).tanh();
    const auto number = first_of(h.detach().abs());  // nothing is left of it at the next op
    return h * number;
  }));
  for (int i = 0; i < 12; i++) {
    calls = 0;
    compiled += both.step(batch(std::uint64_t(i % 3))).compiled;
    EXPECT_EQ(calls, i == 3 ? 3 : 2) << "step " << i;
  }
  EXPECT_EQ(events(both.report(), "rerun"), 1) << both.report().to_string();
  EXPECT_GE(compiled, 6) << both.report().to_string();
  EXPECT_TRUE(both.report().active) << both.report().to_string();
}

TEST_F(Pointers, WhatIsPrintedIsAGraphBreak) {
  Lockstep both(toys([&](Net& net, const at::Tensor& x) {
    const auto h = net.line(x).tanh();
    seen.push_back(printed(h.sum()));
    return h;
  }));
  steps(both, 10);
  EXPECT_EQ(compiled, 6) << both.report().to_string();
}

TEST_F(Pointers, AViewOfWhatIsReadHasItsMemory) {
  Lockstep both(toys([&](Net& net, const at::Tensor& x) {
    const auto h = net.line(x).sigmoid();
    const auto row = h.detach().select(0, 2);
    seen.push_back(first_of(row));
    return h * row;
  }));
  steps(both, 10);
  EXPECT_EQ(compiled, 6) << both.report().to_string();
}

TEST_F(Pointers, WhatIsWrittenInPlaceAndThenReadStaysEager) {
  Lockstep both(toys([&](Net& net, const at::Tensor& x) {
    auto h = net.line(x);
    h.mul_(0.5);
    seen.push_back(first_of(h));
    return h;
  }));
  steps(both, 8);
  EXPECT_EQ(compiled, 0);
  EXPECT_NE(both.report().reason.find("a pointer that the host takes (data_ptr, accessor) to the result of node"), std::string::npos)
      << both.report().reason;
}

TEST_F(Pointers, FullgraphMakesAnErrorOfThem) {
  auto toy = toys([&](Net& net, const at::Tensor& x) {
    const auto h = net.line(x).tanh();
    return h.exp() * first_of(h);
  })();
  TrainStep step(toy.module, *toy.optimizer, toy.loss, as_tested({.fullgraph = true}));
  try {
    step.run(batch(1));
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Options::fullgraph: expected a step in which the host reads nothing"), std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("aten::tanh"), std::string::npos) << e.what();
  }
}

TEST_F(Pointers, AWholeBodyThatReadsThemIsCompiled) {
  std::vector<std::shared_ptr<Net>> nets;
  auto body_of = [&] {
    torch::manual_seed(3);
    auto net = nets.emplace_back(std::make_shared<Net>());
    auto optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    return [this, net, optimizer](const at::Tensor& x, const at::Tensor& y) {
      calls++;
      optimizer->zero_grad();
      const auto h = net->line(x).tanh();
      seen.push_back(first_of(h));
      auto loss = torch::mse_loss(h, y);
      loss.backward();
      seen.push_back(printed(loss));
      optimizer->step();
      return loss;
    };
  };
  auto eager = body_of();
  TrainStep step(body_of(), as_tested({.shadow_every = 1000}));
  for (int i = 0; i < 10; i++) {
    calls = 0;
    seen.clear();
    const auto in = batch(std::uint64_t(i % 3));
    eager(in[0], in[1]);
    compiled += step(in[0], in[1]).compiled;
    EXPECT_EQ(calls, 2);
    ASSERT_EQ(seen.size(), 4U);
    for (std::size_t k = 0; k < 2; k++) EXPECT_NEAR(seen[k], seen[k + 2], 1e-4);
    for (std::size_t p = 0; p < 2; p++) EXPECT_EQ(distance(nets[0]->parameters()[p], nets[1]->parameters()[p], 1e-4), "");
  }
  EXPECT_EQ(compiled, 7) << step.report().to_string();
  EXPECT_EQ(step.report().plans.back().breaks.size(), 2U) << step.report().to_string();
}

TEST_F(Pointers, ACompiledFunctionThatReadsThemHasAPlan) {
  Pair p([](const at::Tensor& w, Host& h, const at::Tensor& x) {
    const auto y = x.mm(w).tanh();
    h.seen = first_of(y);
    return y.exp() + (h.seen > 0 ? 1 : 2);
  });
  for (int i = 0; i < 12; i++) {
    p.call(i % 3);
    EXPECT_NEAR(p.hosts[0]->seen, p.hosts[1]->seen, 1e-5);
  }
  EXPECT_TRUE(p.report().active) << p.report().to_string();
  EXPECT_FALSE(p.report().plans.back().breaks.empty()) << p.report().to_string();
}

TEST_F(Pointers, AStepThatIsTrustedMustTakeNone) {
  auto options = watched();
  options.replay = Replay::trusted;
  Lockstep both(toys([&](Net& net, const at::Tensor& x) {
                  const auto h = net.line(x).tanh();
                  seen.push_back(first_of(h));
                  return h;
                }),
                options);
  steps(both, 6);
  EXPECT_EQ(compiled, 0);
  EXPECT_NE(both.report().reason.find("a pointer that the host takes"), std::string::npos) << both.report().reason;
}

}  // namespace
}  // namespace tandem::test
