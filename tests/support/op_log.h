// The ops that a function calls, as the recorder would see them, with their floating numbers.
#pragma once

#include "autograd/key.h"

#include <ATen/core/Tensor.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace tandem::test {

struct LoggedOp {
  std::string name;
  std::vector<double> numbers;  // arguments of type double, and those passed as "wrapped number" tensors
};

class OpLog : public OpListener {
 public:
  std::vector<LoggedOp> ops;

  void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) override {
    LoggedOp logged{toString(op.operator_name()), {}};
    for (auto& a : torch::jit::last(stack, op.schema().arguments().size())) {
      if (a.isDouble()) logged.numbers.push_back(a.toDouble());
      if (!a.isTensor() || !a.toTensor().defined()) continue;
      const at::Tensor& t = a.toTensor();
      if (t.unsafeGetTensorImpl()->is_wrapped_number() && t.scalar_type() == at::kDouble)
        logged.numbers.push_back(*static_cast<const double*>(t.const_data_ptr()));
    }
    ops.push_back(std::move(logged));
    redispatch(op, keys, stack);
  }
};

/// Runs f on this thread. What f throws comes through.
template <class F>
std::vector<LoggedOp> log_ops(F&& f) {
  if (auto refusal = claim_key(); !refusal.empty()) throw std::runtime_error(refusal);
  OpLog log;
  ListenScope listening(log);
  f();
  return std::move(log.ops);
}

}  // namespace tandem::test
