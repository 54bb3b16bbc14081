// Custom autograd Functions: what the user's backward returns is the law, and what it does is done once a step.
#include "bench/support/counting_allocator.h"
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

/// A sine whose gradient is said to be zero.
struct SineWithoutSlope : Function<SineWithoutSlope> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.sin(); }
  static tensor_list backward(AutogradContext*, tensor_list g) { return {torch::zeros_like(g[0])}; }
};

struct Reversal : Function<Reversal> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static tensor_list backward(AutogradContext*, tensor_list g) { return {-g[0]}; }
};

/// One parameter x of ones, and a loss of it.
template <class F>
auto of_ones(F loss, std::vector<std::int64_t> sizes = {}) {
  return [=] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::ones(sizes));
    return Trainer{module, sgd({x}, 0), [=] { return loss(x); }};
  };
}

template <class F>
void expect_gradient(F loss, const std::vector<double>& expected) {
  Twins twins(of_ones(loss));
  for (int s = 0; s < 5; s++) {
    twins.step();
    EXPECT_EQ(far(twins.gradient("x"), expected), "") << "step " << s + 1;
  }
}

TEST(BugBank, FUN_1_ABackwardThatReturnsZeros) {
  expect_gradient([](const at::Tensor& x) { return SineWithoutSlope::apply(x); }, {0});
}

TEST(BugBank, FUN_1_AReversedGradient) {
  expect_gradient([](const at::Tensor& x) { return Reversal::apply(x * 3); }, {-3});
}

/// Doubles, and counts in a buffer when its backward runs.
struct Counting : Function<Counting> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& count) {
    context->saved_data["count"] = count;
    return x * 2;
  }
  static tensor_list backward(AutogradContext* context, tensor_list g) {
    context->saved_data["count"].toTensor().add_(g[0]);
    return {g[0] * 2, at::Tensor()};
  }
};

TEST(BugBank, FUN_2_AWriteThatBelongsToBackward) {
  Twins twins([] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::ones({})), count = module->register_buffer("count", torch::zeros({}));
    return Trainer{module, sgd({x}, 0.1), [=] {
                     const auto y = Counting::apply(x, count);
                     return std::make_pair(y, count.clone());
                   }};
  });
  for (int s = 0; s < 6; s++) {
    const auto before_backward = twins.step().returned[1];
    EXPECT_EQ(far(before_backward, {double(s)}), "") << "step " << s + 1;
    EXPECT_EQ(far(twins.buffer("count"), {double(s + 1)}), "");
    EXPECT_EQ(far(twins.gradient("x"), {2}), "");
  }
}

/// The same tensor in two slots; the second one's gradient is undefined, or is not.
template <bool both>
struct TwoSlots : Function<TwoSlots<both>> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& a, const at::Tensor& b) { return a * 5 + b * 7; }
  static tensor_list backward(AutogradContext*, tensor_list g) { return {g[0] * 5, both ? g[0] * 7 : at::Tensor()}; }
};

TEST(BugBank, DBL_1_TheSameTensorInTwoSlotsOfAFunction) {
  expect_gradient([](const at::Tensor& x) { return TwoSlots<false>::apply(x, x); }, {5});
  expect_gradient([](const at::Tensor& x) { return TwoSlots<true>::apply(x, x); }, {12});
}

/// A checkpoint as users write it: the forward runs again in backward, with an engine call inside the engine.
struct Recomputed : Function<Recomputed> {
  static at::Tensor run(const at::Tensor& x, const at::Tensor& w) { return (x * w).sin(); }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    return run(x, w);
  }
  static tensor_list backward(AutogradContext* context, tensor_list g) {
    const at::AutoGradMode on(true);
    const auto saved = context->get_saved_variables();
    const auto x = saved[0].detach().requires_grad_(), w = saved[1].detach().requires_grad_();
    return torch::autograd::grad({run(x, w)}, {x, w}, {g[0]});
  }
};

TEST(BugBank, CKP_1_ACheckpointMadeByHand) {
  Twins twins([] {
    auto module = bag();
    const auto x = module->register_parameter("x", torch::ones(2)), w = module->register_parameter("w", torch::full({2}, 2.));
    return Trainer{module, sgd({x, w}, 0), [=] { return Recomputed::apply(x, w).sum(); }};
  });
  for (int s = 0; s < 5; s++) {
    twins.step();
    EXPECT_EQ(far(twins.gradient("x"), {-0.83229369, -0.83229369}, 1e-6), "");
    EXPECT_EQ(far(twins.gradient("w"), {-0.41614685, -0.41614685}, 1e-6), "");
  }
}

/// Saves its result, a view of it, and a tensor that autograd does not know.
struct Hoarding : Function<Hoarding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const auto y = x.exp();
    context->save_for_backward({y, y.view(-1)});
    context->saved_data["twice"] = x * 2;
    return y;
  }
  static tensor_list backward(AutogradContext* context, tensor_list g) {
    const auto saved = context->get_saved_variables();
    return {g[0] * saved[1].view_as(g[0]) + context->saved_data["twice"].toTensor() * 0};
  }
};

std::int64_t growth_of_a_thousand_steps(Options options) {
  auto& counter = bench::CountingAllocator::install();
  auto trainer = of_ones([](const at::Tensor& x) { return Hoarding::apply(x).sum(); }, {32, 8})();
  TrainStep step(trainer.module, *trainer.optimizer, trainer.loss, as_tested(options));
  for (int s = 0; s < 40; s++) step();
  const auto before = counter.live_bytes();
  for (int s = 0; s < 960; s++) step();
  return counter.live_bytes() - before;
}

TEST(BugBank, MEM_3_SavedDataOfAFunctionIsFreed) {
  EXPECT_LE(growth_of_a_thousand_steps({.compile = false}), 0);
  EXPECT_LE(growth_of_a_thousand_steps({.shadow_every = 16}), 0);
}

}  // namespace
}  // namespace tandem::test
