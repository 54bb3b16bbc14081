// One eager step as TrainStep defines it, with the marks that a recording needs.
#pragma once

#include "autograd/autograd_graph.h"
#include "autograd/capture.h"
#include "tandem/tandem.h"
#include "trainers/world.h"

#include <functional>
#include <string>
#include <vector>

namespace tandem {

/// Throws Error for options that make no sense.
void check_options(const Options& options);

struct StepKind {
  bool first_micro = true;      // zero_grad comes first
  bool updates = true;          // clipping and the optimizer come last
  bool update_recorded = true;  // the optimizer's step is part of the recording (and of the plan)
};

struct EagerResult {
  at::Tensor loss, grad_norm;
  std::vector<at::Tensor> outputs;
  AutogradLook look;
};

class EagerStepRunner {
 public:
  EagerStepRunner(World& world, const std::vector<detail::LossFunction>& loss, const Options& options)
      : world_(world), loss_(loss), options_(options) {}

  /// `recorder`: may be nullptr. `before_update` is called between backward and the update side, with the key switched off.
  /// The optimizer's step itself runs here only when `kind.update_recorded`.
  EagerResult run(const std::vector<at::Tensor>& inputs, const StepKind& kind, Recorder* recorder,
                  const std::function<void()>& before_update);

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
};

}  // namespace tandem
