// The rules of torch.autograd.gradcheck and gradgradcheck. A real function f of a complex x = a + ib has the gradient df/da + i df/db.
#include "tandem/gradcheck.h"

#include "autograd/support/error.h"
#include "trainers/gradcheck_subject.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace tandem {
namespace gradient {
namespace {

using Complex = std::complex<double>;

bool close(Complex found, Complex expected, double atol, double rtol) {
  return found == expected || std::abs(found - expected) <= atol + rtol * std::abs(expected);  // false for NaN
}

/// Every element of the Jacobian.
void check_elements(Subject& subject, const GradcheckOptions& o) {
  const auto& components = subject.components();
  std::vector<std::vector<Subject::Gradients>> found;  // per component and element of it
  for (const Component& c : components) {
    const at::Tensor values = subject.part(subject.run(), c);
    auto& rows = found.emplace_back();
    for (std::int64_t e = 0; e < c.numel; ++e) {
      at::Tensor grad = at::zeros(c.sizes, values.options().requires_grad(false));
      grad.view({-1}).select(0, e).fill_(1);
      rows.push_back(subject.backward(c, values, grad));
    }
  }
  for (std::size_t k = 0; k < subject.checked().size(); ++k) {
    const std::size_t i = subject.checked()[k];
    const at::Tensor& x = subject.input(i);
    for (std::int64_t e = 0; e < x.numel(); ++e) {
      const auto at = index_of(e, x.sizes());
      const auto real = subject.along_element(i, at, 1);
      const auto imaginary = x.is_complex() ? subject.along_element(i, at, c10::complex<double>(0, 1)) : Subject::Columns();
      for (std::size_t c = 0; c < components.size(); ++c) {
        for (std::size_t j = 0; j < real[c].size(); ++j) {
          const Complex expected(real[c][j], imaginary.empty() ? 0 : imaginary[c][j]);
          const Complex got = found[c][j][k][static_cast<std::size_t>(e)];
          if (close(got, expected, o.atol, o.rtol)) continue;
          throw Failure{fmt::format(
              "gradcheck: {} {} by {} {}: expected the central difference {} within atol {:g} + rtol {:g}, found {} from backward",
              components[c].name, text_of(index_of(static_cast<std::int64_t>(j), components[c].sizes)), subject.input_name(i), text_of(at),
              text_of(expected), o.atol, o.rtol, text_of(got))};
        }
      }
    }
  }
}

/// Numbers in [0, 1), the same in every call of gradcheck.
class Numbers {
 public:
  at::Tensor like(at::IntArrayRef sizes) {
    at::Tensor t = at::empty(sizes, at::kDouble);
    double* p = t.mutable_data_ptr<double>();
    for (std::int64_t i = 0; i < t.numel(); ++i) p[i] = static_cast<double>(bits_() >> 11) * 0x1p-53;
    return t;
  }

 private:
  std::mt19937_64 bits_{0x9e3779b97f4a7c15};
};

double dot(const std::vector<double>& a, const at::Tensor& b) {
  const double* p = b.const_data_ptr<double>();
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * p[i];
  return sum;
}

/// v^T J u for one u per input and one v per output, all of their elements in [0, 1), u of length 1. An error of atol in every element of J gives
/// atol * sum(u) * sum(v).
void check_projections(Subject& subject, const GradcheckOptions& o) {
  Numbers numbers;
  const auto& components = subject.components();
  std::vector<at::Tensor> v;
  std::vector<Subject::Gradients> found;
  for (const Component& c : components) {
    v.push_back(numbers.like(c.sizes));
    const at::Tensor values = subject.part(subject.run(), c);
    found.push_back(subject.backward(c, values, v.back().to(values.device())));
  }
  for (std::size_t k = 0; k < subject.checked().size(); ++k) {
    const std::size_t i = subject.checked()[k];
    const at::Tensor& x = subject.input(i);
    at::Tensor u[2];
    std::vector<Subject::Columns> along;
    for (int part = 0; part < (x.is_complex() ? 2 : 1); ++part) {
      u[part] = numbers.like(x.sizes());
      u[part].div_(std::max(u[part].norm().item<double>(), 1e-300));
      const at::Tensor zero = at::zeros_like(u[part]);
      const at::Tensor d = x.is_complex() ? (part ? at::complex(zero, u[part]) : at::complex(u[part], zero)) : u[part];
      along.push_back(subject.along(i, d.to(x.device())));
    }
    double sum_u = 0;
    for (const auto& part : u)
      if (part.defined()) sum_u += part.sum().item<double>();
    for (std::size_t c = 0; c < components.size(); ++c) {
      std::vector<double> re, im;
      for (const Complex z : found[c][k]) re.push_back(z.real()), im.push_back(z.imag());
      const bool both = along.size() == 2;
      const Complex expected(dot(along[0][c], v[c]), both ? dot(along[1][c], v[c]) : 0), got(dot(re, u[0]), both ? dot(im, u[1]) : 0);
      const double atol = o.atol * sum_u * v[c].sum().item<double>();
      if (close(got, expected, atol, o.rtol)) continue;
      check_elements(subject, o);  // names the element
      throw Failure{
          fmt::format("gradcheck: {} by {}: expected the random projection {} of the Jacobian within atol {:g} + rtol {:g}, found {} from "
                      "backward, though each element agrees",
                      components[c].name, subject.input_name(i), text_of(expected), atol, o.rtol, text_of(got))};
    }
  }
}

/// What backward gives for zero and undefined gradients: zeros, or nothing.
class ZeroChecks {
 public:
  explicit ZeroChecks(Subject& subject) : subject_(subject) {
    for (const Component& c : subject.components())
      if (outputs_.empty() || outputs_.back() != c.output) outputs_.push_back(c.output), names_.push_back(c.name);
  }

  void zero() { expect_zero("zero gradients of the outputs", none); }
  void undefined() {
    expect_zero("undefined gradients of all outputs", all);
    for (std::size_t k = 0; k < outputs_.size() && outputs_.size() > 1; ++k)
      expect_zero(fmt::format("an undefined gradient of {} and zero ones of the others", names_[k]), k);
  }

 private:
  static constexpr std::size_t none = SIZE_MAX, all = SIZE_MAX - 1;

  void expect_zero(const std::string& given, std::size_t undefined) {
    const auto made = subject_.run();
    torch::autograd::variable_list outputs, grads, inputs, found;
    at::AutoGradMode grad_mode(true);
    for (std::size_t k = 0; k < outputs_.size(); ++k) {
      at::Tensor t = made[outputs_[k]];
      if (!t.requires_grad()) continue;
      if (undefined == all || undefined == k) t = (*std::make_shared<torch::autograd::UndefinedGrad>())({t})[0];
      outputs.push_back(t);
      grads.push_back(at::zeros_like(t.detach()));
    }
    if (outputs.empty()) return;
    for (const std::size_t i : subject_.checked()) inputs.push_back(subject_.input(i));
    try {
      found = torch::autograd::grad(outputs, inputs, grads, {}, false, true);
    } catch (const std::exception& e) {
      std::string what = e.what();
      throw Failure{
          fmt::format("gradcheck: expected backward to take {}, found that it throws: {}", given, what.substr(0, what.find('\n')))};
    }
    for (std::size_t k = 0; k < found.size(); ++k) {
      if (!found[k].defined() || found[k].eq(0).all().item<bool>()) continue;
      throw Failure{fmt::format("gradcheck: expected an undefined or zero gradient of {} for {}, found other numbers",
                                subject_.input_name(subject_.checked()[k]), given)};
    }
  }

  Subject& subject_;
  std::vector<std::size_t> outputs_;
  std::vector<std::string> names_;
};

void check_options(const GradcheckOptions& o) {
  const auto fail = [](const char* option, const char* expected, double found) {
    throw Error(fmt::format("GradcheckOptions::{}: expected {}, found {}", option, expected, found));
  };
  if (!(o.eps > 0) || std::isinf(o.eps)) fail("eps", "a positive number", o.eps);
  if (!(o.atol >= 0)) fail("atol", "a number of at least 0", o.atol);
  if (!(o.rtol >= 0)) fail("rtol", "a number of at least 0", o.rtol);
  if (!(o.nondet_tol >= 0)) fail("nondet_tol", "a number of at least 0", o.nondet_tol);
}

GradcheckResult check(const detail::LossFunction& function, const std::vector<at::Tensor>& inputs, const GradcheckOptions& options,
                      Name input_name, Name output_name, bool constants) {
  check_options(options);
  try {
    Subject subject(function, inputs, options, std::move(input_name), std::move(output_name), constants);
    options.fast ? check_projections(subject, options) : check_elements(subject, options);
    ZeroChecks zeros(subject);
    zeros.zero();
    if (options.undefined_grad) zeros.undefined();
  } catch (const Failure& f) {
    return {false, f.message};
  }
  return {true, {}};
}

bool has_gradient(const at::Tensor& t) { return t.defined() && t.requires_grad(); }

/// In [-1, 1), requiring grad.
at::Tensor random_grad(const at::Tensor& output, Numbers& numbers, bool strided) {
  const auto draw = [&] { return numbers.like(output.sizes()) * 2 - 1; };
  const at::Tensor drawn = output.is_complex() ? at::complex(draw(), draw()) : draw();
  at::Tensor grad = drawn.to(output.device());
  if (strided) {
    auto strides = grad.strides().vec();
    for (auto& s : strides) s *= 2;
    grad = at::empty({2 * grad.numel() + 1}, grad.options()).as_strided(grad.sizes(), strides).copy_(grad);
  }
  return grad.requires_grad_(true);
}

}  // namespace
}  // namespace gradient

namespace detail {

void wrong_number_of_inputs(std::size_t found) {
  throw Error(fmt::format("gradcheck: expected a function of {} tensors (1 to {}) or of one vector of tensors, found another one", found,
                          max_inputs));
}

GradcheckResult gradcheck(const LossFunction& function, const Inputs& inputs, const GradcheckOptions& options) {
  const auto input = [](std::size_t i) { return fmt::format("input {}", i); };
  return gradient::check(
      function, inputs, options, input, [](std::size_t i) { return fmt::format("output {}", i); }, false);
}

GradcheckResult gradgradcheck(const LossFunction& function, const std::vector<at::Tensor>& inputs,
                              const std::vector<at::Tensor>& grad_outputs, const GradcheckOptions& options) {
  const auto generator = generator_state();
  std::vector<std::size_t> outputs, sources;  // the outputs and inputs that require grad
  std::vector<at::Tensor> all = inputs;
  {
    at::AutoGradMode grad_mode(true);
    GeneratorScope put_back(generator);
    const auto made = function(inputs);
    gradient::Numbers numbers;
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (!gradient::has_gradient(made[i])) continue;
      outputs.push_back(i);
      if (grad_outputs.empty()) all.push_back(gradient::random_grad(made[i], numbers, options.noncontiguous_grads));
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (gradient::has_gradient(inputs[i])) sources.push_back(i);
  if (outputs.empty()) throw Error("gradgradcheck: expected at least one output that requires grad, found none");
  if (!grad_outputs.empty() && grad_outputs.size() != outputs.size())
    throw Error(fmt::format("gradgradcheck: expected {} gradients, one per output that requires grad, found {}", outputs.size(),
                            grad_outputs.size()));
  all.insert(all.end(), grad_outputs.begin(), grad_outputs.end());

  const auto backward = [&](const std::vector<at::Tensor>& in) {
    const std::vector<at::Tensor> own(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(inputs.size()));
    const torch::autograd::variable_list grads(in.begin() + static_cast<std::ptrdiff_t>(inputs.size()), in.end());
    const auto made = function(own);
    torch::autograd::variable_list from, to;
    for (const std::size_t i : outputs) from.push_back(made.at(i));
    for (const std::size_t i : sources) to.push_back(own[i]);
    return torch::autograd::grad(from, to, grads, true, true, true);
  };
  const auto input = [&](std::size_t i) {
    return i < inputs.size() ? fmt::format("input {}", i) : fmt::format("the gradient of output {}", outputs[i - inputs.size()]);
  };
  // A gradient that does not require grad claims to be constant, so it is compared as well: a backward that was cut off must not pass.
  return gradient::check(
      backward, all, options, input, [&](std::size_t i) { return fmt::format("the gradient of input {}", sources[i]); }, true);
}

}  // namespace detail
}  // namespace tandem
