// Right gradients pass gradcheck, wrong ones are named; nothing of the caller's is left changed.
#include "tandem/gradcheck.h"

#include "autograd/support/error.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstring>

namespace tandem {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

Tensor leaf(at::IntArrayRef sizes, at::ScalarType dtype = at::kDouble) { return at::randn(sizes, dtype).requires_grad_(true); }

/// x^2, with a backward that the tests spoil.
enum class Fault { none, one_element, random, not_zero, refuses_undefined, cut_off };
struct Square : Function<Square> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, std::int64_t fault) {
    ctx->save_for_backward({x});
    ctx->saved_data["fault"] = fault;
    ctx->set_materialize_grads(false);
    return x * x;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    Tensor x = ctx->get_saved_variables()[0];
    const auto fault = static_cast<Fault>(ctx->saved_data["fault"].toInt());
    if (!grads[0].defined()) {
      if (fault == Fault::refuses_undefined) throw std::runtime_error("no gradient came");
      return {Tensor(), Tensor()};
    }
    Tensor g = 2 * (fault == Fault::cut_off ? x.detach() : x) * grads[0];
    if (fault == Fault::one_element) g = g + at::zeros_like(g).index_fill(0, at::tensor({1L}), 0.5) * grads[0];
    if (fault == Fault::random) g = g + 1e-12 * at::rand_like(g);
    if (fault == Fault::not_zero) g = g + 1e-7;
    return {g, Tensor()};
  }
};
auto square(Fault fault) {
  return [fault](const Tensor& x) { return Square::apply(x, static_cast<std::int64_t>(fault)); };
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Passes in both modes.
template <class F>
void expect_right(F f, const std::vector<Tensor>& inputs) {
  for (const bool fast : {false, true}) {
    const auto first = gradcheck(f, inputs, {.fast = fast});
    EXPECT_TRUE(first) << first.message;
    const auto second = gradgradcheck(f, inputs, {.fast = fast});
    EXPECT_TRUE(second) << second.message;
    const auto strided = gradgradcheck(f, inputs, {.fast = fast, .noncontiguous_grads = true});
    EXPECT_TRUE(strided) << strided.message;
  }
}

TEST(Gradcheck, PassesForBroadcastingAndMatrixProducts) {
  expect_right([](const Tensor& x, const Tensor& w, const Tensor& b) { return at::tanh(x.mm(w) + b); },
               {leaf({3, 2}), leaf({2, 4}), leaf({4})});
}

TEST(Gradcheck, PassesForViewsAndInPlaceOps) {
  expect_right(
      [](const Tensor& x) {
        const Tensor y = x * 1;
        y.t().select(0, 1).mul_(y.select(0, 0).sum());
        return y;
      },
      {leaf({2, 3})});
}

TEST(Gradcheck, PassesForStridedAndScalarInputs) {
  expect_right([](const Tensor& x, const Tensor& s) { return (x * s).exp(); }, {leaf({3, 2}).t().detach().requires_grad_(true), leaf({})});
}

TEST(Gradcheck, PassesForEmptyInputs) {
  expect_right([](const Tensor& x, const Tensor& s) { return x.sum() + s.sin(); }, {leaf({0, 2}), leaf({2})});
}

TEST(Gradcheck, PassesForSeveralOutputsOfWhichSomeAreConstant) {
  expect_right([](const Tensor& x) { return std::tuple(x.sin(), x.detach().argmax(), x.sum()); }, {leaf({3})});
  expect_right([](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] * in[1], in[1].exp()}; }, {leaf({2}), leaf({2})});
}

TEST(Gradcheck, PassesForInputsThatDoNotRequireGrad) {
  const Tensor labels = at::tensor({1L, 0L});
  expect_right([](const Tensor& x, const Tensor& y) { return at::nll_loss(at::log_softmax(x, 1), y); }, {leaf({2, 3}), labels});
}

TEST(Gradcheck, PassesForComplexInputsAndOutputs) {
  expect_right([](const Tensor& z, const Tensor& x) { return (z * z.conj()).sum() * z * x + z.exp(); },
               {leaf({2}, at::kComplexDouble), leaf({2})});
  expect_right([](const Tensor& z) { return z.abs(); }, {leaf({3}, at::kComplexDouble)});
}

TEST(Gradcheck, PassesForDropoutSinceEachRunDrawsTheSameNumbers) {
  expect_right([](const Tensor& x) { return at::dropout(x, 0.5, true).sin(); }, {leaf({4, 4})});
}

TEST(Gradcheck, PassesForAParameterThatTheFunctionTakesFromElsewhere) {
  const Tensor w = leaf({2, 2}), x = at::randn({3, 2}, at::kDouble);
  expect_right([&](const Tensor&) { return x.mm(w).relu(); }, {w});
}

TEST(Gradcheck, WorksUnderNoGradGuard) {
  const Tensor x = leaf({2});
  at::NoGradGuard guard;
  const auto r = gradcheck(square(Fault::none), {x});
  EXPECT_TRUE(r) << r.message;
  EXPECT_FALSE(gradcheck(square(Fault::one_element), {x}));
  const auto second = gradgradcheck(square(Fault::none), {x});
  EXPECT_TRUE(second) << second.message;
}

TEST(Gradcheck, NamesTheElementOfAWrongBackward) {
  const Tensor x = at::tensor({1.0, 2.0, 3.0}, at::kDouble).requires_grad_(true);
  for (const bool fast : {false, true}) {
    const auto r = gradcheck([](const Tensor& c, const Tensor& x) { return std::pair(c * x, square(Fault::one_element)(x)); },
                             {at::ones({3}, at::kDouble), x}, {.fast = fast});
    EXPECT_FALSE(r.passed);
    EXPECT_EQ(r.message,
              "gradcheck: output 1 [1] by input 1 [1]: expected the central difference 4 within atol 1e-05 + rtol 0.001, found 4.5 from "
              "backward");
  }
}

TEST(Gradcheck, NamesThePartOfAWrongComplexGradient) {
  struct Conjugated : Function<Conjugated> {
    static Tensor forward(AutogradContext*, const Tensor& z) { return z * c10::complex<double>(0, 1); }
    static variable_list backward(AutogradContext*, const variable_list& g) { return {g[0] * c10::complex<double>(0, 1)}; }
  };
  const auto r = gradcheck([](const Tensor& z) { return Conjugated::apply(z); }, {leaf({2}, at::kComplexDouble)});
  EXPECT_TRUE(contains(r.message, "real part of output 0 [0] by input 0 [0]")) << r.message;
  EXPECT_TRUE(contains(r.message, "found 0+1i from backward")) << r.message;
}

TEST(Gradcheck, FindsABackwardThatIsNotDeterministic) {
  const auto r = gradcheck(square(Fault::random), {leaf({3})});
  EXPECT_TRUE(contains(r.message, "expected equal gradients from two backward runs")) << r.message;
  const auto allowed = gradcheck(square(Fault::random), {leaf({3})}, {.nondet_tol = 1e-9, .undefined_grad = false});
  EXPECT_FALSE(contains(allowed.message, "two backward runs")) << allowed.message;
}

TEST(Gradcheck, FindsAFunctionThatIsNotDeterministic) {
  double host = 1;
  const auto r = gradcheck([&](const Tensor& x) { return x * (host += 1); }, {leaf({3})});
  EXPECT_TRUE(contains(r.message, "output 0 [0]: expected equal numbers from two runs on equal inputs")) << r.message;
}

TEST(Gradcheck, FindsABackwardThatIgnoresAZeroGradient) {
  const auto r = gradcheck(square(Fault::not_zero), {leaf({3})});
  EXPECT_TRUE(contains(r.message, "zero gradient of input 0 for zero gradients of the outputs")) << r.message;
}

TEST(Gradcheck, FindsABackwardThatRefusesAnUndefinedGradient) {
  const auto r = gradcheck(square(Fault::refuses_undefined), {leaf({3})});
  EXPECT_TRUE(contains(r.message, "found that it throws: no gradient came")) << r.message;
  EXPECT_TRUE(gradcheck(square(Fault::refuses_undefined), {leaf({3})}, {.undefined_grad = false}));
}

TEST(Gradcheck, FindsAnOutputThatWasCutOff) {
  const auto r = gradcheck([](const Tensor& x) { return (x * x).detach(); }, {leaf({2})});
  EXPECT_TRUE(contains(r.message, "output 0 [0] by input 0 [0]")) << r.message;
  EXPECT_TRUE(contains(r.message, "found 0 from backward")) << r.message;
}

TEST(Gradcheck, OfTheSecondOrderFindsABackwardThatWasCutOff) {
  const auto f = square(Fault::cut_off);
  EXPECT_TRUE(gradcheck(f, {leaf({2})}));
  for (const bool fast : {false, true}) {
    const auto r = gradgradcheck(f, {leaf({2})}, {.fast = fast});
    EXPECT_TRUE(contains(r.message, "the gradient of input 0 [0] by input 0 [0]")) << r.message;
  }
}

TEST(Gradcheck, OfTheSecondOrderTakesTheCallersGradients) {
  EXPECT_TRUE(gradgradcheck(square(Fault::none), {leaf({2})}, {}, {leaf({2})}));
  EXPECT_THROW(gradgradcheck(square(Fault::none), {leaf({2})}, {}, {leaf({2}), leaf({2})}), Error);
}

TEST(Gradcheck, FailsForNaN) {
  EXPECT_FALSE(gradcheck([](const Tensor& x) { return (x - 10).log(); }, {leaf({2})}));
  EXPECT_FALSE(gradcheck([](const Tensor& x) { return (x - 10).log(); }, {leaf({2})}, {.fast = true}));
}

/// The sentence of the Error, or "" when there is none.
template <class F>
std::string error_of(F f, const std::vector<Tensor>& inputs, const GradcheckOptions& o = {}) {
  try {
    gradcheck(f, inputs, o);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Gradcheck, TellsWhichInputItCannotCheck) {
  const auto sum = [](const Tensor& a, const Tensor& b) { return a.sum() + b.sum(); };
  const Tensor a = leaf({4});
  EXPECT_TRUE(contains(error_of(sum, {a, leaf({2}, at::kFloat)}), "expected input 1 as float64 or complex128"));
  EXPECT_TRUE(
      contains(error_of(sum, {a, leaf({1}).detach().expand({2}).requires_grad_(true)}), "each element of input 1 in memory of its own"));
  EXPECT_TRUE(contains(error_of(sum, {a, a}), "input 0 and input 1 overlap"));
  EXPECT_TRUE(contains(error_of(sum, {a, a.detach().slice(0, 2)}), "input 0 and input 1 overlap"));
  EXPECT_EQ(error_of(sum, {a, a.detach().clone()}), "");
  EXPECT_TRUE(contains(error_of(sum, {a.detach(), a.detach()}), "at least one input that requires grad"));
  EXPECT_TRUE(contains(error_of(sum, {a}), "expected a function of 1 tensors"));
}

TEST(Gradcheck, TellsWhatElseItCannotCheck) {
  const auto id = [](const Tensor& x) { return x * 1; };
  EXPECT_TRUE(contains(error_of([](const Tensor& x) { return x.to(at::kFloat); }, {leaf({2})}), "expected output 0 as float64"));
  EXPECT_TRUE(contains(error_of([](const Tensor& x) { return x.argmax(); }, {leaf({2})}), "returns a tensor of floating point"));
  EXPECT_TRUE(contains(error_of([](const Tensor& x) { return x.detach().mul_(2) + x; }, {leaf({2})}), "that it writes input 0"));
  EXPECT_TRUE(contains(error_of(id, {leaf({2})}, {.eps = 0}), "GradcheckOptions::eps"));
  EXPECT_TRUE(contains(error_of(id, {leaf({2})}, {.atol = -1}), "GradcheckOptions::atol"));
}

TEST(Gradcheck, LeavesInputsGradientsVersionsAndTheGeneratorAsFound) {
  const Tensor x = at::tensor({0.1, -0.0, 1e-310, 3e300}, at::kDouble).requires_grad_(true), grad = at::ones({4}, at::kDouble);
  x.mutable_grad() = grad;
  const Tensor bits = x.detach().clone();
  const auto version = x._version();
  auto generator = at::detail::getDefaultCPUGenerator();
  const Tensor state = generator.get_state();
  const auto throws = [](const Tensor& x) -> Tensor {
    at::rand({3});
    (x * x).sum().backward();  // writes x.grad
    if (x[0].item<double>() < 0.1) throw std::runtime_error("moved down");
    return x.sum();
  };
  EXPECT_THROW(gradcheck(throws, {x}), std::runtime_error);
  gradcheck([](const Tensor& x) { return at::dropout(x, 0.5, true); }, {x});
  gradgradcheck([](const Tensor& x) { return at::dropout(x * x, 0.5, true); }, {x});
  EXPECT_EQ(std::memcmp(bits.data_ptr(), x.data_ptr(), 4 * sizeof(double)), 0);
  EXPECT_EQ(x._version(), version);
  EXPECT_TRUE(x.grad().is_same(grad));
  EXPECT_TRUE(grad.equal(at::ones({4}, at::kDouble)));
  EXPECT_TRUE(generator.get_state().equal(state));
}

}  // namespace
}  // namespace tandem
