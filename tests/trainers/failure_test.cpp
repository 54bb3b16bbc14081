// What goes wrong in the middle of a compiled step: memory runs out, a label is bad while the host has gone on.
#include "tests/support/lockstep.h"

#include <c10/core/CPUAllocator.h>

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

/// Fails the n-th allocation from when it is armed.
class FailingAllocator : public c10::Allocator {
 public:
  static FailingAllocator& install() {
    static auto* one = new FailingAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(one, /*priority=*/200);
    return *one;
  }
  void arm(int n) { countdown_ = n; }
  bool disarm() { return std::exchange(countdown_, 0) <= 0; }  // whether it has failed

  c10::DataPtr allocate(std::size_t n) override {
    if (countdown_ > 0 && --countdown_ == 0) TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory (test)");
    return base_->allocate(n);
  }
  c10::DeleterFnPtr raw_deleter() const override { return base_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t n) const override { base_->copy_data(to, from, n); }

 private:
  explicit FailingAllocator(c10::Allocator* base) : base_(base) {}
  c10::Allocator* base_;
  int countdown_ = 0;
};

TEST(Failure, OutOfMemoryAnywhereInAPlanLeavesAStateThatTrainsOn) {
  auto& memory = FailingAllocator::install();
  for (int n = 1; n < 200; n++) {
    Options o = watched();
    o.arena = false;
    o.blas = false;
    Toy toy = mlp([](auto p) { return adam(std::move(p), 0.01); });
    TrainStep step(toy.module, *toy.optimizer, toy.loss, as_tested(o));
    StepResult r;
    for (std::uint64_t i = 1; i < 8 && !r.compiled; i++) r = step.run(batch(i));
    ASSERT_TRUE(r.compiled) << step.report().to_string();
    const auto before = state_of(toy);
    const auto in = batch(20);
    memory.arm(n);
    bool threw = false;
    try {
      step.run(in);
    } catch (const c10::OutOfMemoryError& e) {
      threw = true;
      EXPECT_NE(text_of(e).find("no memory (test)"), std::string::npos);
    }
    if (!memory.disarm()) {
      EXPECT_FALSE(threw);
      EXPECT_GT(n, 3) << "no allocation has failed";
      return;
    }
    SCOPED_TRACE("allocation " + std::to_string(n));
    EXPECT_TRUE(threw);
    // Forward or backward: nothing has been updated. The step after it is what eager makes of this state.
    const auto after = state_of(toy);
    Toy twin = mlp([](auto p) { return adam(std::move(p), 0.01); });
    if (difference(after, before) == "") {
      EagerLoop eager(std::move(twin), o);
      eager.step(batch(1));  // makes the optimizer's state
      follow(after, state_of(eager.toy()));
    }
    EXPECT_NO_THROW(step.run(batch(21)));
  }
}

TEST(Failure, APlanThatFailedTwiceIsRetired) {
  auto& memory = FailingAllocator::install();
  Options o = watched();
  o.arena = false;
  o.blas = false;
  Toy toy = mlp();
  TrainStep step(toy.module, *toy.optimizer, toy.loss, as_tested(o));
  StepResult r;
  for (std::uint64_t i = 1; i < 8 && !r.compiled; i++) r = step.run(batch(i));
  ASSERT_TRUE(r.compiled);
  const auto in = batch(30);
  for (int i = 0; i < 2; i++) {
    memory.arm(1);
    EXPECT_THROW(step.run(in), c10::OutOfMemoryError);
    memory.disarm();
  }
  EXPECT_FALSE(step.run(batch(31)).compiled);
  const auto report = step.report();
  EXPECT_FALSE(report.active);
  EXPECT_NE(report.reason.find("its plan failed 2 times: no memory (test)"), std::string::npos) << report.reason;
}

struct Labelled : torch::nn::Module {
  Labelled() {
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    out = register_module("out", torch::nn::Linear(6, 3));
  }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear out{nullptr};
};

/// A body over a batch norm and class labels; step 6 has a bad one.
void expect_eagers_state(bool with_hook) {
  auto make = [with_hook] {
    torch::manual_seed(4);
    auto net = std::make_shared<Labelled>();
    auto optimizer = std::make_shared<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(0.01));
    auto calls = std::make_shared<int>(0);
    auto body = [=](const at::Tensor& x, const at::Tensor& y) {
      optimizer->zero_grad();
      auto h = net->norm(x);
      if (with_hook) h.register_hook([calls](const at::Tensor&) { ++*calls; });
      auto loss = torch::nn::functional::cross_entropy(net->out(h), y);
      loss.backward();
      optimizer->step();
      return loss;
    };
    return std::tuple(net, optimizer, calls, body);
  };
  auto [net, optimizer, calls, body] = make();
  auto [other, other_optimizer, other_calls, other_body] = make();
  TrainStep step(body, as_tested({.shadow_every = 1000}));
  int compiled = 0;
  for (int i = 1; i <= 9; i++) {
    torch::manual_seed(i);
    const auto x = torch::randn({5, 6});
    auto y = torch::randint(3, {5}, torch::kLong);
    if (i == 6) y[2] = 7;
    const auto mine = test::Outcome::of([&](auto& o) { o.compiled = step(x, y).compiled; });
    const auto eagers = test::Outcome::of([&](auto&) { other_body(x, y); });
    SCOPED_TRACE("step " + std::to_string(i));
    EXPECT_EQ(mine.error, eagers.error);
    compiled += mine.compiled;
    const auto found = train_state(*net, *optimizer), expected = train_state(*other, *other_optimizer);
    EXPECT_EQ(difference(found, expected), "");
    EXPECT_EQ(difference(gradients(*net), gradients(*other)), "");
    EXPECT_EQ(*calls, *other_calls);
    follow(found, expected);
  }
  EXPECT_GE(compiled, 4) << step.report().to_string();
}

TEST(Failure, ABadLabelInABodyLeavesTheOptimizerWhereItWas) { expect_eagers_state(false); }
TEST(Failure, ABadLabelInABodyWithAHook) { expect_eagers_state(true); }

}  // namespace
}  // namespace tandem::test
