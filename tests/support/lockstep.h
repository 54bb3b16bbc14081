// A step held against the same step written as a plain eager loop.
#pragma once

#include "tests/support/eager_loop.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tandem::test {

inline TrainState state_of(const Toy& toy) {
  if (!dynamic_cast<const torch::optim::LBFGS*>(toy.optimizer.get())) return train_state(*toy.module, *toy.optimizer);
  TrainState out;
  for (const auto& item : toy.module->named_parameters()) out.tensors.emplace_back(item.key(), item.value());
  return out;
}

/// Version counters of everything that lasts: what an old graph's backward would notice.
inline std::string versions(const TrainState& state) {
  std::string text;
  for (const auto& [name, tensor] : state.tensors)
    text += fmt::format("{} {}\n", name, tensor.defined() ? std::int64_t(tensor._version()) : -1);
  return text;
}

/// Empty when no element is farther away than `tolerance` with kernels; bit for bit without.
inline std::string distance(const at::Tensor& found, const at::Tensor& expected, double tolerance) {
  if (!with_kernels()) return difference(found, expected);
  if (found.sizes() != expected.sizes()) return "has other sizes";
  const double gap =
      found.numel() == 0 ? 0 : (found.detach().to(at::kDouble) - expected.detach().to(at::kDouble)).abs().max().item<double>();
  return gap <= tolerance ? "" : fmt::format("is off by {:g}", gap);
}

/// Empty when all elements are within the tolerance.
inline std::string far_apart(const TrainState& found, const TrainState& expected, double tolerance) {
  for (std::size_t i = 0; i < expected.tensors.size(); i++) {
    const auto &a = found.tensors.at(i).second, &b = expected.tensors[i].second;
    if (a.defined() != b.defined()) return expected.tensors[i].first + " is defined on one side only";
    if (!a.defined() || a.numel() == 0) continue;
    const double gap = (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs().max().item<double>();
    if (!(gap <= tolerance)) return fmt::format("{} is off by {:g}", expected.tensors[i].first, gap);
  }
  return "";
}

/// A TrainStep and the EagerLoop of the same toy, step by step, each on its own copy of the inputs and from the same place of the
/// generator. After each step everything that they leave must be the same.
class Lockstep {
 public:
  explicit Lockstep(const MakeToy& make, Options options = watched(), double tolerance = 0)
      : plan_(make()), eager_(make(), options), step_(plan_.module, *plan_.optimizer, plan_.loss, as_tested(options)),
        tolerance_(tolerance) {}

  Outcome step_each(const Inputs& mine, const Inputs& eagers) {
    const auto generator = generator_state();
    EagerLoop::Result eager;
    const Outcome expected = Outcome::of([&](Outcome& o) {
      eager = eager_.step(eagers);
      o.returned = eager.returned;
    });
    set_generator_state(generator);
    const Outcome found = Outcome::of([&](Outcome& o) {
      last_ = step_.run(mine);
      o.returned = {last_.loss};
      o.returned.insert(o.returned.end(), last_.outputs.begin(), last_.outputs.end());
      o.compiled = last_.compiled;
    });
    SCOPED_TRACE(fmt::format("step {} ({})", ++steps_, found.compiled ? "compiled" : "eager"));
    compare(found, expected);
    if (found.error.empty()) {
      EXPECT_EQ(last_.updated, eager.updated);
      EXPECT_EQ(last_.grad_norm.defined(), eager.grad_norm.has_value());
      if (last_.grad_norm.defined() && eager.grad_norm) {
        EXPECT_EQ(far(last_.grad_norm, {*eager.grad_norm}, with_kernels() ? 1e-5 * *eager.grad_norm : 0), "") << "grad_norm";
      }
    }
    return found;
  }
  Outcome step(const Inputs& in) {
    Inputs mine, eagers;
    for (const auto& t : in) {
      mine.push_back(t.clone());
      eagers.push_back(t.clone());
    }
    return step_each(mine, eagers);
  }
  void steps(int n, const std::function<Inputs(std::uint64_t)>& batch) {
    for (int i = 0; i < n; i++) step(batch(std::uint64_t(steps_) + 1));
  }
  /// Steps until a plan runs, six at most; a test that needs one fails here.
  void activate(const std::function<Inputs(std::uint64_t)>& batch) {
    for (int i = 0; i < 6; i++)
      if (step(batch(std::uint64_t(steps_) + 1)).compiled) return;
    ADD_FAILURE() << "no plan became active: " << report().to_string();
  }

  template <class F>
  void for_both(F&& f) {
    f(plan_);
    f(eager_.toy());
  }
  TrainStep& tandem() { return step_; }
  Toy& plan_side() { return plan_; }
  EagerLoop& eager_side() { return eager_; }
  const StepResult& last() const { return last_; }
  Report report() const { return step_.report(); }
  void compare_state() {
    const auto found = state_of(plan_), expected = state_of(eager_.toy());
    if (tolerance_ > 0) {
      EXPECT_EQ(far_apart(found, expected, tolerance_), "");
      return;
    }
    EXPECT_EQ(difference(found, expected), "");
    EXPECT_EQ(difference(gradients(*plan_.module), gradients(*eager_.toy().module)), "");
    EXPECT_EQ(versions(found), versions(expected));
    follow(found, expected);
    follow(gradients(*plan_.module), gradients(*eager_.toy().module));
  }

 private:
  void compare(const Outcome& found, const Outcome& expected) {
    EXPECT_EQ(found.error, expected.error);
    EXPECT_EQ(found.type, expected.type);
    EXPECT_EQ(difference(found.generator, expected.generator), "") << "the generator's position";
    ASSERT_EQ(found.returned.size(), expected.returned.size());
    for (std::size_t i = 0; tolerance_ == 0 && i < expected.returned.size(); i++)
      EXPECT_EQ(difference(found.returned[i], expected.returned[i]), "") << "returned tensor " << i;
    compare_state();
  }

  Toy plan_;
  EagerLoop eager_;
  TrainStep step_;
  StepResult last_;
  double tolerance_;
  int steps_ = 0;
};

/// Whether the reason or an event of the report reads so.
inline bool says(const Report& report, const std::string& part) {
  if (report.reason.find(part) != std::string::npos) return true;
  for (const auto& e : report.events)
    if (e.sentence.find(part) != std::string::npos) return true;
  return false;
}
inline std::int64_t events(const Report& report, const std::string& kind) {
  std::int64_t n = 0;
  for (const auto& e : report.events) n += e.kind == kind;
  return n;
}
inline std::int64_t active_plans(const Report& report) {
  std::int64_t n = 0;
  for (const auto& p : report.plans) n += p.active;
  return n;
}

}  // namespace tandem::test
