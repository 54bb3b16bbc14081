// How a call in the dispatcher is read: the names, numbers and constants in it.
#pragma once

#include "autograd/graph.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>

namespace torch::autograd {
struct Node;
}

namespace tandem {

std::string full_name(const c10::OperatorHandle& op);  // "aten::add.Tensor"

inline bool is_strided(const at::Tensor& t) { return t.layout() == at::kStrided && t.has_storage(); }

/// Numbers that ATen wraps into 0-dim tensors are constants, not storages.
inline bool is_wrapped_number(const at::Tensor& t) {
  return t.dim() == 0 && t.unsafeGetTensorImpl()->is_wrapped_number() && t.device().is_cpu();
}
Constant number_of(const at::Tensor& wrapped);

/// False for what a recording cannot hold.
bool to_constant(const c10::IValue& v, Constant& out);

/// Names of autograd nodes are made relative to the step's first sequence number, so that two recordings of one step agree.
std::string autograd_name(torch::autograd::Node& node, std::int64_t first);

}  // namespace tandem
