// Every layer of torch::nn behind tandem::compile(), with the user's own backward() and optimizer, leaves what eager leaves.
#include "tests/layers/train_layer.h"

#if __has_include("tandem/compile.h")
#include "tandem/compile.h"

namespace tandem::test {
namespace {

/// The forward of a model, callable with any number of tensors.
struct AnyForward {
  std::function<Inputs(const Inputs&)> forward;
  template <class... T>
  requires(std::is_convertible_v<T, at::Tensor>&&...) Inputs operator()(const T&... in) const { return forward({in...}); }
};

template <class F>
Inputs call(F& f, const Inputs& in) {
  switch (in.size()) {
    case 1: return f(in[0]);
    case 2: return f(in[0], in[1]);
    case 3: return f(in[0], in[1], in[2]);
    case 4: return f(in[0], in[1], in[2], in[3]);
    default: throw std::logic_error("call: expected 1 to 4 tensors, found " + std::to_string(in.size()));
  }
}

/// A model with an optimizer of its own, and a step that a user writes around its forward.
struct Side {
  Side(const LayerCase& layer, bool odd) {
    torch::manual_seed(5);
    model = model_of(layer, odd);
    optimizer = momentum_sgd(model.module->parameters());
  }
  template <class F>
  Inputs step(F& forward, const Inputs& in) {
    optimizer->zero_grad();
    auto returned = call(forward, in);
    const auto loss = loss_of(returned);
    loss.backward();
    optimizer->step();
    for (auto& t : returned) t = t.detach();
    returned.push_back(loss.detach());
    return returned;
  }
  Layer model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

void expect_same(Side& mine, Side& eagers, const Inputs& found, const Inputs& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); i++) EXPECT_EQ(difference(found[i], expected[i]), "") << "result " << i;
  EXPECT_EQ(difference(gradients(*mine.model.module), gradients(*eagers.model.module)), "");
  const auto state = train_state(*mine.model.module, *mine.optimizer),
             expected_state = train_state(*eagers.model.module, *eagers.optimizer);
  EXPECT_EQ(difference(state, expected_state), "");
  follow(state, expected_state);
}

class CompiledLayerTest : public testing::TestWithParam<LayerVariant> {};

TEST_P(CompiledLayerTest, TrainsAsEager) {
  const auto& [layer, odd] = GetParam();
  Side mine(layer, odd), eagers(layer, odd);
  auto compiled = compile(AnyForward{mine.model.forward}, as_tested({.shadow_every = 1000}));
  AnyForward eager{eagers.model.forward};
  for (std::uint64_t s = 1; s <= 8; s++) {
    SCOPED_TRACE(fmt::format("step {}", s));
    const auto batch = (odd ? layer.odd : layer.small)(s), copy = (odd ? layer.odd : layer.small)(s);
    const auto generator = generator_state();
    const auto expected = eagers.step(eager, batch);
    const auto generator_after = generator_state();
    set_generator_state(generator);
    const auto found = mine.step(compiled, copy);
    expect_same(mine, eagers, found, expected);
    EXPECT_EQ(difference(generator_state(), generator_after), "") << "the generator's position";
  }
  const auto report = compiled.report();
  if (layer.eager_behind_compile.empty()) {
    EXPECT_GE(report.compiled_steps, 3) << report.to_string();
  } else {
    EXPECT_EQ(report.compiled_steps, 0);
    EXPECT_TRUE(is_expected(layer.eager_behind_compile, report.reason)) << "stays eager for another reason: " << report.reason;
  }
}
INSTANTIATE_TEST_SUITE_P(Compile, CompiledLayerTest, testing::ValuesIn(layer_variants()), name_of_variant);

}  // namespace
}  // namespace tandem::test
#endif
