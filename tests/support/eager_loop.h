// What a user writes by hand for what TrainStep does.
#pragma once

#include "tests/support/toy.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tandem::test {

/// A user's eager step with what Options can ask for, written with LibTorch's own functions.
class EagerLoop {
 public:
  EagerLoop(Toy toy, Options options) : toy_(std::move(toy)), options_(std::move(options)) {}

  struct Result {
    Inputs returned;
    std::optional<double> grad_norm;
    bool updated = false;
  };
  Result step(const Inputs& in) {
    auto& optimizer = *toy_.optimizer;
    Result r;
    if (dynamic_cast<torch::optim::LBFGS*>(&optimizer)) {
      optimizer.step([&] {
        const auto returned = forward_backward(in);
        if (r.returned.empty()) r.returned = returned;
        return returned[0];
      });
      r.updated = true;
      drop();
      return r;
    }
    r.returned = forward_backward(in);
    if (micro_ + 1 == options_.accumulate)
      update(r);
    else
      micro_++;
    return r;
  }
  void update(Result& r) {
    std::vector<at::Tensor> parameters;
    for (const auto& g : toy_.optimizer->param_groups()) parameters.insert(parameters.end(), g.params().begin(), g.params().end());
    if (options_.clip_grad_norm)
      r.grad_norm = torch::nn::utils::clip_grad_norm_(parameters, *options_.clip_grad_norm, options_.clip_norm_type);
    if (options_.clip_grad_value) torch::nn::utils::clip_grad_value_(parameters, *options_.clip_grad_value);
    toy_.optimizer->step();
    r.updated = true;
    micro_ = 0;
    drop();
  }
  Toy& toy() { return toy_; }

 private:
  Inputs forward_backward(const Inputs& in) {
    if (micro_ == 0) toy_.optimizer->zero_grad(options_.zero_grad_to_none);
    auto returned = toy_.loss(in.at(0), in.at(1));
    returned[0].backward();
    for (auto& t : returned) t = t.defined() ? t.detach() : t;
    return returned;
  }
  void drop() {
    if (options_.zero_grad_to_none && !options_.keep_grads) toy_.optimizer->zero_grad(true);
  }

  Toy toy_;
  Options options_;
  std::int64_t micro_ = 0;
};

}  // namespace tandem::test
