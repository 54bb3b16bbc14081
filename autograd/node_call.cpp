#include "autograd/node_call.h"

#include "autograd/support/error.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace tandem {
namespace {

at::Tensor wrapped_tensor(const Constant& c) {
  auto t = c10::scalar_to_tensor(to_ivalue(c).toScalar());
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

/// Whether the op changes the geometry of argument `i` in place (resize_, out= of another size): then it must get a tensor object of its own.
bool changes_geometry(const Graph& g, const Node& n, const c10::FunctionSchema& schema, std::size_t i) {
  const auto* alias = schema.arguments()[i].alias_info();
  if (!alias || !alias->isWrite() || n.args[i].values.size() != 1 || n.args[i].values[0] < 0) return false;
  auto before = g.values[n.args[i].values[0]];
  for (std::size_t k = 0; k < n.results.size(); k++) {
    const auto* out = schema.returns()[k].alias_info();
    if (!out || !out->isWrite() || out->beforeSets() != alias->beforeSets() || n.results[k].values.size() != 1) continue;
    before.version = g.values[n.results[k].values[0]].version;
    if (!(before == g.values[n.results[k].values[0]])) return true;
  }
  return false;
}

}  // namespace

c10::IValue to_ivalue(const Constant& constant) {
  return std::visit(
      [](const auto& v) -> c10::IValue {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, None>)
          return {};
        else if constexpr (std::is_same_v<T, std::vector<bool>>) {
          c10::List<bool> list;
          for (bool b : v) list.push_back(b);
          return list;
        } else
          return c10::IValue(v);
      },
      constant);
}

c10::OperatorHandle handle_of(const Node& node) {
  const auto dot = node.op.find('.');
  const c10::OperatorName name(node.op.substr(0, dot), dot == std::string::npos ? "" : node.op.substr(dot + 1));
  if (auto op = c10::Dispatcher::singleton().findSchema(name)) return *op;
  throw Error("expected an op that LibTorch knows, found '" + node.op + "' in node " + std::to_string(node.id));
}

namespace {

/// Whether `out` takes what `op` takes, and then one tensor to write into per result.
bool writes_results_of(const c10::FunctionSchema& op, const c10::FunctionSchema& out) {
  const auto& a = op.arguments();
  const auto& b = out.arguments();
  if (b.size() != a.size() + op.returns().size()) return false;
  for (std::size_t i = 0; i < a.size(); i++)
    if (a[i].name() != b[i].name() || *a[i].type() != *b[i].type()) return false;
  for (std::size_t i = a.size(); i < b.size(); i++)
    if (!b[i].alias_info() || !b[i].alias_info()->isWrite() || b[i].type()->kind() != c10::TypeKind::TensorType) return false;
  return true;
}

/// Overloads by the op's name without overload.
const std::unordered_map<std::string, std::vector<c10::OperatorHandle>>& overloads() {
  static const auto table = [] {
    std::unordered_map<std::string, std::vector<c10::OperatorHandle>> all;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& name : dispatcher.getAllOpNames())
      if (auto op = dispatcher.findSchema(name)) all[name.name].push_back(*op);
    return all;
  }();
  return table;
}

/// Keeps warnings from the user while it lives.
class WarningScope : c10::WarningHandler {
 public:
  bool any() const { return any_; }

 private:
  void process(const c10::Warning&) override { any_ = true; }
  bool any_ = false;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.strides() != b.strides() || a.scalar_type() != b.scalar_type()) return false;
  const auto x = a.contiguous(), y = b.contiguous();
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

bool each_result_is_new(const Graph& g, const Node& n) {
  std::vector<StorageId> seen;
  for (const auto& r : n.results) {
    if (r.kind != Argument::Kind::tensor || r.values[0] < 0) return false;
    const auto s = g.values[r.values[0]].storage;
    bool old = g.storages[s].role != Role::internal || std::find(seen.begin(), seen.end(), s) != seen.end();
    for_each_value(n.args, [&](ValueId v) { old |= g.values[v].storage == s; });
    if (old) return false;
    seen.push_back(s);
  }
  return !n.results.empty();
}

}  // namespace

std::optional<c10::OperatorHandle> out_overload(const Graph& graph, const Node& node) {
  if (!node.writes.empty() || node.effects.opaque || node.effects.collective || !each_result_is_new(graph, node)) return std::nullopt;
  const auto op = handle_of(node);
  const auto found = overloads().find(op.schema().name());
  if (found == overloads().end()) return std::nullopt;
  for (const auto& other : found->second)
    if (writes_results_of(op.schema(), other.schema()) && other.hasKernelForDispatchKey(c10::DispatchKey::CPU)) return other;
  return std::nullopt;
}

NodeCall::NodeCall(const Graph& graph, const Node& node, c10::OperatorHandle out) : NodeCall(graph, node) {
  out_op_ = out;
  if (node.effects.random) out_ = Out::trusted;  // a second run would draw other numbers
  into_placed_ = true;
}

NodeCall::NodeCall(const Graph& graph, const Node& node) : graph_(&graph), node_(&node), op_(handle_of(node)) {
  const auto& schema = op_.schema();
  if (schema.arguments().size() != node.args.size() || schema.returns().size() != node.results.size())
    throw Error("expected " + std::to_string(schema.arguments().size()) + " arguments and " + std::to_string(schema.returns().size()) +
                " results, found " + std::to_string(node.args.size()) + " and " + std::to_string(node.results.size()) + " in " +
                describe(node));
  for (std::size_t i = 0; i < node.args.size(); i++) {
    const auto& a = node.args[i];
    Slot s{Pass::constant, {}, a.scalar};
    if (a.kind == Argument::Kind::tensor) {
      s.pass = changes_geometry(graph, node, schema, i) ? Pass::fresh_tensor : Pass::tensor;
    } else if (a.kind == Argument::Kind::tensors) {
      const auto type = schema.arguments()[i].type();
      const bool optional = type->kind() == c10::TypeKind::ListType &&
                            type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::OptionalType;
      s.pass = optional ? Pass::optional_list : Pass::list;
    } else if (a.wrapped) {
      s.pass = a.scalar >= 0 ? Pass::wrapped_scalar : Pass::constant;
      s.constant = wrapped_tensor(a.constant);
    } else if (a.scalar >= 0) {
      s.pass = Pass::scalar;
    } else {
      s.constant = to_ivalue(a.constant);
    }
    args_.push_back(std::move(s));
  }
}

c10::IValue NodeCall::number(const std::vector<double>& scalars, std::int32_t scalar) const {
  const auto value = scalars[std::size_t(scalar)];
  return graph_->scalars[std::size_t(scalar)].integral ? c10::IValue(std::int64_t(value)) : c10::IValue(value);
}

void NodeCall::push(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack, std::size_t i) {
  auto& s = args_[i];
  const auto& values = node_->args[i].values;
  auto tensor = [&](ValueId v) { return v < 0 ? at::Tensor() : slots.get(v); };
  switch (s.pass) {
    case Pass::constant: stack.push_back(s.constant); break;
    case Pass::scalar: stack.push_back(number(scalars, s.scalar)); break;
    case Pass::wrapped_scalar: {
      void* memory = s.constant.toTensor().mutable_data_ptr();
      const auto value = scalars[s.scalar];
      graph_->scalars[s.scalar].integral ? void(*static_cast<std::int64_t*>(memory) = std::int64_t(value))
                                         : void(*static_cast<double*>(memory) = value);
      stack.push_back(s.constant);
      break;
    }
    case Pass::tensor: stack.emplace_back(tensor(values[0])); break;
    case Pass::fresh_tensor: stack.emplace_back(slots.fresh(values[0])); break;
    case Pass::list: {
      c10::List<at::Tensor> list;
      list.reserve(values.size());
      for (auto v : values) list.push_back(tensor(v));
      stack.emplace_back(std::move(list));
      break;
    }
    case Pass::optional_list: {
      c10::List<std::optional<at::Tensor>> list;
      for (auto v : values) list.push_back(v < 0 ? std::optional<at::Tensor>() : std::optional<at::Tensor>(slots.get(v)));
      stack.emplace_back(std::move(list));
      break;
    }
  }
}

void NodeCall::push_all(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack) {
  stack.clear();
  for (std::size_t i = 0; i < args_.size(); i++) push(slots, scalars, stack, i);
}

void NodeCall::run_out(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack) {
  push_all(slots, scalars, stack);
  for (const auto& r : node_->results) stack.emplace_back(slots.get(r.values[0]));
  out_op_->callBoxed(&stack);
  stack.clear();
}

bool NodeCall::out_agrees(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack, const torch::jit::Stack& expected) {
  WarningScope warnings;  // a result that is resized on the way is announced by one
  try {
    run_out(slots, scalars, stack);
  } catch (const std::exception&) {
    return false;
  }
  bool same = !warnings.any();
  for (std::size_t k = 0; same && k < expected.size(); k++)
    same = same_bits(slots.get(node_->results[k].values[0]), expected[k].toTensor());
  return same;
}

void NodeCall::run_into_placed(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack) {
  if (out_ == Out::trusted) {
    try {
      return run_out(slots, scalars, stack);
    } catch (const std::exception&) {  // the plain op has its own words for a user's mistake
      for (const auto& r : node_->results) slots.forget(r.values[0]);
    }
  }
  push_all(slots, scalars, stack);
  op_.callBoxed(&stack);
  const auto results = std::move(stack);
  stack.clear();
  if (out_ == Out::untried && out_agrees(slots, scalars, stack, results)) {
    out_ = Out::trusted;
    return;
  }
  out_ = Out::refused;
  for (std::size_t k = 0; k < node_->results.size(); k++) {
    const auto v = node_->results[k].values[0];
    slots.forget(v);
    slots.get(v).copy_(results[k].toTensor());
  }
  stack.clear();
}

void NodeCall::run(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack) {
  if (into_placed_) return run_into_placed(slots, scalars, stack);
  push_all(slots, scalars, stack);
  op_.callBoxed(&stack);
  for (std::size_t k = 0; k < node_->results.size(); k++) {
    const auto& r = node_->results[k];
    if (r.kind == Argument::Kind::tensor) {
      if (r.values[0] >= 0) slots.set(r.values[0], std::move(stack[k]).toTensor());
    } else if (r.kind == Argument::Kind::tensors) {
      auto list = stack[k].toTensorVector();
      if (list.size() != r.values.size())
        throw InternalError(describe(*node_) + " returned " + std::to_string(list.size()) + " tensors, recorded " +
                            std::to_string(r.values.size()));
      for (std::size_t j = 0; j < list.size(); j++)
        if (r.values[j] >= 0) slots.set(r.values[j], std::move(list[j]));
    }
  }
  stack.clear();
}

}  // namespace tandem
