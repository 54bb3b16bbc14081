// A compiled function and plain eager, each on its own copy of the same module, called in turn and compared after each call.
#pragma once

#include "tandem/compile.h"
#include "tests/support/lockstep.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tandem::test {

/// No shadow call comes between.
inline Options calls() { return as_tested({.shadow_every = 1000}); }

/// What a function made of tensors gives, flattened.
template <class R>
Inputs flat(const R& result) {
  detail::Flat out;
  detail::Packing<R>::flatten(result, out);
  return out.tensors;
}

/// The sum of products with fixed numbers: a loss that tells outputs apart. Undefined where nothing is differentiable.
inline at::Tensor weighted(const Inputs& outputs) {
  at::Tensor loss;
  std::uint64_t seed = 5;
  for (const auto& t : outputs) {
    if (!t.defined() || !t.requires_grad()) continue;
    const auto term = (t * normal(t.sizes(), ++seed).to(t.scalar_type())).sum();
    loss = loss.defined() ? loss + term : term;
  }
  return loss;
}

template <class Net>
class CallTwins {
 public:
  explicit CallTwins(Options options = calls()) : mine_(make()), eagers_(make()), compiled_(compile(mine_, std::move(options))) {}

  /// One forward of both from the same place of the generator; everything is compared. `backward` is called with the outputs of each side.
  void call(
      const Inputs& inputs, const std::function<void(const Inputs&)>& backward = [](const Inputs& out) { weighted(out).backward(); }) {
    SCOPED_TRACE(fmt::format("call {}", ++calls_));
    Inputs mine, eager;
    for (const auto& t : inputs) {
      mine.push_back(copy(t));
      eager.push_back(copy(t));
    }
    const auto generator = generator_state();
    const auto before = report().compiled_steps;
    const auto expected = one(
        eager, backward, [&](const Inputs& in) { return std::apply([&](auto&... x) { return flat(eagers_->forward(x...)); }, tie(in)); });
    set_generator_state(generator);
    const auto found =
        one(mine, backward, [&](const Inputs& in) { return std::apply([&](auto&... x) { return flat(compiled_(x...)); }, tie(in)); });
    was_compiled_ = report().compiled_steps > before;
    EXPECT_EQ(found.error, expected.error);
    EXPECT_EQ(difference(found.generator, expected.generator), "") << "the generator's position";
    ASSERT_EQ(found.returned.size(), expected.returned.size());
    for (std::size_t i = 0; i < expected.returned.size(); i++) {
      EXPECT_EQ(difference(found.returned[i], expected.returned[i]), "") << "output " << i;
      EXPECT_EQ(found.returned[i].requires_grad(), expected.returned[i].requires_grad()) << "output " << i;
    }
    for (std::size_t i = 0; i < inputs.size(); i++) {
      EXPECT_EQ(difference(mine[i], eager[i]), "") << "input " << i;
      EXPECT_EQ(difference(gradient(mine[i]), gradient(eager[i])), "") << "gradient of input " << i;
    }
    compare_modules();
  }

  void compare_modules() {
    const auto parameters = eagers_->named_parameters();
    for (const auto& p : mine_->named_parameters()) {
      EXPECT_EQ(difference(p.value(), parameters[p.key()]), "") << p.key();
      EXPECT_EQ(difference(p.value().grad(), parameters[p.key()].grad()), "") << "gradient of " << p.key();
      EXPECT_EQ(p.value()._version(), parameters[p.key()]._version()) << p.key();
    }
    const auto buffers = eagers_->named_buffers();
    for (const auto& b : mine_->named_buffers()) {
      EXPECT_EQ(difference(b.value(), buffers[b.key()]), "") << b.key();
      EXPECT_EQ(b.value()._version(), buffers[b.key()]._version()) << b.key();
    }
  }

  /// Plain gradient descent on both sides; the eager side goes on from the other's numbers, so that rounding does not add up.
  void update(double rate = 0.1) {
    const at::NoGradGuard no_grad;
    for (auto* net : {mine_.get(), eagers_.get()})
      for (auto& p : net->parameters())
        if (p.grad().defined()) p.sub_(p.grad(), rate), p.mutable_grad().reset();
    const auto from = mine_->named_parameters();
    for (auto& p : eagers_->named_parameters()) p.value().set_data(from[p.key()].clone());
    const auto buffers = mine_->named_buffers();
    for (auto& b : eagers_->named_buffers())
      std::memcpy(b.value().mutable_data_ptr(), buffers[b.key()].const_data_ptr(), b.value().nbytes());
  }

  template <class F>
  void for_both(F&& f) {
    f(*mine_);
    f(*eagers_);
  }
  bool was_compiled() const { return was_compiled_; }
  Report report() const { return compiled_.report(); }
  Compiled<detail::Forward<std::shared_ptr<Net>>>& compiled() { return compiled_; }
  Net& mine() { return *mine_; }
  Net& eagers() { return *eagers_; }

 private:
  static std::shared_ptr<Net> make() {
    torch::manual_seed(11);
    return std::make_shared<Net>();
  }
  static at::Tensor copy(const at::Tensor& t) { return t.detach().clone().requires_grad_(t.requires_grad()); }
  static at::Tensor gradient(const at::Tensor& t) { return t.is_leaf() ? t.grad() : at::Tensor(); }
  static auto tie(const Inputs& in) { return std::tie(in.at(0)); }

  template <class F>
  static Outcome one(const Inputs& inputs, const std::function<void(const Inputs&)>& backward, F&& f) {
    return Outcome::of([&](Outcome& o) {
      const auto out = f(inputs);
      if (c10::GradMode::is_enabled() && backward) backward(out);
      for (const auto& t : out) o.returned.push_back(t);
    });
  }

  std::shared_ptr<Net> mine_, eagers_;
  Compiled<detail::Forward<std::shared_ptr<Net>>> compiled_;
  int calls_ = 0;
  bool was_compiled_ = false;
};

}  // namespace tandem::test
