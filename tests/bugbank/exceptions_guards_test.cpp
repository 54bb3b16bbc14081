// Exceptions leave what eager leaves; what changes between steps is noticed.
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

struct Classifier : torch::nn::Module {
  Classifier() {
    register_module("norm", norm);
    register_module("linear", linear);
  }
  torch::nn::BatchNorm1d norm{1};
  torch::nn::Linear linear{1, 3};
};

auto classifier_trainer(double momentum) {
  return [=] {
    torch::manual_seed(4);
    auto module = std::make_shared<Classifier>();
    auto optimizer = sgd(module->parameters(), 0.1, momentum);
    return Trainer{module, std::move(optimizer), [m = module.get()](const at::Tensor& x, const at::Tensor& labels) {
                     return torch::cross_entropy_loss(m->linear(m->norm(x)), labels);
                   }};
  };
}

template <class Twins>
void expect_bad_label_then_good(Twins& twins) {
  const auto x = torch::tensor({{1.f}, {3.f}});
  const auto weight = twins.parameter("linear.weight").clone();
  EXPECT_FALSE(twins.step(x, torch::tensor({0, 7}, at::kLong)).error.empty());
  EXPECT_EQ(far(twins.buffer("norm.running_mean"), {0.2}, 1e-7), "");
  EXPECT_EQ(far(twins.buffer("norm.running_var"), {1.1}, 1e-7), "");
  EXPECT_EQ(far(twins.buffer("norm.num_batches_tracked"), {1}), "");
  EXPECT_EQ(difference(twins.parameter("linear.weight"), weight), "");
  EXPECT_FALSE(twins.gradient("linear.weight").defined());
  twins.step(x, torch::tensor({0, 2}, at::kLong));
  EXPECT_EQ(far(twins.buffer("norm.running_mean"), {0.38}, 1e-7), "");
}

TEST(BugBank, EXC_1_ABadLabelInTheFirstStep) {
  Twins twins(classifier_trainer(0));
  expect_bad_label_then_good(twins);
}

TEST(BugBank, EXC_1_ABadLabelWhileRecording) {
  for (int good = 1; good <= 3; good++) {
    Twins twins(classifier_trainer(0));
    for (int s = 0; s < good; s++) twins.step(torch::tensor({{1.f}, {3.f}}), torch::tensor({0, 2}, at::kLong));
    twins.restart();
    expect_bad_label_then_good(twins);
  }
}

TEST(BugBank, EXC_1_ABadLabelOnThePlan) {
  Twins twins(classifier_trainer(0));
  twins.warm_up(torch::tensor({{1.f}, {3.f}}), torch::tensor({0, 2}, at::kLong));
  for (int round = 0; round < 2; round++) {
    expect_bad_label_then_good(twins);
    twins.restart();
  }
}

TEST(BugBank, EXC_1_ABadLabelBetweenGoodOnes) {
  for (const bool to_none : {true, false}) {
    auto options = watched();
    options.zero_grad_to_none = to_none;
    Twins twins(classifier_trainer(0.9), options);
    const auto x = torch::tensor({{1.f}, {3.f}}), good = torch::tensor({0, 2}, at::kLong), bad = torch::tensor({0, 7}, at::kLong);
    for (int s = 0; s < 5; s++) twins.step(x, good);
    EXPECT_FALSE(twins.step(x, bad).error.empty());
    twins.step(x, good);
    EXPECT_FALSE(twins.step(x, bad).error.empty());
    EXPECT_FALSE(twins.step(x, bad).error.empty());
    twins.step(x, good);
  }
}

bool throws(const at::Tensor& loss) {
  try {
    loss.backward();
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

/// Whether graphs made before a step, which saved a parameter, a buffer and an input, refuse to run backward after it.
std::vector<bool> old_graphs_throw(bool compile) {
  auto module = bag();
  const auto w = module->register_parameter("w", torch::ones(2));
  const auto buf = module->register_buffer("buf", torch::ones(2));
  auto optimizer = sgd({w}, 0.1, 0.9);
  const auto loss = [w, buf](const at::Tensor& x) {
    const auto sum = (w * (buf * 1) * (x * 1)).sum();
    buf.add_(1);
    x.add_(1);
    return sum;
  };
  TrainStep step(module, *optimizer, loss, Options{.compile = compile, .shadow_every = 1000});
  const auto x = torch::ones(2);
  for (int s = 0; s < 5; s++) step(x);
  const auto uses_w = (w * w).sum(), uses_buf = (w * buf).sum(), uses_x = (w * x).sum();
  EXPECT_EQ(step(x).compiled, compile) << step.report().to_string();
  return {throws(uses_w), throws(uses_buf), throws(uses_x)};
}

TEST(BugBank, EXC_1_OldGraphsThrowAfterACompiledStepAsAfterAnEagerOne) {
  const auto eager = old_graphs_throw(false);
  EXPECT_TRUE(eager[1] && eager[2]);
  EXPECT_EQ(old_graphs_throw(true), eager);
}

TEST(BugBank, EXC_1_AHookThatThrowsLeavesTheGradientsThatWereComplete) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({})), u = module->register_parameter("u", torch::ones({}));
    return Trainer{module, sgd({w, u}, 0.1), [=] {
                     const auto twice = u * 2;
                     twice.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("the hook's own error"); });
                     return twice + w * 3;
                   }};
  });
  for (int s = 0; s < 5; s++) {
    EXPECT_EQ(twins.step().error, "the hook's own error");
    EXPECT_EQ(far(twins.gradient("w"), {3}), "");
    EXPECT_FALSE(twins.gradient("u").defined());
  }
}

TEST(BugBank, GRD_1_FreezeAndUnfreeze) {
  Twins twins([] {
    auto module = bag();
    const auto a = module->register_parameter("a", torch::ones({})), b = module->register_parameter("b", torch::ones({}));
    return Trainer{module, sgd({a, b}, 0), [=] { return a * b * 2; }};
  });
  const auto train_b = [&](bool on) {
    twins.for_both([&](torch::nn::Module& m, torch::optim::Optimizer&) { m.named_parameters()["b"].set_requires_grad(on); });
  };
  for (int round = 0; round < 6; round++) {
    SCOPED_TRACE(round);
    for (const bool on : {true, false, true}) {
      train_b(on);
      twins.step();
      EXPECT_EQ(far(twins.gradient("a"), {2}), "");
      EXPECT_EQ(on ? far(twins.gradient("b"), {2}) : describe(twins.gradient("b")), on ? "" : "undefined");
    }
  }
  EXPECT_TRUE(twins.report().active || !twins.report().reason.empty());
}

TEST(BugBank, GRD_4_AStateTensorThatIsReplaced) {
  struct Recurrent {
    at::Tensor w;
    std::shared_ptr<at::Tensor> h = std::make_shared<at::Tensor>(torch::zeros(1));
    std::pair<at::Tensor, at::Tensor> operator()() const {
      const auto next = *h * w + 1;
      *h = next.detach();
      return {(next * w).sum(), *h};
    }
  };
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::full({1}, 0.5));
    return Trainer{module, sgd({w}, 0), Recurrent{w}};
  });
  double h = 0;
  for (int s = 1; s <= 9; s++) {
    const double gradient = 2 * h * 0.5 + 1;
    h = h * 0.5 + 1;
    const auto result = twins.step();
    EXPECT_EQ(far(result.returned[1], {h}), "") << "step " << s;
    EXPECT_EQ(far(twins.gradient("w"), {gradient}), "") << "step " << s;
  }
}

TEST(BugBank, GRD_4_MomentsThatAreReplaced) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones(2));
    return Trainer{module, adam({w}, 0.1), [w](const at::Tensor& x) { return (w * x).sum(); }};
  });
  const auto x = torch::tensor({1.f, 2.f});
  for (int s = 0; s < 5; s++) twins.step(x);
  twins.for_both([](torch::nn::Module&, torch::optim::Optimizer& o) {
    auto& state = static_cast<torch::optim::AdamParamState&>(*o.state().begin()->second);
    state.exp_avg(torch::full({2}, 3.));
    state.step(2);
  });
  for (int s = 0; s < 5; s++) twins.compiled_step(x);
}

TEST(BugBank, DYN_1_EachSizeHasItsPlan) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones({}));
    return Trainer{module, sgd({w}, 0.1, 0.9), [w](const at::Tensor& x) { return (x * w).mean(); }};
  });
  for (int round = 0; round < 5; round++)
    for (const int n : {4, 4, 3, 4, 1}) {
      const bool compiled = twins.step(torch::arange(1, n + 1, at::kFloat)).compiled;
      EXPECT_EQ(far(twins.gradient("w"), {(n + 1) / 2.}), "");
      EXPECT_TRUE(compiled || round < 4) << twins.report().to_string();
    }
}

TEST(BugBank, GRD_4_AParameterThatIsReplacedByAssignment) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones(2));
    return Trainer{module, sgd({w}, 0.1, 0.9), [w](const at::Tensor& x) { return (w * x).sum(); }};
  });
  const auto x = torch::tensor({1.f, 2.f});
  for (int s = 0; s < 5; s++) twins.step(x);
  twins.for_both([](torch::nn::Module& m, torch::optim::Optimizer&) { m.named_parameters()["w"].set_data(torch::full({2}, 3.)); });
  for (int s = 0; s < 5; s++) twins.step(x);
}

}  // namespace
}  // namespace tandem::test
