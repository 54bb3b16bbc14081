// GRD-4 and FMT-2: the user's state gets another place or other strides while a plan runs.
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

/// Parameter w (2 x 3) and buffer b (2 x 3), both the first half of a storage of twice their size.
auto matrix_trainer() {
  auto module = bag();
  const auto w = module->register_parameter("w", torch::ones({4, 3}).slice(0, 0, 2));
  const auto b = module->register_buffer("b", torch::full({4, 3}, 2.).slice(0, 0, 2));
  return Trainer{module, sgd({w}, 0.1, 0.9), [w, b](const at::Tensor& x) {
                   const auto loss = (w * w * (b + x)).sum();
                   b.add_(1);
                   return loss;
                 }};
}

at::Tensor batch(int s) { return torch::arange(6, at::kFloat).view({2, 3}) + s; }

/// Steps until a plan runs, `change` on both sides, further steps.
template <class F>
void expect_right_after(F&& change, bool to_none = true) {
  auto options = watched();
  options.zero_grad_to_none = to_none;
  Twins twins(matrix_trainer, options);
  for (int s = 0; s < 5; s++) twins.step(batch(s));
  twins.compiled_step(batch(5));
  twins.for_both(change);
  for (int s = 0; s < 6; s++) twins.step(batch(s));
  EXPECT_TRUE(twins.report().active || !twins.report().reason.empty());
}

at::Tensor second_half(const at::Tensor& t) { return t.detach().as_strided({2, 3}, {3, 1}, 6); }

/// Not a view for autograd: zero_grad() refuses those.
at::Tensor placed(const at::Tensor& on, std::int64_t offset, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides) {
  return torch::empty(0).set_(on.storage(), offset, sizes, strides);
}

at::Tensor transposed() { return placed(torch::arange(6, at::kFloat), 0, {2, 3}, {1, 2}); }

TEST(BugBank, GRD_4_AParameterThatMovesInItsStorage) {
  expect_right_after(
      [](torch::nn::Module& m, torch::optim::Optimizer&) { m.named_parameters()["w"].set_data(second_half(m.parameters()[0])); });
}

TEST(BugBank, GRD_4_ABufferThatMovesInItsStorage) {
  expect_right_after([](torch::nn::Module& m, torch::optim::Optimizer&) { m.named_buffers()["b"].set_data(second_half(m.buffers()[0])); });
}

TEST(BugBank, GRD_4_AParameterWithOtherStrides) {
  expect_right_after([](torch::nn::Module& m, torch::optim::Optimizer&) { m.named_parameters()["w"].set_data(transposed()); });
}

TEST(BugBank, FMT_2_AMomentWithOtherStrides) {
  expect_right_after([](torch::nn::Module&, torch::optim::Optimizer& o) {
    static_cast<torch::optim::SGDParamState&>(*o.state().begin()->second).momentum_buffer(transposed());
  });
}

TEST(BugBank, FMT_2_AMomentThatMovesInItsStorage) {
  const auto on = [](std::int64_t offset) {
    return [=](torch::nn::Module&, torch::optim::Optimizer& o) {
      static_cast<torch::optim::SGDParamState&>(*o.state().begin()->second)
          .momentum_buffer(torch::arange(12, at::kFloat).as_strided({2, 3}, {3, 1}, offset));
    };
  };
  Twins twins(matrix_trainer);
  for (int s = 0; s < 2; s++) twins.step(batch(s));
  for (const std::int64_t offset : {0, 6, 3}) {
    twins.for_both(on(offset));
    for (int s = 0; s < 4; s++) twins.step(batch(s));
  }
}

TEST(BugBank, FMT_2_AGradientWithOtherStrides) {
  expect_right_after([](torch::nn::Module& m, torch::optim::Optimizer&) { m.parameters()[0].mutable_grad() = transposed(); },
                     /*to_none=*/false);
}

TEST(BugBank, GRD_4_AGradientThatMovesInItsStorage) {
  const auto on = [](std::int64_t offset) {
    return [=](torch::nn::Module& m, torch::optim::Optimizer&) {
      m.parameters()[0].mutable_grad() = placed(torch::arange(12, at::kFloat), offset, {2, 3}, {3, 1});
    };
  };
  auto options = watched();
  options.zero_grad_to_none = false;
  Twins twins(matrix_trainer, options);
  for (const std::int64_t offset : {0, 6, 3}) {
    twins.for_both(on(offset));
    for (int s = 0; s < 4; s++) twins.step(batch(s));
  }
}

auto two_parameters() {
  auto module = bag();
  const auto a = module->register_parameter("a", torch::ones(2)), b = module->register_parameter("b", torch::ones(2));
  return Trainer{module, sgd({a, b}, 0.1, 0.9), [=](const at::Tensor& x) { return (a * x).sum() + (b * b * x).sum(); }};
}

TEST(BugBank, GRD_4_GradientsInOneFlatTensorThenApart) {
  auto options = watched();
  options.zero_grad_to_none = false;
  Twins twins(two_parameters, options);
  const auto place = [&](bool flat, bool reversed) {
    twins.for_both([&](torch::nn::Module& m, torch::optim::Optimizer&) {
      const auto one = torch::zeros(4), two = flat ? one : torch::zeros(4);
      m.parameters()[0].mutable_grad() = placed(one, reversed ? 2 : 0, {2}, {1});
      m.parameters()[1].mutable_grad() = placed(two, reversed ? 0 : 2, {2}, {1});
    });
    for (int s = 0; s < 5; s++) twins.step(torch::full({2}, double(s)));
  };
  place(true, false);
  place(false, false);
  place(true, true);
  place(true, false);
}

TEST(BugBank, GRD_4_MomentsInOneFlatTensorThenApart) {
  Twins twins(two_parameters);
  twins.step(torch::ones(2));
  const auto place = [&](bool flat) {
    twins.for_both([&](torch::nn::Module& m, torch::optim::Optimizer& o) {
      const auto one = torch::zeros(4), two = flat ? one : torch::zeros(4);
      const auto set = [&](const at::Tensor& p, const at::Tensor& to) {
        static_cast<torch::optim::SGDParamState&>(*o.state().at(p.unsafeGetTensorImpl())).momentum_buffer(to);
      };
      set(m.parameters()[0], one.slice(0, 0, 2));
      set(m.parameters()[1], two.slice(0, 2, 4));
    });
    for (int s = 0; s < 5; s++) twins.step(torch::full({2}, double(s)));
  };
  place(true);
  place(false);
  place(true);
}

TEST(BugBank, GRD_4_TwoParametersThatStartToShareMemory) {
  Twins twins(two_parameters);
  for (int s = 0; s < 5; s++) twins.step(torch::full({2}, double(s)));
  twins.for_both([](torch::nn::Module& m, torch::optim::Optimizer&) { m.parameters()[1].set_data(m.parameters()[0].detach()); });
  for (int s = 0; s < 5; s++) twins.step(torch::full({2}, double(s)));
  twins.for_both([](torch::nn::Module& m, torch::optim::Optimizer&) { m.parameters()[1].set_data(torch::ones(2)); });
  for (int s = 0; s < 5; s++) twins.step(torch::full({2}, double(s)));
}

}  // namespace
}  // namespace tandem::test
