// A function under gradcheck: run again and again on inputs whose elements are moved, its derivatives by differences and by backward.
#pragma once

#include "runtime/outcome.h"
#include "tandem/gradcheck.h"

#include <complex>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tandem::gradient {

/// A rule that does not hold. Never leaves gradcheck.
struct Failure {
  std::string message;
};

using Name = std::function<std::string(std::size_t)>;  // of the i-th input or output

/// An output as real numbers: itself, or one part of a complex one.
struct Component {
  enum class Part : std::uint8_t { whole, real, imaginary };
  std::size_t output = 0;
  Part part = Part::whole;
  std::string name;
  std::vector<std::int64_t> sizes;
  std::int64_t numel = 1;
};

class Subject {
 public:
  /// Runs the function twice: its components are known then, and that equal inputs give equal outputs. Throws Error for inputs that cannot be
  /// checked. `constants`: outputs that do not require grad are components too (their backward is zero).
  Subject(const detail::LossFunction& function, const std::vector<at::Tensor>& inputs, const GradcheckOptions& options, Name input_name,
          Name output_name, bool constants);
  ~Subject();
  Subject(const Subject&) = delete;

  const std::vector<Component>& components() const { return components_; }
  const std::vector<std::size_t>& checked() const { return checked_; }  // the inputs that require grad
  const at::Tensor& input(std::size_t i) const { return inputs_[i]; }
  std::string input_name(std::size_t i) const { return input_name_(i); }

  /// The outputs of one run, as the function gives them.
  std::vector<at::Tensor> run();
  at::Tensor part(const std::vector<at::Tensor>& outputs, const Component& component) const;

  /// Per component its derivative along a direction of one input: (f(x + eps d) - f(x - eps d)) / (2 eps). The element form is exact in x.
  using Columns = std::vector<std::vector<double>>;
  Columns along(std::size_t input, const at::Tensor& direction);
  Columns along_element(std::size_t input, const std::vector<std::int64_t>& index, c10::complex<double> direction);

  /// Per checked input the gradient of one component, twice; they must be equal.
  using Gradients = std::vector<std::vector<std::complex<double>>>;
  Gradients backward(const Component& component, const at::Tensor& values, const at::Tensor& grad);

 private:
  void check_inputs() const;
  void find_components(bool constants);
  Columns values();
  Columns difference(const std::function<void(double)>& move);
  void put_back();

  const detail::LossFunction& function_;
  std::vector<at::Tensor> inputs_, data_, saved_;  // data_: without autograd, so that moving an element is no in-place op
  struct Grad {
    at::Tensor grad, copy;
  };
  std::vector<Grad> grads_;
  const GradcheckOptions& options_;
  Name input_name_, output_name_;
  std::vector<std::size_t> checked_;
  std::vector<Component> components_;
  at::Tensor generator_;
  std::optional<GeneratorScope> generator_scope_;
};

/// "[2, 0]" for the i-th element in order.
std::vector<std::int64_t> index_of(std::int64_t i, at::IntArrayRef sizes);
std::string text_of(const std::vector<std::int64_t>& index);
std::string text_of(std::complex<double> number);

}  // namespace tandem::gradient
