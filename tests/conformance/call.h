// Calling ops by name with boxed arguments.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string_view>
#include <vector>

namespace tandem::test {

using Values = std::vector<c10::IValue>;

c10::OperatorHandle handle_of(std::string_view op);  // throws where LibTorch does not know it

/// The op's own kernel, nothing recorded by autograd. Throws what the op throws.
Values call(const c10::OperatorHandle& op, Values arguments);

/// The same values with each defined tensor replaced, those in lists included.
Values with_tensors(const Values& values, const std::function<at::Tensor(const at::Tensor&)>& f);
/// Every tensor in order, undefined ones included; absent ones in lists and optional arguments left out.
std::vector<at::Tensor> tensors_in(const Values& values);

/// A tensor on memory of its own, with the same geometry on equal bytes.
at::Tensor copy_of(const at::Tensor& t);

}  // namespace tandem::test
