// One eager step as TrainStep defines it, with the marks that a recording needs.
#pragma once

#include "autograd/autograd_graph.h"
#include "autograd/capture.h"
#include "tandem/tandem.h"
#include "trainers/world.h"

#include <string>
#include <vector>

namespace tandem {

/// Throws Error for options that make no sense.
void check_options(const Options& options);
/// The same for a step whose body is the caller's own.
void check_body_options(const Options& options);

struct StepKind {
  bool first_micro = true;      // zero_grad comes first
  bool updates = true;          // clipping and the optimizer come last
  bool update_recorded = true;  // the optimizer's step is part of the recording (and of the plan)
};

struct EagerResult {
  at::Tensor loss, grad_norm;
  std::vector<at::Tensor> outputs;
  AutogradLook look;
  bool stopped = false;  // behind the closure, as the observer wanted; nothing else is filled in then
};

/// Who looks on while a step runs. Its listener sees the ops; what is done in the other functions it does not see.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual OpListener& listener() = 0;
  virtual void set_side(Side) = 0;
  /// Whether the rest of the step is not to run: a plan does it.
  virtual bool closure_returned(std::vector<at::Tensor>& returned, std::uint64_t first_sequence) = 0;
  virtual void before_update() = 0;
  virtual void begin_optimizer() = 0;
};

class EagerStepRunner {
 public:
  /// `whole`: the loss function is the caller's whole step, nothing is done around it.
  EagerStepRunner(World& world, const std::vector<detail::LossFunction>& loss, const Options& options, bool whole)
      : world_(world), loss_(loss), options_(options), whole_(whole) {}

  /// `observer`: may be nullptr. The optimizer's step itself runs here only when `kind.update_recorded`.
  EagerResult run(const std::vector<at::Tensor>& inputs, const StepKind& kind, StepObserver* observer);

  /// Clips as the options say; undefined without clip_grad_norm.
  at::Tensor clip();
  void zero_grad();
  /// After an update: gradients go unless they are to be kept.
  void drop_gradients();
  bool keeps_gradients() const { return options_.keep_grads || !options_.zero_grad_to_none; }

 private:
  void check_loss(const std::vector<at::Tensor>& returned, const AutogradLook& look);

  World& world_;
  const std::vector<detail::LossFunction>& loss_;
  const Options& options_;
  bool whole_;
};

}  // namespace tandem
