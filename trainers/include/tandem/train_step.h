// One training step, recorded and replaced.
#pragma once

#include "tandem/function.h"
#include "tandem/options.h"
#include "tandem/report.h"

#include <memory>
#include <utility>
#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace tandem {

struct StepResult {
  at::Tensor loss;                  ///< the step's loss, detached
  std::vector<at::Tensor> outputs;  ///< the loss function's further tensors, detached
  at::Tensor grad_norm;             ///< 0-dim total norm before clipping; undefined without clip_grad_norm or without an update
  bool compiled = false;            ///< a plan ran
  bool updated = false;             ///< the optimizer stepped (false inside an accumulation)
};

/// Replaces one training step: zero_grad, forward, backward, clipping, update.
///
/// The first steps run eager and are recorded. Once two recordings agree and the recorded graph was proved equal to eager on the caller's own
/// batch, the graph replaces the eager step; otherwise the step stays eager and `report()` says why. State stays in the caller's module and
/// optimizer: learning rates, betas, checkpoints and schedulers keep working.
///
/// The loss function is called in each step: its ops are compared with the recorded ones and not computed, so that host state (a member, a branch, a
/// loop count, a number that changes) does what it does in eager. It may read a number that the step computes: the plan is cut there.
///
/// Steps of several objects may run beside each other. One object is stepped by one thread at a time, whichever that is; report() waits for it.
class TrainStep {
 public:
  /// `model`: a ModuleHolder, a shared_ptr to a Module or a Module&. `loss`: a callable of 0 to 8 tensors that returns the loss (one element,
  /// requires grad), or a tuple, pair or vector of the loss and further tensors. Throws Error for options that make no sense.
  template <class Model, class Loss>
  TrainStep(Model& model, torch::optim::Optimizer& optimizer, Loss loss, Options options = {})
      : TrainStep(detail::module_of(model), optimizer, detail::erase(std::move(loss)), std::move(options)) {}

  /// The caller's whole step: zero_grad, forward, backward, clipping, optimizer.step() in `body`, a callable of 0 to 8 tensors that returns nothing, a
  /// tensor (the loss), or a tuple, pair or vector of tensors. Any optimizer, several of them, several backward calls. Replay is full. Options that
  /// concern what `body` does itself (clip_*, accumulate, keep_grads, zero_grad_to_none) must be left alone.
  template <class Body>
  requires(detail::is_body<Body> && !std::is_same_v<Body, TrainStep>) explicit TrainStep(Body body, Options options = {})
      : TrainStep(detail::erase(std::move(body)), std::move(options)) {}

  TrainStep(TrainStep&&) noexcept;
  TrainStep& operator=(TrainStep&&) noexcept;
  ~TrainStep();

  /// Runs one step (with `accumulate` = k: one micro-batch; every k-th call updates). Throws Error for wrong use before anything has changed;
  /// what eager would throw comes through unchanged, and leaves what eager leaves.
  template <class... T>
  StepResult operator()(const T&... inputs) {
    return run(detail::Inputs{at::Tensor(inputs)...});
  }
  StepResult run(const detail::Inputs& inputs);

  /// Applies the update of an incomplete accumulation now; does nothing when there is none. Returns whether it updated.
  bool flush();

  Report report() const;

 private:
  TrainStep(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer, std::vector<detail::LossFunction> loss,
            Options options);
  TrainStep(std::vector<detail::LossFunction> body, Options options);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
