#include "autograd/capture.h"

#include "autograd/audit.h"
#include "autograd/op.h"
#include "autograd/support/error.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/List.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem {
namespace {

std::string full_name(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool strided(const at::Tensor& t) { return t.layout() == at::kStrided && t.has_storage(); }

/// Numbers that ATen wraps into 0-dim tensors are constants, not storages.
bool is_number(const at::Tensor& t) { return t.dim() == 0 && t.unsafeGetTensorImpl()->is_wrapped_number() && t.device().is_cpu(); }

Constant number_of(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kDouble: return t.const_data_ptr<double>()[0];
    case at::kLong: return t.const_data_ptr<std::int64_t>()[0];
    case at::kBool: return t.const_data_ptr<bool>()[0];
    case at::kComplexDouble: return t.const_data_ptr<c10::complex<double>>()[0];
    default: return None{};
  }
}

bool to_constant(const c10::IValue& v, Constant& out) {
  if (v.isNone())
    out = None{};
  else if (v.isBool())
    out = v.toBool();
  else if (v.isInt())
    out = v.toInt();
  else if (v.isDouble())
    out = v.toDouble();
  else if (v.isComplexDouble())
    out = v.toComplexDouble();
  else if (v.isString())
    out = std::string(v.toStringRef());
  else if (v.isDevice())
    out = v.toDevice();
  else if (v.isIntList())
    out = v.toIntVector();
  else if (v.isDoubleList())
    out = v.toDoubleVector();
  else if (v.isBoolList()) {
    std::vector<bool> list;
    for (bool b : v.toBoolList()) list.push_back(b);
    out = std::move(list);
  } else
    return false;
  return true;
}

/// Names of autograd nodes are made relative to the step's first sequence number, so that two recordings of one step agree.
std::string autograd_name(torch::autograd::Node& node, std::int64_t first) {
  const auto number = node.sequence_nr();
  const bool accumulates = number == std::uint64_t(-1);
  return accumulates ? node.name() : node.name() + "#" + std::to_string(std::int64_t(number) - first);
}

}  // namespace

Recorder::Recorder(const std::vector<KnownTensor>& known, bool audit) : audit_(audit) {
  recording_.graph.made_by = "capture";
  first_sequence_ = std::int64_t(at::sequence_number::peek());
  for (const auto& k : known) {
    if (!k.tensor.defined()) continue;
    if (!strided(k.tensor)) {
      refuse(std::string(name_of(k.role)) + " '" + k.name + "' has no strided storage, expected a dense tensor");
      continue;
    }
    // Two tensors of one storage: the first names it.
    outside_.emplace(k.tensor.storage().unsafeGetStorageImpl(), Outside{k.role, k.index, k.name, k.tensor.storage().getWeakStorageImpl()});
  }
  if (audit_) generator_ = generator_hash();
}

void Recorder::refuse(std::string sentence) {
  if (recording_.refusal.empty()) recording_.refusal = std::move(sentence);
}

StorageId Recorder::storage_id(const at::Tensor& t, bool argument) {
  auto* impl = t.storage().unsafeGetStorageImpl();
  const auto found = ids_.find(impl);
  if (found != ids_.end()) return found->second;
  const auto id = StorageId(known_.size());
  ids_[impl] = id;
  known_.emplace_back();
  Storage s;
  s.bytes = std::int64_t(t.storage().nbytes());
  s.device = t.device();
  recording_.storages.emplace_back(t.storage().getWeakStorageImpl());
  if (const auto known = outside_.find(impl); known != outside_.end()) {
    s.role = known->second.role;
    s.index = known->second.index;
    s.name = known->second.name;
  } else if (argument) {
    s.role = Role::captured;
    s.index = std::int32_t(recording_.captured.size());
    s.name = "captured " + std::to_string(s.index);
    const auto& version = t.unsafeGetTensorImpl()->version_counter();
    recording_.captured.push_back({id, recording_.storages.back(), version, version.enabled() ? version.current_version() : 0, 0});
  }
  recording_.graph.storages.push_back(std::move(s));
  return id;
}

ValueId Recorder::intern(const at::Tensor& t, StorageId storage) {
  Value v;
  v.storage = storage;
  v.version = known_[storage].version;
  v.offset = t.storage_offset();
  v.sizes = t.sizes().vec();
  v.strides = t.strides().vec();
  v.dtype = t.scalar_type();
  v.conj = t.is_conj();
  v.neg = t.is_neg();
  v.zero = t._is_zerotensor();
  auto& values = recording_.graph.values;
  auto& here = known_[storage].values;
  for (auto it = here.rbegin(); it != here.rend(); ++it)
    if (values[*it] == v) return *it;
  values.push_back(std::move(v));
  here.push_back(ValueId(values.size() - 1));
  return here.back();
}

void Recorder::note_autograd(const at::Tensor& t, ValueId value) {
  auto* meta = torch::autograd::impl::get_autograd_meta(t);
  const auto producer = known_[recording_.graph.values[value].storage].producer;
  if (!meta || !meta->grad_fn_ || producer < 0) return;
  auto name = autograd_name(*meta->grad_fn_, first_sequence_);
  auto& created = recording_.graph.nodes[producer].created;
  if (std::find(created.begin(), created.end(), name) == created.end()) created.push_back(std::move(name));
}

ValueId Recorder::record_tensor(const at::Tensor& t, const Node& node, bool argument) {
  if (!t.defined()) return -1;
  if (!strided(t)) {
    refuse(describe(node) + " has a tensor of layout " + c10::str(t.layout()) + ", expected strided ones only");
    return -1;
  }
  const auto id = storage_id(t, argument);
  auto& storage = recording_.graph.storages[id];  // resize_ may have made it larger
  if (storage.role == Role::internal) storage.bytes = std::max(storage.bytes, std::int64_t(t.storage().nbytes()));
  const auto value = intern(t, id);
  if (argument) note_autograd(t, value);
  return value;
}

Argument Recorder::record(const c10::IValue& v, const Node& node, bool argument) {
  Argument a;
  if (v.isTensor()) {
    const auto& t = v.toTensor();
    if (argument && t.defined() && is_number(t)) {
      a.wrapped = true;
      a.constant = number_of(t);
      return a;
    }
    a.kind = Argument::Kind::tensor;
    a.values.push_back(record_tensor(t, node, argument));
  } else if (v.isTensorList()) {
    a.kind = Argument::Kind::tensors;
    for (const at::Tensor& t : v.toTensorVector()) a.values.push_back(record_tensor(t, node, argument));
  } else if (v.isOptionalTensorList()) {
    a.kind = Argument::Kind::tensors;
    for (const auto& t : v.toOptionalTensorVector()) a.values.push_back(t ? record_tensor(*t, node, argument) : -1);
  } else if (v.isGenerator() || !to_constant(v, a.constant)) {
    refuse(describe(node) + " has an argument of type " + v.tagKind() + ", which a recording cannot hold");
  }
  return a;
}

void Recorder::add_writes(const c10::FunctionSchema& schema, Node& node) {
  const auto* row = find_op(node.op);
  for (std::size_t i = 0; i < node.args.size(); i++) {
    const auto* alias = schema.arguments()[i].alias_info();
    const bool hidden = row && !row->writes.empty() && [&] {
      const std::string_view name = schema.arguments()[i].name();
      const auto at = row->writes.find(name);
      return at != std::string_view::npos;
    }();
    if (!hidden && !(alias && alias->isWrite())) continue;
    for (auto v : node.args[i].values)
      if (v >= 0) node.writes.push_back(recording_.graph.values[v].storage);
  }
  std::sort(node.writes.begin(), node.writes.end());
  node.writes.erase(std::unique(node.writes.begin(), node.writes.end()), node.writes.end());
}

void Recorder::check_schema(const c10::OperatorHandle& op, const Node& node, const torch::jit::Stack& stack, std::size_t base) {
  const auto& schema = op.schema();
  for (std::size_t k = base; k < stack.size(); k++)
    if (!stack[k].isTensor() && !stack[k].isTensorList() && !stack[k].isNone())
      return refuse("the loss function reads a tensor on the host in " + describe(node) +
                    ", expected none: what it does next may depend on the number");
  // Reads at integer positions have the positions' sizes; only masks make sizes depend on values.
  const auto* row = find_op(node.op);
  const auto read = node.args.empty() || node.args[0].values.empty() ? -1 : node.args[0].values[0];
  bool masked = !row || row->kind != Kind::gather;
  for_each_value(node.args, [&](ValueId v) {
    const auto dtype = recording_.graph.values[v].dtype;
    masked |= v != read && (dtype == at::kBool || dtype == at::kByte);
  });
  if (masked && (op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output)))
    return refuse("the sizes of what " + describe(node) + " returns depend on its operands' values, expected sizes that follow from sizes");
  if (schema.arguments().size() != node.args.size()) throw InternalError(describe(node) + " disagrees with its schema");
}

void Recorder::on_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  if (refused()) return redispatch(op, keys, stack);
  const auto& schema = op.schema();
  auto& graph = recording_.graph;
  Node node;
  node.id = NodeId(graph.nodes.size());
  node.op = full_name(op);
  node.side = side_;
  const auto* row = find_op(node.op);
  node.effects.opaque = !row;
  node.effects.random = op.hasTag(at::Tag::nondeterministic_seeded);
  node.effects.collective = node.op.rfind("c10d", 0) == 0 || node.op.rfind("_c10d", 0) == 0;
  if (auto current = torch::autograd::get_current_node()) node.ran_for = autograd_name(*current, first_sequence_);

  const auto first = stack.size() - schema.arguments().size();
  for (std::size_t i = first; i < stack.size(); i++) node.args.push_back(record(stack[i], node, true));
  if (audit_) audit_before(node);

  redispatch(op, keys, stack);

  add_writes(schema, node);
  for (auto s : node.writes) known_[s].version++;
  const auto out = stack.size() - schema.returns().size();
  check_schema(op, node, stack, out);
  for (std::size_t k = out; k < stack.size() && !refused(); k++) node.results.push_back(record(stack[k], node, false));
  if (refused()) return;
  for_each_value(node.results, [&](ValueId v) {
    auto& k = known_[graph.values[v].storage];
    if (k.producer < 0 || std::binary_search(node.writes.begin(), node.writes.end(), graph.values[v].storage)) k.producer = node.id;
  });
  for (auto s : node.writes) known_[s].producer = node.id;
  if (audit_) {
    audit_after(node);
    measure_memory(node);
  }
  graph.nodes.push_back(std::move(node));
}

ValueId Recorder::value_of(const at::Tensor& t, const std::string& what) {
  if (!t.defined()) return -1;
  if (!strided(t)) {
    refuse(what + " has layout " + c10::str(t.layout()) + ", expected a strided tensor");
    return -1;
  }
  auto* impl = t.storage().unsafeGetStorageImpl();
  if (!ids_.count(impl) && !outside_.count(impl)) {
    refuse(what + " was made by no recorded op (another thread, or host memory), expected one of this thread's ops");
    return -1;
  }
  const auto v = intern(t, storage_id(t, false));
  note_autograd(t, v);
  return v;
}

}  // namespace tandem
