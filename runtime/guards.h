// When a plan may be used: everything about a step, beyond the values, that decides which ops eager would run.
#pragma once

#include "autograd/graph.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace tandem {

/// What a plan assumes of one tensor. For inputs the place in its storage may move (mini-batches are slices); for all others it is part of the
/// guard, for leaves and buffers the storage itself too.
struct TensorGuard {
  bool defined = false, requires_grad = false, leaf = true, conj = false, neg = false, inference = false, strided = true;
  bool number = false, zero = false;  // ATen's 0-dim "wrapped number"; its zero tensor without memory
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  std::vector<std::int64_t> sizes, strides;
  std::int64_t alignment = 0;     // of the address, modulo the element size
  const void* storage = nullptr;  // leaves and buffers; inputs leave it out
  std::int64_t offset = 0;        // all but inputs: bytes into the storage
  std::int32_t shares_with = -1;  // first tensor of the step (inputs, leaves, buffers, state, gradients) on the same storage, if not itself
  std::int64_t shift = 0;         // where it shares: bytes between the two tensors' starts
  bool operator==(const TensorGuard&) const = default;
};

struct Signature {
  std::vector<TensorGuard> inputs, leaves, buffers, state, gradients;  // gradients: per leaf, at the start of the step
  std::vector<char> hooked;                                            // per leaf
  std::vector<char> training;                                          // per module, in the order of Module::modules()
  std::string optimizer;                                               // OptimizerFormula::variant(), or the class when it runs eager
  bool first_micro = true, updates = true;                             // place in an accumulation
  bool grad_mode = true, inference_mode = false, deterministic = false, autocast = false, anomaly = false;
  c10::ScalarType autocast_dtype = c10::ScalarType::Undefined, default_dtype = c10::ScalarType::Float;
  bool operator==(const Signature&) const = default;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// The tensors of a step before it runs.
struct Tensors {
  const std::vector<at::Tensor>& inputs;
  const std::vector<NamedTensor>& leaves;
  const std::vector<NamedTensor>& buffers;
  std::vector<at::Tensor> state;      // the optimizer's
  std::vector<at::Tensor> gradients;  // per leaf; undefined where there is none, or where zero_grad is going to drop it
};

/// Reads the state of the world; the caller fills in training flags, optimizer and accumulation.
Signature observe(const Tensors& tensors);

/// Empty when equal; otherwise one sentence about the first difference: what the plan expects, what was found, where.
std::string difference(const Signature& plan, const Signature& now, const std::vector<NamedTensor>& leaves,
                       const std::vector<NamedTensor>& buffers);

/// "float32 [32, 20], int64 [32]"
std::string describe(const Signature& signature);

}  // namespace tandem
