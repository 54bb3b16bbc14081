// Composite nodes into primitive ones. Each builder gives the bits of ATen's own CPU kernel (the softmax backwards: up to the order of
// their row sums and the last bit of exp), so it fits float32 and float64 on the CPU only: narrower types round once at the end there,
// CUDA's kernels associate differently.
#include "autograd/pass.h"
#include "autograd/passes/emitter.h"

#include <string_view>
#include <unordered_map>

namespace tandem {
namespace {

/// Emits primitive nodes in place of the node, or returns false and emits nothing.
using Builder = bool (*)(Emitter&, const Node&);

bool is_one(const Argument& a) {
  if (a.kind != Argument::Kind::constant || a.scalar >= 0) return false;
  if (auto* i = std::get_if<std::int64_t>(&a.constant)) return *i == 1;
  if (auto* d = std::get_if<double>(&a.constant)) return *d == 1;
  return false;
}

bool is_number(const Argument& a) {
  return a.kind == Argument::Kind::constant &&
         (std::holds_alternative<std::int64_t>(a.constant) || std::holds_alternative<double>(a.constant));
}

std::optional<std::int64_t> integer_of(const Argument& a) {
  if (a.kind != Argument::Kind::constant || a.scalar >= 0) return std::nullopt;
  auto* i = std::get_if<std::int64_t>(&a.constant);
  return i ? std::optional(*i) : std::nullopt;
}

/// All operands and the result, on the CPU with one predictable geometry.
bool all_alike(const Emitter& e, const Node& n, std::initializer_list<std::size_t> operands) {
  const ValueId r = e.result(n);
  if (!e.plain(r)) return false;
  for (std::size_t i : operands) {
    const ValueId v = e.tensor(n, i);
    if (!e.plain(v) || !e.alike(v, r)) return false;
  }
  return true;
}

/// grad * (1 - output * output). ATen's kernel fuses the subtraction with the square, which is what addcmul does when its value is 1 or -1.
bool tanh_backward(Emitter& e, const Node& n) {
  if (n.args.size() != 2 || !all_alike(e, n, {0, 1})) return false;
  const ValueId output = e.tensor(n, 1);
  const ValueId one = e.scalar_tensor(1.0, output);
  const ValueId slope = e.emit("aten::addcmul", {use(one), use(output), use(output), arg(std::int64_t{-1})}, e.geometry(output));
  e.finish("aten::mul.Tensor", {n.args[0], use(slope)});
  return true;
}

/// (grad * (1 - output)) * output
bool sigmoid_backward(Emitter& e, const Node& n) {
  if (n.args.size() != 2 || !all_alike(e, n, {0, 1})) return false;
  const Value like = e.geometry(e.tensor(n, 1));
  const ValueId rest = e.emit("aten::rsub.Scalar", {n.args[1], arg(std::int64_t{1}), arg(std::int64_t{1})}, like);
  const ValueId scaled = e.emit("aten::mul.Tensor", {n.args[0], use(rest)}, like);
  e.finish("aten::mul.Tensor", {use(scaled), n.args[1]});
  return true;
}

/// 0 where self <= threshold, else grad: a NaN in self lets the gradient through, as in ATen's kernel.
bool threshold_backward(Emitter& e, const Node& n) {
  if (n.args.size() != 3 || !all_alike(e, n, {0, 1}) || !is_number(n.args[2])) return false;
  Value mask = e.geometry(e.tensor(n, 1));
  mask.dtype = c10::ScalarType::Bool;
  const ValueId below = e.emit("aten::le.Scalar", {n.args[1], n.args[2]}, mask);
  const ValueId zero = e.scalar_tensor(0.0, e.tensor(n, 0));
  e.finish("aten::where.self", {use(below), use(zero), n.args[0]});
  return true;
}

/// self + (value * a) * b, where the last product and the sum round once: addcmul with value 1 is the primitive, so only the scaling is
/// split off. Serves the in-place form as well: the last node then writes.
bool addcmul(Emitter& e, const Node& n) {
  if (n.args.size() != 4 || !all_alike(e, n, {0, 1, 2}) || !is_number(n.args[3]) || is_one(n.args[3])) return false;
  const ValueId scaled = e.emit("aten::mul.Scalar", {n.args[1], n.args[3]}, e.geometry(e.tensor(n, 1)));
  e.finish(n.op, {n.args[0], use(scaled), n.args[2], arg(std::int64_t{1})});
  return true;
}

/// self + (value * a) / b; in place when the node is.
bool addcdiv(Emitter& e, const Node& n) {
  if (n.args.size() != 4 || !all_alike(e, n, {0, 1, 2}) || !is_number(n.args[3])) return false;
  const Value like = e.geometry(e.tensor(n, 1));
  Argument numerator = n.args[1];
  if (!is_one(n.args[3])) numerator = use(e.emit("aten::mul.Scalar", {n.args[1], n.args[3]}, like));
  const ValueId quotient = e.emit("aten::div.Tensor", {numerator, n.args[2]}, like);
  e.finish(n.writes.empty() ? "aten::add.Tensor" : "aten::add_.Tensor", {n.args[0], use(quotient), arg(std::int64_t{1})});
  return true;
}

enum Reduction : std::int64_t { none = 0, mean = 1, sum = 2 };

/// The square of the difference, then perhaps its mean or sum.
bool mse_loss(Emitter& e, const Node& n) {
  if (n.args.size() != 3) return false;
  const ValueId self = e.tensor(n, 0), target = e.tensor(n, 1), result = e.result(n);
  const auto reduction = integer_of(n.args[2]);
  if (!e.plain(self) || !e.plain(target) || !e.alike(self, target) || !reduction || *reduction < none || *reduction > sum) return false;
  const bool whole = *reduction == none;
  if (!e.plain(result) || !(whole ? e.alike(result, self) : e.is_number_of(result, self))) return false;
  const Value like = e.geometry(self);
  const ValueId difference = e.emit("aten::sub.Tensor", {n.args[0], n.args[1], arg(std::int64_t{1})}, like);
  if (whole) {
    e.finish("aten::mul.Tensor", {use(difference), use(difference)});
    return true;
  }
  const ValueId square = e.emit("aten::mul.Tensor", {use(difference), use(difference)}, like);
  e.finish(*reduction == mean ? "aten::mean" : "aten::sum", {use(square), arg(None{})});
  return true;
}

/// (norm * (self - target)) * grad, with norm 2, or 2 / elements for the mean. ATen's result is contiguous whatever the operands are.
bool mse_loss_backward(Emitter& e, const Node& n) {
  if (n.args.size() != 4 || !all_alike(e, n, {1, 2}) || !e.contiguous(e.result(n))) return false;
  const ValueId grad = e.tensor(n, 0), self = e.tensor(n, 1);
  const auto reduction = integer_of(n.args[3]);
  if (!reduction || *reduction < none || *reduction > sum) return false;
  if (!e.plain(grad) || !(e.alike(grad, self) || e.is_number_of(grad, self))) return false;
  const Value like = e.geometry(self);
  const double norm = *reduction == mean ? 2.0 / static_cast<double>(e.elements(self)) : 2.0;
  const ValueId difference = e.emit("aten::sub.Tensor", {n.args[1], n.args[2], arg(std::int64_t{1})}, like);
  const ValueId scaled = e.emit("aten::mul.Scalar", {use(difference), arg(norm)}, like);
  e.finish("aten::mul.Tensor", {use(scaled), n.args[0]});
  return true;
}

/// Row sums of the softmax backwards, whose arguments are (grad, output, dim, input dtype): the dim, checked, and the geometry of the
/// kept-dim sum.
struct Rows {
  std::int64_t dim;
  Value sum;
};

std::optional<Rows> rows_of(const Emitter& e, const Node& n) {
  if (n.args.size() != 4 || !all_alike(e, n, {0, 1}) || !e.contiguous(e.result(n))) return std::nullopt;
  Value like = e.geometry(e.result(n));
  const auto dims = static_cast<std::int64_t>(like.sizes.size());
  const auto dim = integer_of(n.args[2]), dtype = integer_of(n.args[3]);
  if (!dim || !dtype || dims == 0 || *dim < -dims || *dim >= dims || *dtype != static_cast<std::int64_t>(like.dtype)) return std::nullopt;
  like.sizes[static_cast<std::size_t>(*dim < 0 ? *dim + dims : *dim)] = 1;
  like.strides = contiguous_strides(like.sizes);
  return Rows{*dim, like};
}

ValueId row_sum(Emitter& e, Argument of, const Rows& rows) {
  return e.emit("aten::sum.dim_IntList", {std::move(of), arg(std::vector<std::int64_t>{rows.dim}), arg(true), arg(None{})}, rows.sum);
}

/// (grad - sum(grad * output)) * output
bool softmax_backward(Emitter& e, const Node& n) {
  const auto rows = rows_of(e, n);
  if (!rows) return false;
  const Value like = e.geometry(e.result(n));
  const ValueId product = e.emit("aten::mul.Tensor", {n.args[0], n.args[1]}, like);
  const ValueId total = row_sum(e, use(product), *rows);
  const ValueId centred = e.emit("aten::sub.Tensor", {n.args[0], use(total), arg(std::int64_t{1})}, like);
  e.finish("aten::mul.Tensor", {use(centred), n.args[1]});
  return true;
}

/// grad - exp(output) * sum(grad)
bool log_softmax_backward(Emitter& e, const Node& n) {
  const auto rows = rows_of(e, n);
  if (!rows) return false;
  const Value like = e.geometry(e.result(n));
  const ValueId total = row_sum(e, n.args[0], *rows);
  const ValueId share = e.emit("aten::exp", {n.args[1]}, like);
  const ValueId product = e.emit("aten::mul.Tensor", {use(share), use(total)}, like);
  e.finish("aten::sub.Tensor", {n.args[0], use(product), arg(std::int64_t{1})});
  return true;
}

const std::unordered_map<std::string_view, Builder>& table() {
  static const std::unordered_map<std::string_view, Builder> builders = {
      {"aten::tanh_backward", tanh_backward},
      {"aten::sigmoid_backward", sigmoid_backward},
      {"aten::threshold_backward", threshold_backward},
      {"aten::addcmul", addcmul},
      {"aten::addcmul_", addcmul},
      {"aten::addcdiv", addcdiv},
      {"aten::addcdiv_", addcdiv},
      {"aten::mse_loss", mse_loss},
      {"aten::mse_loss_backward", mse_loss_backward},
      {"aten::_softmax_backward_data", softmax_backward},
      {"aten::_log_softmax_backward_data", log_softmax_backward},
  };
  return builders;
}

}  // namespace

Graph decompose(const Graph& g) {
  Emitter emitter(g);
  for (const Node& n : g.nodes) {
    emitter.start(n);
    auto found = table().find(n.op);
    if (n.effects != Effects{} || found == table().end() || !found->second(emitter, n)) emitter.keep();
  }
  return std::move(emitter).take("decompose");
}

}  // namespace tandem
