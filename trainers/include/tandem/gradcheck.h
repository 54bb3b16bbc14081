// Checks the gradients of a function of tensors against finite differences. Nothing is compiled or recorded for it.
#pragma once

#include "tandem/function.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

/// The defaults are those of torch.autograd.gradcheck.
struct GradcheckOptions {
  double eps = 1e-6;      ///< step of the central differences (f(x + eps) - f(x - eps)) / (2 eps)
  double atol = 1e-5;     ///< passes: |backward - difference| <= atol + rtol * |difference|, per element of the Jacobian
  double rtol = 1e-3;     ///< see atol
  double nondet_tol = 0;  ///< how much two equal runs may differ; 0: equal bits
  bool fast = false;      ///< compare v^T J u for one random u and v instead of every element; where it fails, every element is compared
  bool undefined_grad = true;  ///< backward must take undefined gradients of the outputs, as it gets them for outputs that nothing uses
  bool noncontiguous_grads = false;  ///< gradgradcheck: the gradients of the outputs that it makes are strided
};

struct GradcheckResult {
  bool passed = false;
  std::string message;  ///< when not passed: one sentence with the rule, output, input, element and both numbers
  explicit operator bool() const { return passed; }
};

namespace detail {
[[noreturn]] void wrong_number_of_inputs(std::size_t found);
GradcheckResult gradcheck(const LossFunction& function, const Inputs& inputs, const GradcheckOptions& options);
GradcheckResult gradgradcheck(const LossFunction& function, const Inputs& inputs, const Inputs& grad_outputs,
                              const GradcheckOptions& options);

template <class F>
LossFunction function_of(F f) {
  if constexpr (takes_tensors<F>())
    return [by_number = erase(std::move(f))](const Inputs& in) {
      if (in.size() >= by_number.size() || !by_number[in.size()]) wrong_number_of_inputs(in.size());
      return by_number[in.size()](in);
    };
  else
    return [f = std::move(f)](const Inputs& in) mutable { return as_list(f(in)); };
}
}  // namespace detail

/// Whether backward of `function` gives the gradients that central differences give.
///
/// `function`: a callable of as many tensors as there are inputs (at most 8) or of one vector of tensors; it returns a tensor, or a tuple, pair or
/// vector of tensors. Checked are the inputs that require grad, which must be float64 or complex128, against the outputs that do. The inputs'
/// elements are moved in place and put back, so the function may as well use them from elsewhere (a module's parameters).
/// Gradients of complex tensors are dL/da + i dL/db, as in PyTorch; a complex output is checked as its real and its imaginary part.
/// The default CPU generator starts each run of the function in the same state, so dropout may be checked; it, the inputs and their `.grad` are left
/// as found. Throws Error for wrong use, and what the function throws.
///
///   auto r = tandem::gradcheck([](auto& x, auto& w) { return torch::tanh(x.mm(w)); }, {x, w});
///   if (!r) std::cerr << r.message;
template <class F>
GradcheckResult gradcheck(F function, const std::vector<at::Tensor>& inputs, const GradcheckOptions& options = {}) {
  return detail::gradcheck(detail::function_of(std::move(function)), inputs, options);
}

/// The same for the backward: whether a second backward through the gradients gives what central differences of the gradients give.
/// `grad_outputs`: one per output that requires grad; empty: random ones in [-1, 1).
template <class F>
GradcheckResult gradgradcheck(F function, const std::vector<at::Tensor>& inputs, const GradcheckOptions& options = {},
                              const std::vector<at::Tensor>& grad_outputs = {}) {
  return detail::gradgradcheck(detail::function_of(std::move(function)), inputs, grad_outputs, options);
}

}  // namespace tandem
