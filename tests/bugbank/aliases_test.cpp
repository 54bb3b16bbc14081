// Tensors that share memory where a plan may not expect it, or must not share it where eager's do not.
#include "tests/support/bugbank.h"

#include <ATen/ScalarOps.h>

#include <algorithm>

namespace tandem::test {
namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

/// Parameter w of two ones, loss = sum(w * w * x).
auto square_trainer() {
  auto module = bag();
  const auto w = module->register_parameter("w", torch::ones(2));
  return Trainer{module, sgd({w}, 0.1, 0.9), [w](const at::Tensor& x) { return (w * w * x).sum(); }};
}

struct Handles {
  at::Tensor plan, eager;
};
template <class Twins, class F>
Handles of_both(Twins& twins, F&& f) {
  std::vector<at::Tensor> both;
  twins.for_both([&](torch::nn::Module& m, torch::optim::Optimizer& o) { both.push_back(f(m, o)); });
  return {both[0], both[1]};
}

/// `f` gives the input that shares memory; it is used while recording, then another one, then it again.
template <class F>
void expect_right_with_a_shared_input(Options options, F&& f) {
  Twins twins(square_trainer, options);
  const auto other = torch::tensor({2.f, 5.f});
  for (int n = 0; n < 2; n++) twins.step(other);
  const auto shared = [&] {
    const auto inputs = of_both(twins, f);
    twins.step_each({inputs.plan}, {inputs.eager});
  };
  for (int n = 0; n < 5; n++) shared();
  for (int n = 0; n < 5; n++) twins.step(other);
  for (int n = 0; n < 5; n++) shared();
  for (int n = 0; n < 3; n++) twins.step(torch::tensor({3.f, float(n)}));
}

TEST(BugBank, VIEW_2_AnInputThatIsAParameter) {
  expect_right_with_a_shared_input(watched(), [](torch::nn::Module& m, torch::optim::Optimizer&) { return m.parameters()[0].detach(); });
}

TEST(BugBank, VIEW_2_AnInputThatIsAGradient) {
  auto options = watched();
  options.zero_grad_to_none = false;
  expect_right_with_a_shared_input(options, [](torch::nn::Module& m, torch::optim::Optimizer&) { return m.parameters()[0].grad(); });
}

TEST(BugBank, VIEW_2_AnInputThatIsAGradientOfTheStepBefore) {
  expect_right_with_a_shared_input(watched(), [](torch::nn::Module& m, torch::optim::Optimizer&) { return m.parameters()[0].grad(); });
}

TEST(BugBank, VIEW_2_AnInputThatIsAMoment) {
  expect_right_with_a_shared_input(watched(), [](torch::nn::Module&, torch::optim::Optimizer& o) {
    return static_cast<torch::optim::SGDParamState&>(*o.state().begin()->second).momentum_buffer();
  });
}

TEST(BugBank, VIEW_2_AnInputThatIsACapturedTensor) {
  std::vector<at::Tensor> captured;
  Twins twins([&] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones(2)), c = captured.emplace_back(torch::full({2}, 3.));
    return Trainer{module, sgd({w}, 0.1, 0.9), [w, c](const at::Tensor& x) {
                     c.add_(1);
                     return (w * x * c).sum();
                   }};
  });
  for (int n = 0; n < 5; n++) twins.step(torch::full({2}, double(n)));
  for (int n = 0; n < 5; n++) twins.step_each({captured[0]}, {captured[1]});
  for (int n = 0; n < 3; n++) twins.step(torch::full({2}, double(n)));
}

TEST(BugBank, GRD_3_AnInputThatIsAWrappedNumber) {
  Twins twins(square_trainer);
  for (const double k : {1., 1., 1., 1., 1., 2., 3., 3., 3., 3., 4.}) {
    twins.step(at::native::wrapped_scalar_tensor(k));
    EXPECT_TRUE(twins.gradient("w").defined());
  }
}

TEST(BugBank, GRD_2_AnInputWithAGraphOfItsOwn) {
  Twins twins(square_trainer);
  const auto step = [&](double by) {
    const auto x = of_both(twins, [&](torch::nn::Module& m, torch::optim::Optimizer&) { return m.parameters()[0] * by; });
    twins.step_each({x.plan}, {x.eager});
  };
  for (int n = 0; n < 6; n++) step(2);
  for (int n = 0; n < 3; n++) step(n);
  for (int n = 0; n < 5; n++) twins.step(torch::full({2}, double(n)));
}

TEST(BugBank, GRD_2_ALeafInputThatRequiresGrad) {
  Twins twins(square_trainer);
  const auto step = [&](const at::Tensor& mine, const at::Tensor& eagers) {
    twins.step_each({mine}, {eagers});
    EXPECT_EQ(difference(mine.grad(), eagers.grad()), "");
  };
  const auto leaf = [](double v) { return torch::full({2}, v).requires_grad_(true); };
  const auto mine = leaf(2), eagers = leaf(2);
  for (int n = 0; n < 6; n++) step(mine, eagers);
  for (int n = 0; n < 6; n++) step(leaf(n), leaf(n));
  for (int n = 0; n < 3; n++) step(mine, eagers);
}

TEST(BugBank, MEM_1_LeafInputsOfEarlierStepsAreLetGo) {
  auto side = square_trainer();
  TrainStep step(side.module, *side.optimizer, side.loss);
  std::vector<WeakStorage> inputs;
  for (int n = 0; n < 30; n++) {
    const auto x = torch::full({2}, double(n)).requires_grad_(true);
    inputs.push_back(x.storage().getWeakStorageImpl());
    step(x);
  }
  const auto alive = std::count_if(inputs.begin(), inputs.end(), [](const WeakStorage& w) { return !w.expired(); });
  EXPECT_LE(alive, 2) << "inputs of earlier steps that are kept alive";
}

TEST(BugBank, MEM_1_InputsOfEarlierStepsAreLetGo) {
  auto side = square_trainer();
  TrainStep step(side.module, *side.optimizer, side.loss);
  std::vector<WeakStorage> inputs;
  for (int n = 0; n < 8; n++) {
    const auto x = torch::full({2}, double(n));
    inputs.push_back(x.storage().getWeakStorageImpl());
    step(x);
  }
  const auto alive = std::count_if(inputs.begin(), inputs.end(), [](const WeakStorage& w) { return !w.expired(); });
  EXPECT_LE(alive, 1) << "inputs of earlier steps that are kept alive";
}

TEST(BugBank, VIEW_1_AnOutputThatIsAConstantIsNewInEachStep) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones(2));
    return Trainer{module, sgd({w}, 0.1), [w] {
                     const auto ones = torch::ones(2), more = torch::ones(2) * 2;
                     return std::make_tuple((w * ones * more).sum(), ones, more);
                   }};
  });
  ASSERT_TRUE(twins.warm_up()) << twins.report().to_string();
  for (int s = 0; s < 3; s++) {
    const auto result = twins.compiled_step();
    EXPECT_EQ(far(result.returned[1], {1, 1}), "");
    EXPECT_EQ(far(result.returned[2], {2, 2}), "");
    for (const auto& t : result.returned) t.fill_(77);
  }
}

TEST(BugBank, VIEW_1_EqualOutputsShareNoMemory) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones(2));
    return Trainer{module, sgd({w}, 0.1), [w](const at::Tensor& x) {
                     const auto a = w * x, b = w * x;
                     return std::make_tuple((a + b).sum(), a, b, w.view({2, 1}), x.view({2, 1}));
                   }};
  });
  const auto x = torch::tensor({3.f, 4.f});
  ASSERT_TRUE(twins.warm_up(x)) << twins.report().to_string();
  const auto result = twins.compiled_step(x);
  EXPECT_FALSE(result.returned[1].is_alias_of(result.returned[2]));
  EXPECT_TRUE(result.returned[3].is_alias_of(twins.parameter("w")));
  EXPECT_TRUE(result.returned[4].is_alias_of(x));
}

TEST(BugBank, VIEW_1_EqualGradientsShareNoMemory) {
  Twins twins([] {
    auto module = bag();
    const auto a = module->register_parameter("a", torch::ones(2)), b = module->register_parameter("b", torch::ones(2));
    return Trainer{module, sgd({a, b}, 0.1), [=](const at::Tensor& x) { return (a * x).sum() + (b * x).sum() + (a + b).sum(); }};
  });
  const auto x = torch::tensor({3.f, 4.f});
  ASSERT_TRUE(twins.warm_up(x)) << twins.report().to_string();
  for (int s = 0; s < 2; s++) {
    twins.compiled_step(x);
    EXPECT_FALSE(twins.gradient("a").is_alias_of(twins.gradient("b")));
    EXPECT_FALSE(twins.gradient("a").is_alias_of(x));
  }
}

TEST(BugBank, ACC_1_AHandleOnAGradient) {
  for (const bool to_none : {true, false}) {
    auto options = watched();
    options.zero_grad_to_none = to_none;
    Twins twins(square_trainer, options);
    for (int s = 1; s <= 4; s++) twins.step(torch::full({2}, double(s)));
    const auto handle = twins.gradient("w"), copy = handle.clone();
    twins.compiled_step(torch::full({2}, 9.));
    EXPECT_EQ(handle.is_alias_of(twins.gradient("w")), !to_none);
    EXPECT_EQ(difference(handle, to_none ? copy : twins.gradient("w")), "");
  }
}

TEST(BugBank, NUM_2_LazyConjugatesOfAComplexParameter) {
  Twins twins([] {
    auto module = bag();
    torch::manual_seed(6);
    const auto z = module->register_parameter("z", torch::randn(3, at::kComplexFloat));
    return Trainer{module, sgd({z}, 0.1),
                   [z](const at::Tensor& x) { return std::make_pair((z.conj() * x * z).abs().sum(), torch::imag(z.conj())); }};
  });
  const auto x = torch::randn(3, at::kComplexFloat);
  for (int s = 0; s < 6; s++) twins.step(s % 2 ? x : x.conj());
}

TEST(BugBank, EMB_1_SparseGradients) {
  Twins twins([] {
    auto module = bag();
    const auto weight = module->register_parameter("weight", torch::ones({4, 2}));
    return Trainer{module, sgd({weight}, 0.1),
                   [weight](const at::Tensor& ids) { return torch::embedding(weight, ids, -1, false, true).sum(); }};
  });
  for (int s = 0; s < 5; s++) twins.step(torch::tensor({1, 1, 0, 3}, at::kLong));
}

TEST(BugBank, EMB_1_ASparseInput) {
  Twins twins([] {
    torch::manual_seed(2);
    auto module = bag();
    const auto w = module->register_parameter("w", torch::randn({3, 2}));
    return Trainer{module, sgd({w}, 0.1, 0.9), [w](const at::Tensor& x) { return torch::mm(x, w).pow(2).sum(); }};
  });
  const auto dense = torch::tensor({{1.f, 0.f, 2.f}, {0.f, 3.f, 0.f}});
  for (int s = 0; s < 5; s++) twins.step((dense * s).to_sparse());
  for (int s = 0; s < 5; s++) twins.step(dense);
}

TEST(BugBank, UNU_1_AnUndefinedOutput) {
  Twins twins([] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::ones(2));
    return Trainer{module, sgd({w}, 0.1), [w] { return std::make_tuple(w.sum(), at::Tensor(), w * 2); }};
  });
  for (int s = 0; s < 5; s++) {
    const auto result = twins.step();
    ASSERT_EQ(result.returned.size(), 3u);
    EXPECT_FALSE(result.returned[1].defined());
  }
}

TEST(BugBank, OPT_6_TheLossIsAParameterItself) {
  Twins twins([] {
    auto module = bag();
    const auto p = module->register_parameter("p", torch::ones({}));
    return Trainer{module, sgd({p}, 0.1), [p] { return p; }};
  });
  for (int s = 0; s < 5; s++) twins.step();
}

TEST(BugBank, IDX_1_IntegerIndices) {
  Twins twins([] {
    torch::manual_seed(2);
    auto module = bag();
    const auto w = module->register_parameter("w", torch::randn({4, 3}));
    return Trainer{module, sgd({w}, 0.1, 0.9), [w](const at::Tensor& rows, const at::Tensor& columns) {
                     return w.index({rows, columns}).pow(2).sum();
                   }};
  });
  const auto columns = torch::tensor({0, 2, 1}, at::kLong);
  for (int s = 0; s < 6; s++) twins.step(torch::tensor({s % 4, 1, 1}, at::kLong), columns);
  EXPECT_TRUE(twins.report().active || !twins.report().reason.empty());
}

}  // namespace
}  // namespace tandem::test
