// The eager side of a program: its steps as a user's own loop, what they leave, and the same steps in double as the judge of rounding.
#pragma once

#include "tandem/tandem.h"
#include "tests/fuzz/model.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tandem::fuzz {

/// Everything that a step leaves behind, by name and in order; handles, unless copied.
struct Left {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::vector<std::pair<std::string, std::int64_t>> counters;
  std::string error;  // what the step threw
  Left copy() const;
};

/// Parameters, buffers, optimizer state, gradients.
Left state_of(const Training&);
/// The same with what the step returned and the inputs in front.
Left all_of(const Training&, const Tensors& returned, const Tensors& inputs);

/// A loop as users write it, with what Options can ask for.
class EagerSide {
 public:
  EagerSide(Training training, Options options) : training_(std::move(training)), options_(std::move(options)) {}
  Tensors step(const Tensors& inputs);
  Training& training() { return training_; }
  std::int64_t micro() const { return micro_; }
  void set_micro(std::int64_t micro) { micro_ = micro; }

 private:
  void update();
  Training training_;
  Options options_;
  std::int64_t micro_ = 0;
};

/// The state before a step, from which it can be repeated in double.
class Snapshot {
 public:
  Snapshot(const EagerSide&, const Step&, const Tensors& inputs);
  /// What the step leaves when the judge does it.
  Left repeat(const Program&, const Options&, const Judge&) const;

 private:
  Tensors parameters_, gradients_, buffers_, inputs_;
  std::vector<std::shared_ptr<torch::optim::OptimizerParamState>> entries_;  // by position; may be null
  std::vector<at::ScalarType> dtypes_;                                       // of the parameters
  std::vector<double> lr_;
  at::Tensor generator_;
  std::int64_t micro_;
  bool training_;
};

}  // namespace tandem::fuzz
