// The training steps that benchmarks and model tests share: small models of different character, each with its loss, data and optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tandem::bench {

struct Workload {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(at::Tensor, at::Tensor)> loss;
  std::int64_t batch = 0, small_batch = 0;
  std::function<std::pair<at::Tensor, at::Tensor>(std::int64_t batch)> data;  // random input and target from the default generator
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor> params)> make_optimizer;
};

/// In the order of the bench table.
std::vector<std::string> workload_names();

/// Throws Error for a name that is not one of workload_names().
void check_workload_name(const std::string& name);

/// Parameters are drawn from the default generator. Throws as check_workload_name().
Workload make_workload(const std::string& name);

}  // namespace tandem::bench
