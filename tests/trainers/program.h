// A user's whole training program, run twice from the same seed: plain, and with Tandem where it asks for it.
#pragma once

#include "tests/support/lockstep.h"

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tandem::test {

/// One run. What the program notes is compared with the other run.
class Program {
 public:
  explicit Program(bool with_tandem) : with_tandem_(with_tandem) {}

  /// zero_grad, forward, backward, update. `model` and `optimizer` outlive the result.
  template <class Model, class Loss>
  std::function<Inputs(Inputs)> step(Model& model, torch::optim::Optimizer& optimizer, Loss loss, Options options = {}) {
    if (with_tandem_) return watched(std::make_shared<TrainStep>(model, optimizer, std::move(loss), as_tested(options)));
    return [&optimizer, loss = detail::erase(std::move(loss))](const Inputs& in) {
      optimizer.zero_grad();
      auto returned = loss[in.size()](in);
      returned[0].backward();
      optimizer.step();
      optimizer.zero_grad();  // as TrainStep leaves it
      return detached(std::move(returned));
    };
  }

  /// A loop body that does everything itself.
  template <class Body>
  std::function<Inputs(Inputs)> body(Body body) {
    if (with_tandem_) return watched(std::make_shared<TrainStep>(std::move(body), as_tested({})));
    return [body = detail::erase(std::move(body))](const Inputs& in) { return detached(body[in.size()](in)); };
  }

  /// The module's forward, of one tensor, behind an autograd edge.
  template <class Module>
  auto forward(const std::shared_ptr<Module>& module) {
    using Result = decltype(module->forward(at::Tensor()));
    if (!with_tandem_) return std::function<Result(at::Tensor)>([module](const at::Tensor& x) { return module->forward(x); });
    auto compiled = compile(module, as_tested({}));
    reports_.emplace_back([compiled] { return compiled.report(); });
    return std::function<Result(at::Tensor)>([compiled](const at::Tensor& x) mutable { return compiled(x); });
  }

  void note(const std::string& name, const at::Tensor& t) { noted_.tensors.emplace_back(name, t.defined() ? t.detach().clone() : t); }
  void note(const std::string& name, double number) { note(name, torch::tensor(number, at::kDouble)); }
  void note_all(const Inputs& tensors) {
    for (const auto& t : tensors) note("result", t);
  }
  /// Parameters, gradients and buffers with their version counters, and the optimizer's state.
  void note_state(const torch::nn::Module& module) { add(module_state(module), gradients(module)); }
  void note_state(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer) {
    add(train_state(module, optimizer), gradients(module));
  }

  /// The host's own random numbers.
  bool coin(double probability = 0.5) { return std::uniform_real_distribution<double>()(host_) < probability; }
  std::int64_t number(std::int64_t below) { return std::uniform_int_distribution<std::int64_t>(0, below - 1)(host_); }

  const TrainState& noted() const { return noted_; }
  const std::string& versions_noted() const { return versions_; }
  std::vector<Report> reports() const {
    std::vector<Report> out;
    for (const auto& r : reports_) out.push_back(r());
    return out;
  }

 private:
  static Inputs detached(Inputs tensors) {
    for (auto& t : tensors) t = t.defined() ? t.detach() : t;
    return tensors;
  }
  std::function<Inputs(Inputs)> watched(std::shared_ptr<TrainStep> step) {
    reports_.emplace_back([step] { return step->report(); });
    return [step](const Inputs& in) {
      const auto r = step->run(in);
      Inputs out;
      if (r.loss.defined()) out.push_back(r.loss);
      out.insert(out.end(), r.outputs.begin(), r.outputs.end());
      return out;
    };
  }
  void add(const TrainState& state, const TrainState& grads) {
    versions_ += versions(state);
    for (const auto* s : {&state, &grads}) {
      for (const auto& [name, tensor] : s->tensors) note(name, tensor);
      noted_.counters.insert(noted_.counters.end(), s->counters.begin(), s->counters.end());
    }
  }

  bool with_tandem_;
  std::vector<std::function<Report()>> reports_;
  TrainState noted_;
  std::string versions_;
  std::mt19937 host_{7};
};

/// Both runs must note the same: bit for bit without kernels, else as far apart as rounding takes them over the whole run. `compiled`: how many calls
/// at least ran a plan, per object that the program has made; each must have an active one at the end.
inline void expect_as_eager(const std::function<void(Program&)>& program, const std::vector<std::int64_t>& compiled,
                            double tolerance = 1e-3) {
  const auto run = [&](Program& p) {
    torch::manual_seed(1234);
    program(p);
    p.note("generator", generator_state());
  };
  Program eager(false), mine(true);
  run(eager);
  run(mine);
  EXPECT_EQ(with_kernels() ? far_apart(mine.noted(), eager.noted(), tolerance) : difference(mine.noted(), eager.noted()), "");
  EXPECT_EQ(mine.noted().tensors.size(), eager.noted().tensors.size());
  EXPECT_EQ(mine.noted().counters, eager.noted().counters);
  EXPECT_EQ(mine.versions_noted(), eager.versions_noted());
  const auto reports = mine.reports();
  ASSERT_EQ(reports.size(), compiled.size());
  for (std::size_t i = 0; i < reports.size(); i++) {
    EXPECT_TRUE(reports[i].active) << reports[i].to_string();
    EXPECT_GE(reports[i].compiled_steps, compiled[i]) << reports[i].to_string();
  }
}

}  // namespace tandem::test
