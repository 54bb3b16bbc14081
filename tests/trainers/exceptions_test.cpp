// A compiled step that throws leaves buffers, gradients, state, generator and version counters as an eager one; the next step works.
#include "tests/support/lockstep.h"

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }
Inputs bad_batch(std::uint64_t seed) {
  auto in = batch(seed);
  in[1][2] = 99;
  return in;
}

/// Steps that throw under an active plan, twice in a row, then good ones; Lockstep compares everything after each.
void expect_as_eager(Lockstep& l) {
  l.activate(batch);
  EXPECT_NE(l.step(bad_batch(100)).error, "");
  EXPECT_NE(l.step(bad_batch(101)).error, "");
  EXPECT_TRUE(l.step(batch(102)).compiled) << l.report().to_string();
  l.step(batch(103));
  l.step(bad_batch(104));
  EXPECT_TRUE(l.step(batch(105)).compiled) << l.report().to_string();
}

TEST(Exceptions, ABadClassLabel) {
  Lockstep l([] { return mlp(); });
  expect_as_eager(l);
}

TEST(Exceptions, ABadClassLabelWithAdam) {
  Lockstep l([] { return mlp([](auto p) { return adam(std::move(p), 0.01); }); });
  expect_as_eager(l);
}

TEST(Exceptions, WithGradientsDroppedAfterTheUpdate) {
  Lockstep l([] { return mlp(); }, {.shadow_every = 1000});
  expect_as_eager(l);
}

TEST(Exceptions, WithGradientsZeroedInPlace) {
  Options o = watched();
  o.zero_grad_to_none = false;
  Lockstep l([] { return mlp(); }, o);
  expect_as_eager(l);
}

TEST(Exceptions, WithDecomposedNodes) {
  Options o = watched();
  o.decompose = true;
  Lockstep l([] { return mlp(); }, o, 1e-5);
  expect_as_eager(l);
}

TEST(Exceptions, AtEachMicroBatch) {
  for (int micro = 0; micro < 3; micro++) {
    Options o = watched();
    o.accumulate = 3;
    Lockstep l([] { return mlp(); }, o);
    l.steps(15 + micro, batch);
    EXPECT_NE(l.step(bad_batch(100)).error, "") << "micro-batch " << micro;
    for (std::uint64_t i = 0; i < 4; i++) EXPECT_TRUE(l.step(batch(101 + i)).compiled) << l.report().to_string();
  }
}

TEST(Exceptions, BeforeBatchNormHasCounted) {
  // The embedding throws first: the running statistics must not have moved.
  struct Net : MlpNet {
    Net() { register_module("table", table); }
    torch::nn::Embedding table{4, 6};
  };
  Lockstep l([] {
    return make_toy<Net>(momentum_sgd,
                         [](Net& net, const at::Tensor& x, const at::Tensor& y) { return net.forward(x + net.table(y)).square().mean(); });
  });
  expect_as_eager(l);
}

TEST(Exceptions, InAShadowStep) {
  Options o = watched();
  o.shadow_every = 2;
  Lockstep l([] { return mlp(); }, o);
  l.activate(batch);
  EXPECT_NE(l.step(bad_batch(100)).error, "");
  l.steps(4, batch);
  EXPECT_TRUE(l.report().active) << l.report().to_string();
}

/// The backward of a matrix inverse of what the input scales; throws in the forward when the input makes it singular.
TEST(Exceptions, OfLinearAlgebra) {
  Lockstep l([] {
    return make_toy<MlpNet>(momentum_sgd, [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
      const auto h = net.forward(x).narrow(0, 0, 4) * x[0][0];
      return (h.t().matmul(h)).inverse().mean() + h.mean();
    });
  });
  l.activate(batch);
  auto bad = batch(100);
  bad[0][0][0] = 0;
  EXPECT_NE(l.step(bad).error, "");
  l.step(batch(101));
}

TEST(Exceptions, AGraphFromBeforeTheStepThrowsWhereAnEagerStepMakesItThrow) {
  // The step writes the buffer that the older graph has saved.
  const auto make = mlp_with([](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
    const at::NoGradGuard no_grad;
    net.norm->running_mean.add_(1);
    const at::AutoGradMode grad(true);
    return net.forward(x).square().mean();
  });
  Lockstep l(make);
  l.activate(batch);
  std::vector<at::Tensor> old;
  l.for_both([&](Toy& t) {
    const auto names = t.module->named_parameters();
    old.push_back((names["norm.weight"] * t.module->named_buffers()["norm.running_mean"]).sum());
  });
  EXPECT_TRUE(l.step(batch(100)).compiled);
  for (auto& o : old) EXPECT_THROW(o.backward(), c10::Error);
}

}  // namespace
}  // namespace tandem::test
