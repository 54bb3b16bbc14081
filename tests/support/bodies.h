// A user's whole loop body as a plan and as it is, run in lockstep and compared after each step.
#pragma once

#include "tests/support/bugbank.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tandem::test {

/// A program whose step is written by hand: what lasts, and the body with zero_grad, forward, backward and optimizer.step() in it. The body returns
/// the loss and further tensors, or nothing.
struct Loop {
  std::shared_ptr<torch::nn::Module> module;
  std::vector<std::shared_ptr<torch::optim::Optimizer>> optimizers;
  std::function<Inputs(const Inputs&)> body;
};

/// A callable of any number of tensors.
struct AnyBody {
  std::function<Inputs(const Inputs&)> body;
  template <class... T>
  requires(std::is_convertible_v<T, at::Tensor>&&...) Inputs operator()(const T&... in) const { return body({in...}); }
};

template <class Make>
class BodyTwins {
 public:
  /// `make` gives the same Loop, without shared tensors, at each call.
  explicit BodyTwins(Make make, Options options = {.shadow_every = 1000})
      : plan_(make()), eager_(make()), step_(AnyBody{plan_.body}, as_tested(std::move(options))) {}

  Outcome step_each(const Inputs& mine, const Inputs& eagers) {
    const auto generator = generator_state();
    const Outcome expected = Outcome::of([&](Outcome& o) { o.returned = detached(eager_.body(eagers)); });
    set_generator_state(generator);
    const Outcome found = Outcome::of([&](Outcome& o) {
      const StepResult r = step_.run(mine);
      if (r.loss.defined()) o.returned.push_back(r.loss);
      o.returned.insert(o.returned.end(), r.outputs.begin(), r.outputs.end());
      o.compiled = r.compiled;
    });
    SCOPED_TRACE(fmt::format("step {} ({})", ++steps_, found.compiled ? "compiled" : "eager"));
    compare(found, expected);
    return found;
  }
  template <class... T>
  Outcome step(const T&... inputs) {
    return step_each({inputs.clone()...}, {inputs.clone()...});
  }
  template <class... T>
  Outcome compiled_step(const T&... inputs) {
    Outcome found = step(inputs...);
    EXPECT_TRUE(found.compiled) << "not compiled: " << report().to_string();
    return found;
  }
  /// Steps until a plan runs, six at most.
  template <class... T>
  void activate(const T&... inputs) {
    for (int n = 0; n < 6; n++)
      if (step(inputs...).compiled) return;
    ADD_FAILURE() << "no plan became active: " << report().to_string();
  }

  template <class F>
  void for_both(F&& f) {
    f(plan_);
    f(eager_);
  }
  at::Tensor parameter(const std::string& name) const { return plan_.module->named_parameters()[name]; }
  at::Tensor gradient(const std::string& name) const { return parameter(name).grad(); }
  at::Tensor buffer(const std::string& name) const { return plan_.module->named_buffers()[name]; }
  Report report() const { return step_.report(); }

 private:
  static Inputs detached(Inputs tensors) {
    for (auto& t : tensors) t = t.defined() ? t.detach() : t;
    return tensors;
  }
  void compare(const Outcome& found, const Outcome& expected) {
    EXPECT_EQ(found.error, expected.error);
    EXPECT_EQ(found.type, expected.type);
    EXPECT_EQ(difference(found.generator, expected.generator), "") << "the generator's position";
    ASSERT_EQ(found.returned.size(), expected.returned.size());
    for (std::size_t i = 0; i < expected.returned.size(); i++)
      EXPECT_EQ(difference(found.returned[i], expected.returned[i]), "") << "returned tensor " << i;
    EXPECT_EQ(difference(gradients(*plan_.module), gradients(*eager_.module)), "");
    follow(gradients(*plan_.module), gradients(*eager_.module));
    EXPECT_EQ(difference(module_state(*plan_.module), module_state(*eager_.module)), "");
    follow(module_state(*plan_.module), module_state(*eager_.module));
    for (std::size_t i = 0; i < eager_.optimizers.size(); i++) {
      const auto mine = train_state(*plan_.module, *plan_.optimizers[i]), eagers = train_state(*eager_.module, *eager_.optimizers[i]);
      EXPECT_EQ(difference(mine, eagers), "") << "optimizer " << i;
      follow(mine, eagers);
    }
  }

  Loop plan_, eager_;
  TrainStep step_;
  int steps_ = 0;
};

}  // namespace tandem::test
