#include "tests/fuzz/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/utils.h>

#include <algorithm>
#include <stdexcept>

namespace tandem::fuzz {
namespace {

using Kind = Argument::Kind;

bool is_op(const Statement& s) { return s.op.find("::") != std::string::npos; }

c10::OperatorHandle handle_of(const std::string& op) {
  static std::map<std::string, c10::OperatorHandle> known;
  if (const auto at = known.find(op); at != known.end()) return at->second;
  const auto dot = op.find('.');
  const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(op.substr(0, dot).c_str(), dot == std::string::npos ? "" : op.substr(dot + 1).c_str());
  return known.emplace(op, handle).first->second;
}

/// What an argument stands for in one evaluation.
struct Reader {
  const Values& values;
  std::int64_t batch;
  bool training;
  std::function<at::ScalarType(at::ScalarType)> dtype;
  Tensors* operands;
  const Natives* native = nullptr;  // operands take these dtypes

  at::Tensor tensor(const Argument& a) const {
    const auto at = values.find(a.text);
    if (a.kind != Kind::value || at == values.end() || !at->second.defined())
      throw std::invalid_argument("expected the name of a value, found '" + a.text + "'");
    const auto wanted = native ? native->find(a.text) : decltype(native->find(a.text))();
    operands->push_back(native && wanted != native->end() ? at->second.to(wanted->second.dtype) : at->second);
    return operands->back();
  }
  std::int64_t whole(const Argument& a) const {
    if (a.kind == Kind::dtype) return std::int64_t(dtype(at::ScalarType(a.integer)));
    return a.kind == Kind::batch ? a.integer * batch : a.integer;
  }
  bool truth(const Argument& a) const { return a.kind == Kind::training ? training : a.integer != 0; }
  double real(const Argument& a) const { return a.kind == Kind::number ? a.number : double(whole(a)); }

  template <class T, class F>
  c10::IValue items(const Argument& a, F&& f) const {
    c10::List<T> out;
    for (const auto& item : a.items) out.push_back(f(item));
    return out;
  }
  c10::IValue item_list(const Argument& a, const c10::Type& element) const {
    switch (element.kind()) {
      case c10::TypeKind::TensorType: return items<at::Tensor>(a, [&](auto& i) { return tensor(i); });
      case c10::TypeKind::FloatType: return items<double>(a, [&](auto& i) { return real(i); });
      case c10::TypeKind::BoolType: return items<bool>(a, [&](auto& i) { return truth(i); });
      case c10::TypeKind::OptionalType:
        return items<std::optional<at::Tensor>>(a, [&](auto& i) { return i.kind == Kind::none ? std::optional<at::Tensor>() : tensor(i); });
      default: return items<std::int64_t>(a, [&](auto& i) { return whole(i); });
    }
  }
  c10::IValue read(const Argument& a, const c10::Type& type) const {
    switch (type.kind()) {
      case c10::TypeKind::OptionalType:
        return a.kind == Kind::none ? c10::IValue() : read(a, *type.castRaw<c10::OptionalType>()->getElementType());
      case c10::TypeKind::TensorType: return tensor(a);
      case c10::TypeKind::ListType: return item_list(a, *type.castRaw<c10::ListType>()->getElementType());
      case c10::TypeKind::BoolType: return truth(a);
      case c10::TypeKind::FloatType: return real(a);
      case c10::TypeKind::StringType: return a.text;
      case c10::TypeKind::NumberType:
        if (a.kind == Kind::number) return a.number;
        if (a.kind == Kind::boolean) return a.integer != 0;
        return whole(a);
      default: return whole(a);
    }
  }
};

void flatten(const c10::IValue& v, Tensors& out) {
  if (v.isTensor()) out.push_back(v.toTensor());
  if (v.isTensorList())
    for (const at::Tensor& t : v.toTensorVector()) out.push_back(t);
}

/// Asks no storage for its data: in a replayed step it has none yet.
bool shares(const at::Tensor& t, const Tensors& others) {
  if (!t.has_storage()) return false;
  const auto* mine = t.storage().unsafeGetStorageImpl();
  return std::any_of(others.begin(), others.end(),
                     [&](const at::Tensor& o) { return o.defined() && o.has_storage() && o.storage().unsafeGetStorageImpl() == mine; });
}

std::uint64_t hash_of(const std::string& name) {
  std::uint64_t h = 1469598103934665603u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h % 1000;
}

double rounding_of(at::ScalarType type) {
  return type == at::kBFloat16 ? 0x1p-8 : type == at::kHalf ? 0x1p-11 : type == at::kFloat ? 0x1p-23 : 0;
}

}  // namespace

bool draws(const Statement& s) { return is_op(s) && handle_of(s.op).hasTag(at::Tag::nondeterministic_seeded); }

Model::Model(const Program& program, std::optional<Judge> judge)
    : program_(program), judge_(std::move(judge)), noise_(at::detail::createCPUGenerator(judge_ ? judge_->seed : 0)) {
  torch::manual_seed(program.seed);
  for (const auto& o : program.outside) declare(o);
  for (const auto& l : program.layers) add(l);
}

Model::~Model() {
  for (const auto& weak : written_)
    if (const auto t = weak.lock()) t->set_autograd_meta(nullptr);
}

at::ScalarType Model::dtype_here(at::ScalarType type) const { return in_double() && at::isFloatingType(type) ? at::kDouble : type; }

at::Tensor Model::fresh(const Outside& o, std::uint64_t seed, std::int64_t batch) const {
  std::vector<std::int64_t> sizes;
  for (const auto& s : o.sizes) sizes.push_back(s.kind == Kind::batch ? s.integer * batch : s.integer);
  auto generator = at::detail::createCPUGenerator(seed * 1000003 + hash_of(o.name));
  at::Tensor t = at::isFloatingType(o.dtype) ? at::randn(sizes, generator).to(o.dtype).to(dtype_here(o.dtype))
                                             : at::randint(0, o.below, sizes, generator, at::kLong).to(o.dtype);
  return o.channels_last ? t.contiguous(at::MemoryFormat::ChannelsLast) : t;
}

void Model::declare(const Outside& o) {
  if (std::none_of(program_.outside.begin(), program_.outside.end(), [&](auto& other) { return other.name == o.name; }))
    program_.outside.push_back(o);
  if (o.role == Outside::Role::input) return void(values_[o.name] = fresh(o, program_.seed + 7919, 7));
  const auto t = values_[o.name] = fresh(o, program_.seed, 7);
  natives_[o.name] = {t.scalar_type()};
  outside_[o.name] = o.role == Outside::Role::parameter ? register_parameter(o.name, t) : register_buffer(o.name, t);
}

void Model::add(const Layer& l) {
  if (std::none_of(program_.layers.begin(), program_.layers.end(), [&](auto& other) { return other.name == l.name; }))
    program_.layers.push_back(l);
  auto made = layer_kind(l.kind).make(l.arguments);
  if (in_double()) made.module->to(at::kDouble);
  register_module(l.name, made.module);
  made_[l.name] = std::move(made);
}

Tensors Model::batch(std::size_t index, std::int64_t size) const {
  Tensors out;
  for (const auto& o : program_.outside)
    if (o.role == Outside::Role::input) out.push_back(fresh(o, program_.seed + 7919 * (index + 1), size));
  return out;
}

void Model::begin(const Tensors& inputs) {
  values_ = outside_;
  std::size_t i = 0;
  batch_ = 7;
  for (const auto& o : program_.outside) {
    if (o.role != Outside::Role::input) continue;
    const auto& t = inputs.at(i++);
    natives_[o.name] = {t.scalar_type()};
    values_[o.name] = in_double() && t.is_floating_point() ? t.to(at::kDouble) : t;
    for (std::size_t d = 0; d < o.sizes.size(); d++)
      if (o.sizes[d].kind == Kind::batch) batch_ = t.size(std::int64_t(d)) / o.sizes[d].integer;
  }
}

Tensors Model::call(const Statement& s, Tensors& operands) {
  if (!in_double() || !is_op(s)) return call(s, operands, false);
  if (draws(s)) return call(s, operands, true);
  try {
    return call(s, operands, false);
  } catch (const c10::Error&) {  // it has no kernel for double
    operands.clear();
    return call(s, operands, true);
  }
}

Tensors Model::call(const Statement& s, Tensors& operands, bool natively) {
  Tensors results;
  const Reader reader{values_,       batch_,
                      is_training(), [&](auto t) { return natively ? t : dtype_here(t); },
                      &operands,     natively ? &judge_->native : nullptr};
  if (!is_op(s)) {
    const auto at = made_.find(s.op);
    if (at == made_.end()) throw std::invalid_argument("expected the name of a layer, found '" + s.op + "'");
    for (const auto& a : s.arguments) reader.tensor(a);
    return at->second.call(operands);
  }
  const auto handle = handle_of(s.op);
  const auto& arguments = handle.schema().arguments();
  if (s.arguments.size() > arguments.size()) throw std::invalid_argument("expected fewer arguments of " + s.op);
  c10::Stack stack;
  for (std::size_t i = 0; i < arguments.size(); i++) {
    if (i >= s.arguments.size() && !arguments[i].default_value()) throw std::invalid_argument("expected more arguments of " + s.op);
    stack.push_back(i < s.arguments.size() ? reader.read(s.arguments[i], *arguments[i].type()) : *arguments[i].default_value());
  }
  handle.callBoxed(stack);
  for (const auto& v : stack) flatten(v, results);
  if (natively && !arguments.empty() && arguments[0].alias_info() && arguments[0].alias_info()->isWrite()) {
    auto self = values_.at(s.arguments.at(0).text);
    results.at(0) = self.copy_(results.at(0));
  }
  return results;
}

at::Tensor Model::disturbed(const at::Tensor& t, at::ScalarType native) {
  const double u = judge_ ? judge_->noise * rounding_of(native) : 0;
  if (u == 0 || !t.is_floating_point() || t.numel() == 0) return t;
  auto factor = (1 + u * at::randn(t.sizes(), noise_, t.options().dtype(at::kDouble))).to(t.scalar_type());
  const auto values = t.detach();
  const bool probability = values.ge(0).logical_and(values.le(1)).all().item<bool>();  // draws refuse others
  if (probability) factor.masked_fill_((values * factor).gt(1), 1);
  return t * factor;
}

void Model::disturb(const Statement& s, at::Tensor& t, const std::string& name, const Tensors& operands) {
  if (!t.defined() || !t.is_floating_point()) return;
  const auto native = judge_->native.find(name);
  if (judge_->in_double) t = t.to(at::kDouble);
  if (native == judge_->native.end()) return;
  if (native->second.own_memory && shares(t, operands)) t = t.clone();  // a cast that is none in double
  if (!s.no_grad && !shares(t, operands)) t = disturbed(t, native->second.dtype);
}

void Model::keep(const Statement& s, Tensors results, const Tensors& operands) {
  if (results.size() < s.results.size()) throw std::invalid_argument("expected more results of " + s.op);
  for (std::size_t i = 0; i < s.results.size(); i++) {
    auto& t = results[i];
    if (std::any_of(operands.begin(), operands.end(), [&](const at::Tensor& o) { return o.is_same(t); }))
      written_.emplace_back(t.getIntrusivePtr());
    if (t.defined()) natives_[s.results[i]] = {t.scalar_type(), !shares(t, operands)};
    if (judge_) disturb(s, t, s.results[i], operands);
    values_[s.results[i]] = t;
  }
}

void Model::evaluate(const Statement& s) {
  std::optional<at::NoGradGuard> guard;
  if (s.no_grad) guard.emplace();
  Tensors operands;
  auto results = call(s, operands);
  keep(s, std::move(results), operands);
}

void Model::evaluate(Statement& s, std::int64_t& next) {
  std::optional<at::NoGradGuard> guard;
  if (s.no_grad) guard.emplace();
  Tensors operands;
  auto results = call(s, operands);
  s.results.clear();
  for (std::size_t i = 0; i < results.size(); i++) s.results.push_back("v" + std::to_string(next++));
  keep(s, std::move(results), operands);
}

Tensors Model::forward(const Tensors& inputs) {
  begin(inputs);
  for (const auto& s : program_.statements) evaluate(s);
  Tensors out;
  for (const auto& name : program_.losses) {
    const auto& term = values_.at(name);
    out.empty() ? out.push_back(term) : void(out[0] = out[0] + term);
  }
  if (out.empty()) throw std::invalid_argument("expected a loss, found none");
  for (const auto& name : program_.outputs) out.push_back(values_.at(name));
  auto kept = std::move(values_);  // a step must not keep what it made
  values_ = {};
  return out;
}

}  // namespace tandem::fuzz
