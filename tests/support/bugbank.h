// A case of the bug bank: the same step as a plan and as a plain eager loop, run in lockstep and compared after each step.
#pragma once

#include "tandem/tandem.h"
#include "tests/support/state_equal.h"
#include "tests/support/train_state.h"
#include "tests/support/trainer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace tandem::test {

using Inputs = std::vector<at::Tensor>;

/// Gradients can be looked at, and no shadow step comes between.
inline Options watched() { return {.keep_grads = true, .shadow_every = 1000}; }

/// With generated kernels or without, as this run of the tests wants it.
inline Options as_tested(Options options) {
  options.fuse = options.fuse && with_kernels();
  return options;
}

inline std::string text_of(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  return error ? error->what_without_backtrace() : e.what();
}

/// What one call of a step gave back or threw.
struct Outcome {
  Inputs returned;
  std::string error, type;
  at::Tensor generator;  // its state afterwards
  bool compiled = false;

  template <class Call>
  static Outcome of(Call&& call) {
    Outcome o;
    try {
      call(o);
    } catch (const std::exception& e) {
      o.error = text_of(e);
      o.type = typeid(e).name();
    }
    o.generator = generator_state();
    return o;
  }
};

template <class Make>
class Twins {
  using Side = std::invoke_result_t<Make&>;

 public:
  bool eager_is_inexact = false;  // the test itself compares with exact numbers: eager's own error is larger than rounding

  /// `make` gives the same Trainer, without shared tensors, at each call.
  explicit Twins(Make make, Options options = watched())
      : make_(std::move(make)), options_(options), plan_(make_()), step_(plan_.module, *plan_.optimizer, plan_.loss, as_tested(options)) {
    eager_.emplace(make_());
  }

  /// One step of both, each on its own inputs and from the same place of the generator. Everything that is left behind must be the same.
  Outcome step_each(const Inputs& mine, const Inputs& eagers) {
    const auto generator = generator_state();
    const Outcome expected = Outcome::of([&](Outcome& o) { o.returned = eager_step(eagers); });
    set_generator_state(generator);
    const Outcome found = Outcome::of([&](Outcome& o) {
      const StepResult r = step_.run(mine);
      o.returned = {r.loss};
      o.returned.insert(o.returned.end(), r.outputs.begin(), r.outputs.end());
      o.compiled = r.compiled;
    });
    SCOPED_TRACE(fmt::format("step {} ({})", ++steps_, found.compiled ? "compiled" : "eager"));
    compare(found, expected);
    EXPECT_TRUE(found.compiled || !found.error.empty() || report().active || !report().reason.empty()) << "an eager step without a reason";
    return found;
  }
  template <class... T>
  Outcome step(const T&... inputs) {
    return step_each({inputs...}, {inputs...});
  }
  template <class... T>
  Outcome compiled_step(const T&... inputs) {
    Outcome found = step(inputs...);
    EXPECT_TRUE(found.compiled) << "not compiled: " << report().to_string();
    return found;
  }

  /// Back to the documented start: the eager side is made anew, the plan's state is set in place.
  void restart() {
    eager_.emplace(make_());
    const at::NoGradGuard no_grad;
    const auto copy = [](const auto& from, const auto& to) {
      for (const auto& item : from) to[item.key()].copy_(item.value());
    };
    copy(eager_->module->named_parameters(), plan_.module->named_parameters());
    copy(eager_->module->named_buffers(), plan_.module->named_buffers());
    for (const auto& p : plan_.module->parameters()) p.mutable_grad().reset();
    forget(*plan_.optimizer);
  }

  /// Steps from the documented start, again and again, until a plan runs; both sides are back at the start afterwards.
  template <class... T>
  bool warm_up(const T&... inputs) {
    bool compiled = false;
    for (int n = 0; n < 6 && !compiled; n++) {
      compiled = step(inputs...).compiled;
      restart();
    }
    return compiled;
  }

  template <class F>
  void for_both(F&& f) {
    f(*plan_.module, *plan_.optimizer);
    f(*eager_->module, *eager_->optimizer);
  }
  at::Tensor parameter(const std::string& name) const { return plan_.module->named_parameters()[name]; }
  at::Tensor gradient(const std::string& name) const { return parameter(name).grad(); }
  at::Tensor buffer(const std::string& name) const { return plan_.module->named_buffers()[name]; }
  torch::optim::Optimizer& optimizer() { return *plan_.optimizer; }
  Report report() const { return step_.report(); }

 private:
  Inputs eager_step(const Inputs& inputs) {
    eager_->optimizer->zero_grad(options_.zero_grad_to_none);
    auto returned = detail::erase(eager_->loss)[inputs.size()](inputs);
    returned[0].backward();
    eager_->optimizer->step();
    for (auto& t : returned) t = t.defined() ? t.detach() : t;
    return returned;
  }

  void compare(const Outcome& found, const Outcome& expected) {
    EXPECT_EQ(found.error, expected.error);
    EXPECT_EQ(found.type, expected.type);
    if (eager_is_inexact && with_kernels()) return;
    ASSERT_EQ(found.returned.size(), expected.returned.size());
    for (std::size_t i = 0; i < expected.returned.size(); i++)
      EXPECT_EQ(difference(found.returned[i], expected.returned[i]), "") << "returned tensor " << i;
    if (options_.keep_grads) {
      EXPECT_EQ(difference(gradients(*plan_.module), gradients(*eager_->module)), "");
    }
    const auto mine = train_state(*plan_.module, *plan_.optimizer), eagers = train_state(*eager_->module, *eager_->optimizer);
    EXPECT_EQ(difference(mine, eagers), "");
    follow(mine, eagers);
    EXPECT_EQ(difference(found.generator, expected.generator), "") << "the generator's position";
  }

  Make make_;
  Options options_;
  Side plan_;
  std::optional<Side> eager_;
  TrainStep step_;
  int steps_ = 0;
};

}  // namespace tandem::test
