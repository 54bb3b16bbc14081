#include "trainers/gradcheck_subject.h"

#include "autograd/support/error.h"
#include "autograd/text.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <map>

namespace tandem::gradient {
namespace {

bool has_derivative(const at::Tensor& t) { return t.defined() && (t.is_floating_point() || t.is_complex()); }

std::uint32_t version_of(const at::Tensor& t) { return t.defined() && !t.is_inference() ? t._version() : 0; }

/// A copy with the same strides, so that it can be put back bit for bit.
at::Tensor copy_of(const at::Tensor& t) { return t.defined() ? t.detach().clone(at::MemoryFormat::Preserve) : at::Tensor(); }

template <class T>
std::vector<T> numbers_of(const at::Tensor& t, c10::ScalarType dtype) {
  const at::Tensor dense = t.layout() == at::kStrided ? t : t.to_dense();
  const at::Tensor packed = dense.detach().to(at::kCPU).to(dtype).resolve_conj().resolve_neg().contiguous();
  const T* first = static_cast<const T*>(packed.const_data_ptr());
  return {first, first + packed.numel()};
}

/// The position of the first elements that are further apart than allowed, not counting equal ones (NaN equals NaN); -1 where there is none.
template <class T>
std::int64_t first_gap(const std::vector<T>& a, const std::vector<T>& b, double allowed) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0 && !(std::abs(a[i] - b[i]) <= allowed && allowed > 0))
      return static_cast<std::int64_t>(i);
  return -1;
}

}  // namespace

std::vector<std::int64_t> index_of(std::int64_t i, at::IntArrayRef sizes) {
  std::vector<std::int64_t> index(sizes.size());
  for (std::size_t d = sizes.size(); d-- > 0; i /= sizes[d]) index[d] = i % sizes[d];
  return index;
}

std::string text_of(const std::vector<std::int64_t>& index) { return fmt::format("[{}]", fmt::join(index, ", ")); }

std::string text_of(std::complex<double> z) {
  return z.imag() == 0 ? fmt::format("{:.8g}", z.real()) : fmt::format("{:.8g}{:+.8g}i", z.real(), z.imag());
}

Subject::Subject(const detail::LossFunction& function, const std::vector<at::Tensor>& inputs, const GradcheckOptions& options,
                 Name input_name, Name output_name, bool constants)
    : function_(function), inputs_(inputs), options_(options), input_name_(std::move(input_name)), output_name_(std::move(output_name)) {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].defined() && inputs_[i].requires_grad()) checked_.push_back(i);
  check_inputs();
  for (const auto& t : inputs_) {
    data_.push_back(t.defined() ? t.variable_data() : at::Tensor());
    saved_.push_back(copy_of(t));
    const at::Tensor grad = t.defined() && t.is_leaf() ? t.grad() : at::Tensor();
    grads_.push_back({grad, copy_of(grad)});
  }
  generator_ = generator_state();
  generator_scope_.emplace(generator_);
  try {
    find_components(constants);
  } catch (...) {
    put_back();  // no destructor runs
    throw;
  }
}

Subject::~Subject() { put_back(); }

void Subject::put_back() {
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].defined()) continue;
    data_[i].copy_(saved_[i]);
    if (!inputs_[i].is_leaf()) continue;
    if (grads_[i].grad.defined()) grads_[i].grad.variable_data().copy_(grads_[i].copy);
    if (!inputs_[i].grad().is_same(grads_[i].grad)) inputs_[i].mutable_grad() = grads_[i].grad;
  }
}

void Subject::check_inputs() const {
  if (checked_.empty())
    throw Error(fmt::format("gradcheck: expected at least one input that requires grad, found none among {}", inputs_.size()));
  std::map<const char*, std::size_t> owners;
  for (const std::size_t i : checked_) {
    const at::Tensor& t = inputs_[i];
    if (t.scalar_type() != at::kDouble && t.scalar_type() != at::kComplexDouble)
      throw Error(fmt::format("gradcheck: expected {} as float64 or complex128, since differences of a step of {:g} need double, found {}",
                              input_name_(i), options_.eps, dtype_name(t.scalar_type())));
    if (t.layout() != at::kStrided)
      throw Error(fmt::format("gradcheck: expected {} as a strided tensor, found another layout", input_name_(i)));
  }
  // First the checked inputs, so that the others may overlap among themselves.
  for (const bool checked : {true, false}) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const at::Tensor& t = inputs_[i];
      if (!t.defined() || t.requires_grad() != checked || t.layout() != at::kStrided) continue;
      for (std::int64_t e = 0; e < t.numel(); ++e) {
        const auto index = index_of(e, t.sizes());
        std::int64_t offset = 0;
        for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * t.stride(static_cast<std::int64_t>(d));
        const char* address = static_cast<const char*>(t.const_data_ptr()) + offset * t.element_size();
        const auto owner = checked ? owners.emplace(address, i) : std::pair(owners.find(address), false);
        if (owner.second || owner.first == owners.end()) continue;
        throw Error(
            owner.first->second == i
                ? fmt::format(
                      "gradcheck: expected each element of {} in memory of its own, found elements that share it: make it contiguous",
                      input_name_(i))
                : fmt::format("gradcheck: expected inputs in memory of their own, found that {} and {} overlap",
                              input_name_(owner.first->second), input_name_(i)));
      }
    }
  }
}

std::vector<at::Tensor> Subject::run() {
  at::AutoGradMode grad_mode(true);
  std::vector<std::uint32_t> versions;
  for (const auto& t : inputs_) versions.push_back(version_of(t));
  GeneratorScope same_numbers(generator_);
  auto outputs = function_(inputs_);
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (version_of(inputs_[i]) != versions[i])
      throw Error(
          fmt::format("gradcheck: expected a function that leaves its inputs as they are, found that it writes {}", input_name_(i)));
  if (components_.empty()) return outputs;
  for (const Component& c : components_)
    if (c.output >= outputs.size() || !outputs[c.output].defined() || outputs[c.output].sizes() != at::IntArrayRef(c.sizes))
      throw Failure{
          fmt::format("gradcheck: expected {} with sizes {} in each run, found another one where an element of an input was moved", c.name,
                      text_of(c.sizes))};
  return outputs;
}

at::Tensor Subject::part(const std::vector<at::Tensor>& outputs, const Component& c) const {
  const at::Tensor& t = outputs[c.output];
  if (c.part == Component::Part::whole) return t;
  at::AutoGradMode grad_mode(true);
  return c.part == Component::Part::real ? at::real(t) : at::imag(t);
}

void Subject::find_components(bool constants) {
  const auto outputs = run();
  bool any = constants;
  for (const auto& t : outputs) any = any || (has_derivative(t) && t.requires_grad());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& t = outputs[i];
    if (!has_derivative(t) || !(t.requires_grad() || constants || !any)) continue;
    if (t.scalar_type() != at::kDouble && t.scalar_type() != at::kComplexDouble)
      throw Error(fmt::format("gradcheck: expected {} as float64 or complex128, found {}", output_name_(i), dtype_name(t.scalar_type())));
    if (t.layout() != at::kStrided)
      throw Error(fmt::format("gradcheck: expected {} as a strided tensor, found another layout", output_name_(i)));
    if (!t.is_complex()) {
      components_.push_back({i, Component::Part::whole, output_name_(i), t.sizes().vec(), t.numel()});
    } else {
      components_.push_back({i, Component::Part::real, "real part of " + output_name_(i), t.sizes().vec(), t.numel()});
      components_.push_back({i, Component::Part::imaginary, "imaginary part of " + output_name_(i), t.sizes().vec(), t.numel()});
    }
  }
  if (components_.empty()) throw Error("gradcheck: expected a function that returns a tensor of floating point numbers, found none");
  const Columns first = values(), second = values();
  for (std::size_t c = 0; c < first.size(); ++c)
    if (const auto e = first_gap(first[c], second[c], options_.nondet_tol); e >= 0)
      throw Failure{fmt::format("gradcheck: {} {}: expected equal numbers from two runs on equal inputs (nondet_tol {:g}), found {} and {}",
                                components_[c].name, text_of(index_of(e, components_[c].sizes)), options_.nondet_tol,
                                text_of(first[c][static_cast<std::size_t>(e)]), text_of(second[c][static_cast<std::size_t>(e)]))};
}

Subject::Columns Subject::values() {
  const auto outputs = run();
  Columns all;
  for (const Component& c : components_) all.push_back(numbers_of<double>(part(outputs, c), at::kDouble));
  return all;
}

Subject::Columns Subject::difference(const std::function<void(double)>& move) {
  move(options_.eps);
  Columns result = values();
  move(-options_.eps);
  const Columns below = values();
  move(0);
  for (std::size_t c = 0; c < result.size(); ++c)
    for (std::size_t e = 0; e < result[c].size(); ++e) result[c][e] = (result[c][e] - below[c][e]) / (2 * options_.eps);
  return result;
}

Subject::Columns Subject::along(std::size_t input, const at::Tensor& direction) {
  at::NoGradGuard no_grad;
  return difference([&](double step) {
    data_[input].copy_(saved_[input]);
    if (step != 0) data_[input].add_(direction, step);
  });
}

Subject::Columns Subject::along_element(std::size_t input, const std::vector<std::int64_t>& index, c10::complex<double> direction) {
  at::NoGradGuard no_grad;
  at::Tensor element = data_[input], before = saved_[input];
  for (const auto i : index) {
    element = element.select(0, i);
    before = before.select(0, i);
  }
  const bool is_complex = element.is_complex();
  const at::Scalar x = before.item();
  return difference([&](double step) {
    if (step == 0)
      element.copy_(before);
    else if (is_complex)
      element.fill_(x.toComplexDouble() + direction * step);
    else
      element.fill_(x.toDouble() + step);
  });
}

Subject::Gradients Subject::backward(const Component& component, const at::Tensor& values, const at::Tensor& grad) {
  Gradients twice[2];
  torch::autograd::variable_list inputs;
  for (const std::size_t i : checked_) inputs.push_back(inputs_[i]);
  for (Gradients& g : twice) {
    torch::autograd::variable_list grads(inputs.size());
    if (values.requires_grad()) grads = torch::autograd::grad({values}, inputs, {grad.clone()}, true, false, true);
    for (std::size_t k = 0; k < grads.size(); ++k)
      g.push_back(grads[k].defined() ? numbers_of<std::complex<double>>(grads[k], at::kComplexDouble)
                                     : std::vector<std::complex<double>>(static_cast<std::size_t>(inputs[k].numel())));
  }
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (const auto e = first_gap(twice[0][k], twice[1][k], options_.nondet_tol); e >= 0)
      throw Failure{
          fmt::format("gradcheck: {} by {} {}: expected equal gradients from two backward runs (nondet_tol {:g}), found {} and {}",
                      component.name, input_name_(checked_[k]), text_of(index_of(e, inputs[k].sizes())), options_.nondet_tol,
                      text_of(twice[0][k][static_cast<std::size_t>(e)]), text_of(twice[1][k][static_cast<std::size_t>(e)]))};
  return twice[0];
}

}  // namespace tandem::gradient
