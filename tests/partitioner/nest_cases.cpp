#include "tests/partitioner/nest_cases.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <limits>
#include <variant>

namespace tandem::test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

/// What a placeholder of a recipe becomes.
enum class Fill { any, positive, mask, unit };

using Recipe = std::vector<std::variant<Fill, c10::IValue>>;

/// How the tensors of one call lie in memory.
enum class Layout { flat, special, zero_dim, broadcast, strided, doubles, columns };

const char* name_of(Layout l) {
  static constexpr const char* names[] = {"flat", "special", "zero_dim", "broadcast", "strided", "doubles", "columns"};
  return names[static_cast<int>(l)];
}

class Tensors {
 public:
  explicit Tensors(Layout layout) : layout_(layout), generator_(at::make_generator<at::CPUGeneratorImpl>(std::uint64_t(7))) {}

  at::Tensor next(Fill fill) {
    const auto options = at::TensorOptions(layout_ == Layout::doubles ? at::kDouble : at::kFloat);
    at::Tensor t = at::randn(sizes(), generator_, options) * 2;
    if (layout_ == Layout::special) t = specials();
    if (fill == Fill::positive) t = t.abs() + (layout_ == Layout::special ? 0 : 0.25);
    if (fill == Fill::unit) t = at::sigmoid(t);
    if (fill == Fill::mask) t = t > 0;
    if (layout_ == Layout::strided && count_ != 1) t = t.t().contiguous().t();
    ++count_;
    return t;
  }

 private:
  std::vector<std::int64_t> sizes() const {
    switch (layout_) {
      case Layout::zero_dim: return {};
      case Layout::broadcast:
        return count_ == 0   ? std::vector<std::int64_t>{3, 5, 7}
               : count_ == 1 ? std::vector<std::int64_t>{5, 1}
                             : std::vector<std::int64_t>{7};
      case Layout::strided: return {6, 19};
      case Layout::columns: return {33, 5};
      default: return {4, 37};
    }
  }

  /// Each pair of special numbers meets, in the first two tensors.
  at::Tensor specials() const {
    const std::vector<float> few = {NAN,   INFINITY, -INFINITY, 0.0f, -0.0f, 1e-41f, -1e-41f,
                                    3e38f, -1.5f,    0.5f,      3.0f, -3.0f, 100.0f, -100.0f};
    const auto n = static_cast<std::int64_t>(few.size());
    const at::Tensor line = at::tensor(few);
    if (count_ == 0) return line.view({n, 1}).expand({n, n}).contiguous();
    return count_ == 1 ? line.view({1, n}).expand({n, n}).contiguous() : line.flip(0).view({1, n}).expand({n, n}).contiguous();
  }

  Layout layout_;
  at::Generator generator_;
  int count_ = 0;
};

constexpr Fill x = Fill::any, p = Fill::positive, u = Fill::unit, mask = Fill::mask;
const c10::IValue none;

class Cases {
 public:
  bool inexact = false;  // of the cases that follow

  /// One call per layout.
  void add(const std::string& op, const Recipe& recipe, const std::vector<Layout>& layouts, const std::string& about = {}) {
    for (Layout l : layouts) {
      Tensors tensors(l);
      NestCase c{op, {}, std::string(name_of(l)) + " " + about, inexact};
      for (const auto& item : recipe) {
        if (auto* fill = std::get_if<Fill>(&item))
          c.arguments.emplace_back(tensors.next(*fill));
        else
          c.arguments.push_back(std::get<c10::IValue>(item));
      }
      all_.push_back(std::move(c));
    }
  }

  void pointwise(const std::string& op, const Recipe& recipe) {
    add(op, recipe, {Layout::flat, Layout::special, Layout::zero_dim, Layout::broadcast, Layout::strided, Layout::doubles});
  }

  void alike(const std::string& op, const Recipe& recipe) {
    add(op, recipe, {Layout::flat, Layout::special, Layout::zero_dim, Layout::strided, Layout::doubles});
  }

  void reduction(const std::string& op, const Recipe& recipe) {
    add(op, recipe, {Layout::flat, Layout::strided, Layout::doubles, Layout::columns});
  }

  void one(const std::string& op, std::vector<c10::IValue> arguments, const std::string& about) {
    all_.push_back({op, std::move(arguments), about});
  }

  std::vector<NestCase> take() { return std::move(all_); }

 private:
  std::vector<NestCase> all_;
};

void arithmetic(Cases& c) {
  for (const char* op : {"aten::add.Tensor", "aten::add_.Tensor", "aten::sub.Tensor", "aten::sub_.Tensor", "aten::rsub.Tensor"})
    for (double alpha : {1.0, -0.3}) c.pointwise(op, {x, x, alpha});
  for (const char* op : {"aten::add.Scalar", "aten::add_.Scalar", "aten::sub.Scalar", "aten::rsub.Scalar"})
    for (double alpha : {1.0, -0.3}) c.pointwise(op, {x, 1.7, alpha});
  for (const char* op : {"aten::mul", "aten::mul_", "aten::div", "aten::div_"}) {
    c.pointwise(std::string(op) + ".Tensor", {x, x});
    c.pointwise(std::string(op) + ".Scalar", {x, 0.3});
  }
  c.pointwise("aten::mul.Tensor", {x, 0.3});
  c.pointwise("aten::mul.Tensor", {x, mask});
  for (const char* op :
       {"neg",       "neg_",        "abs",  "sgn",   "sign",  "round", "square", "reciprocal", "logical_not", "isnan", "relu",
        "relu_",     "exp",         "exp_", "sin",   "cos",   "tanh",  "tanh_",  "sigmoid",    "sigmoid_",    "silu",  "silu_",
        "hardswish", "hardsigmoid", "sqrt", "sqrt_", "rsqrt", "log",   "log1p",  "clone",      "zero_"}) {
    const std::string name = std::string("aten::") + op;
    const bool root = name.find("sqrt") != name.npos || name.find("log") != name.npos;
    c.pointwise(name, name == "aten::clone" ? Recipe{x, none} : Recipe{root && name != "aten::logical_not" ? p : x});
  }
  for (double e : {0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 2.7}) c.pointwise("aten::pow.Tensor_Scalar", {p, e});
  for (double e : {2.0, 3.0, -1.0}) c.pointwise("aten::pow.Tensor_Scalar", {x, e});
  c.pointwise("aten::pow.Tensor_Tensor", {p, x});
  c.pointwise("aten::xlogy.Tensor", {x, p});
  c.pointwise("aten::bitwise_not", {mask});
  for (const char* op :
       {"aten::logical_and", "aten::logical_or", "aten::logical_xor", "aten::bitwise_and.Tensor", "aten::bitwise_or.Tensor"})
    c.pointwise(op, {mask, mask});
  for (const char* op : {"eq", "ne", "gt", "ge", "lt", "le"}) {
    c.pointwise(std::string("aten::") + op + ".Scalar", {x, 0.5});
    c.pointwise(std::string("aten::") + op + ".Tensor", {x, x});
  }
}

void activations(Cases& c) {
  for (const char* op : {"tanh_backward", "sigmoid_backward", "silu_backward", "hardswish_backward", "hardsigmoid_backward"})
    c.alike(std::string("aten::") + op, {x, x});
  c.alike("aten::threshold_backward", {x, x, 0.0});
  for (const char* approximate : {"none", "tanh"}) {
    c.add("aten::gelu", {x, approximate},
          {Layout::flat, Layout::zero_dim, Layout::strided, Layout::doubles});  // eager gives NaN at infinity
    c.add("aten::gelu_backward", {x, x, approximate}, {Layout::flat, Layout::zero_dim, Layout::strided, Layout::doubles});
  }
  c.alike("aten::elu", {x, 1.67, 1.05, 1.0});
  c.alike("aten::celu", {x, 1.3});
  c.alike("aten::_prelu_kernel", {x, x});
  for (const char* op : {"aten::threshold", "aten::threshold_"}) c.alike(op, {x, 0.1, -2.0});
  c.alike("aten::hardshrink", {x, 0.5});
  c.inexact = true;  // vectors and their rest give zeros of other signs
  c.alike("aten::softshrink", {x, 0.5});
  c.inexact = false;
  for (const char* op : {"aten::hardshrink_backward", "aten::softshrink_backward"}) c.alike(op, {x, x, 0.5});
  c.add("aten::mish", {x}, {Layout::flat, Layout::zero_dim, Layout::strided, Layout::doubles});
  c.add("aten::mish_backward", {x, x}, {Layout::flat, Layout::zero_dim, Layout::strided, Layout::doubles});
  for (bool is_result : {false, true}) {
    c.alike("aten::elu_backward", {x, 1.67, 1.05, 1.0, is_result, x});
    c.alike("aten::leaky_relu_backward", {x, x, 0.01, is_result});
  }
  for (const char* op : {"aten::leaky_relu", "aten::leaky_relu_"}) c.alike(op, {x, 0.01});
  for (const char* op : {"aten::hardtanh", "aten::hardtanh_"}) c.alike(op, {x, -1.0, 1.5});
  c.alike("aten::hardtanh_backward", {x, x, -1.0, 1.5});
  c.alike("aten::softplus", {x, 1.5, 20.0});
  c.alike("aten::softplus_backward", {x, x, 1.5, 20.0});
  for (const char* op : {"aten::clamp", "aten::clamp_"}) {
    c.alike(op, {x, -0.5, 0.7});
    c.alike(op, {x, 0.0, none});
    c.alike(op, {x, none, 0.0});
    c.alike(op, {x, NAN, 1.0});
    c.alike(op, {x, 2.0, 1.0});
  }
  for (const char* op : {"aten::clamp_max", "aten::clamp_min", "aten::clamp_max_", "aten::clamp_min_"})
    for (double bound : {0.0, 0.5, static_cast<double>(NAN)}) c.alike(op, {x, bound});
}

void choices(Cases& c) {
  for (const char* op : {"aten::maximum", "aten::minimum", "aten::clamp_max.Tensor", "aten::clamp_min.Tensor", "aten::clamp_min_.Tensor"})
    c.pointwise(op, {x, x});
  c.alike("aten::maximum.out", {x, x, x});
  c.pointwise("aten::where.self", {mask, x, x});
  for (const char* op : {"aten::masked_fill.Scalar", "aten::masked_fill_.Scalar"}) c.pointwise(op, {x, mask, -inf});
  c.one("aten::masked_fill.Tensor", {at::randn({3, 4}), at::randn({4}) > 0, at::scalar_tensor(0.3, at::kDouble)}, "by a 0-dim double");
  for (double value : {1.0, -1.0, 0.3}) {
    for (const char* op : {"aten::addcmul", "aten::addcmul_", "aten::addcdiv", "aten::addcdiv_"}) c.pointwise(op, {x, x, x, value});
  }
  for (double weight : {0.3, 0.7, -0.2, -3.0})
    for (const char* op : {"aten::lerp.Scalar", "aten::lerp_.Scalar"}) c.alike(op, {x, x, weight});
  for (const char* op : {"aten::copy_"}) c.pointwise(op, {x, x, false});
  for (const char* op : {"aten::fill_.Scalar"}) c.pointwise(op, {x, 0.1});
  c.one("aten::fill_.Tensor", {at::randn({3, 4}), at::scalar_tensor(0.3, at::kDouble)}, "by a 0-dim double");
  c.alike("aten::native_dropout_backward", {x, mask, 1.25});
}

void losses(Cases& c) {
  for (std::int64_t reduction : {0, 1, 2}) {
    c.alike("aten::mse_loss_backward", {x, x, x, reduction});
    c.inexact = true;  // vectors and their rest multiply in another order
    c.alike("aten::smooth_l1_loss_backward", {x, x, x, reduction, 0.7});
    c.alike("aten::huber_loss_backward", {x, x, x, reduction, 0.7});
    c.inexact = false;
    c.reduction("aten::mse_loss", {x, x, reduction});
    c.reduction("aten::soft_margin_loss", {x, x, reduction});
    c.reduction("aten::smooth_l1_loss", {x, x, reduction, 0.7});
    c.reduction("aten::smooth_l1_loss", {x, x, reduction, 0.0});
    c.reduction("aten::huber_loss", {x, x, reduction, 0.7});
    c.reduction("aten::binary_cross_entropy_with_logits", {x, u, none, none, reduction});
    c.reduction("aten::binary_cross_entropy_with_logits", {x, u, u, p, reduction});
  }
  const at::Tensor y = at::randn({3, 5}), t = at::randn({3, 5});
  c.one("aten::mse_loss_backward", {at::scalar_tensor(0.7), y, t, std::int64_t(1)}, "of a 0-dim gradient");
}

using Dims = std::vector<std::int64_t>;

void reductions(Cases& c) {
  for (const char* op : {"aten::sum", "aten::mean"}) {
    c.reduction(op, {x, none});
    for (const Dims& dims : {Dims{0}, Dims{-1}, Dims{0, 1}, Dims{}})
      for (bool keep : {false, true}) c.reduction(op + std::string(op[6] == 's' ? ".dim_IntList" : ".dim"), {x, dims, keep, none});
    c.one(op, {at::randn({3, 5}), std::int64_t(at::kDouble)}, "in double");
    c.one(op, {at::randn({3, 5}, at::kDouble), std::int64_t(at::kFloat)}, "in float");
  }
  c.one("aten::sum.dim_IntList", {at::randn({2, 3, 4, 5}).permute({0, 2, 3, 1}), Dims{0, 2, 3}, false, none}, "over outer and inner dims");
  c.one("aten::sum.dim_IntList", {at::randn({4, 1, 5}), Dims{1}, false, none}, "over a dim of one");
  c.one("aten::sum", {at::randn({4, 5}).gt(0), std::int64_t(at::kFloat)}, "of a mask");
  for (const char* op : {"aten::amax", "aten::amin"}) {
    c.reduction(op, {x, Dims{1}, true});
    c.add(op, {x, Dims{-1}, false}, {Layout::special});
    c.reduction(op, {x, Dims{}, false});
  }
  c.reduction("aten::max", {x});
  c.reduction("aten::min", {x});
  c.reduction("aten::logsumexp", {x, Dims{1}, false});
  c.one("aten::logsumexp", {at::full({2, 3}, -inf), Dims{1}, true}, "of nothing");
  for (double ord : {1.0, 2.0, inf, -inf}) {
    c.reduction("aten::linalg_vector_norm", {x, ord, none, false, none});
    c.reduction("aten::linalg_vector_norm", {x, ord, Dims{1}, true, none});
    c.reduction("aten::norm.Scalar", {x, ord});
    c.reduction("aten::norm.ScalarOpt_dim", {x, ord, Dims{1}, false});
  }
  for (const char* op : {"aten::var.correction", "aten::std.correction"}) {
    c.reduction(op, {x, Dims{1}, none, false});
    c.reduction(op, {x, Dims{0}, 0.0, true});
    c.reduction(op, {x, none, 1.0, false});
  }
}

void rows(Cases& c) {
  for (std::int64_t dim : {-1, 0}) {
    c.reduction("aten::_softmax", {x, dim, false});
    c.reduction("aten::_log_softmax", {x, dim, false});
  }
  c.one("aten::_softmax", {at::full({2, 3}, -inf), std::int64_t(1), false}, "of rows without a largest element");
  for (const char* op : {"aten::_softmax_backward_data", "aten::_log_softmax_backward_data"})
    for (std::int64_t dim : {-1, 0}) c.one(op, {at::randn({9, 37}), at::rand({9, 37}), dim, std::int64_t(at::kFloat)}, "");
  const at::Tensor in = at::randn({4, 5, 24}) + 3, grad = at::randn({4, 5, 24}), mean = in.mean({2}, true), w = at::randn({24}),
                   b = at::randn({24});
  const at::Tensor rstd = (in.var({2}, false, true) + 1e-5).rsqrt(), undefined;
  c.one("aten::native_layer_norm", {in, Dims{24}, w, b, 1e-5}, "");
  c.one("aten::native_layer_norm", {in, Dims{24}, undefined, undefined, 1e-5}, "without weights");
  c.one("aten::native_layer_norm", {in, Dims{5, 24}, at::randn({5, 24}), undefined, 1e-5}, "over two dims");
  for (bool data : {false, true})
    c.one("aten::native_layer_norm_backward", {grad, in, Dims{24}, mean, rstd, w, b, c10::List<bool>({data, true, true})}, "");
  c.one("aten::native_layer_norm_backward", {grad, in, Dims{24}, mean, rstd, undefined, undefined, c10::List<bool>({true, false, false})},
        "without weights");
}

void made_of_numbers(Cases& c) {
  const c10::IValue f = std::int64_t(at::kFloat), mask_type = std::int64_t(at::kBool);
  const at::Tensor like = at::randn({3, 5}).t();
  for (const char* op : {"aten::zeros", "aten::ones"}) {
    for (const auto& type : {f, mask_type}) c.one(op, {Dims{3, 5}, type, none, none, none}, "");
    c.one(op + std::string("_like"), {like, none, none, none, none, none}, "");
  }
  c.one("aten::new_zeros", {like, Dims{4}, none, none, none, none}, "");
  c.one("aten::full", {Dims{3, 5}, 0.1, f, none, none, none}, "");
  c.one("aten::full_like", {like, 0.1, none, none, none, none, none}, "");
  c.one("aten::scalar_tensor", {0.1, f, none, none, none}, "");
}

void conversions(Cases& c) {
  const at::Tensor f = at::randn({4, 5}), d = at::randn({4, 5}, at::kDouble), i = at::arange(20).view({4, 5}) * 12345678901 - 5, m = f > 0;
  const auto to = [&](const at::Tensor& t, at::ScalarType type) {
    c.one("aten::_to_copy", {t, std::int64_t(type), none, none, none, false, none}, "");
  };
  for (const at::Tensor& t : {f, d, i, m})
    for (at::ScalarType type : {at::kFloat, at::kDouble}) to(t, type);
  to(f, at::kBool);
  to(at::full({3}, NAN), at::kBool);
  c.one("aten::add_.Tensor", {f, d, 1.0}, "of a double to a float");
  c.one("aten::mul.Tensor", {f, at::scalar_tensor(0.3, at::kDouble)}, "by a 0-dim double");
  c.one("aten::mul.Tensor", {i, 0.3}, "of integers by a number");
  c.one("aten::div.Tensor", {i, at::full({4, 5}, 3)}, "of integers");
  c.one("aten::gt.Scalar", {i, 0.5}, "of integers");
  c.one("aten::eq.Tensor", {m, m.logical_not()}, "of masks");
  c.one("aten::masked_fill.Scalar", {m, m, false}, "of masks");
  c.one("aten::copy_", {f, d, false}, "of a double");
  c.one("aten::copy_", {f, i, false}, "of integers");
}

}  // namespace

std::vector<NestCase> nest_cases() {
  Cases c;
  for (auto add : {arithmetic, activations, choices, losses, reductions, rows, made_of_numbers, conversions}) add(c);
  return c.take();
}

}  // namespace tandem::test
