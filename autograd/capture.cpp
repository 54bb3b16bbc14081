#include "autograd/capture.h"

#include "autograd/audit.h"
#include "autograd/observed.h"
#include "autograd/op.h"
#include "autograd/support/error.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem {

Recorder::Recorder(const std::vector<KnownTensor>& known, bool audit) : audit_(audit) {
  recording_.graph.made_by = "capture";
  first_sequence_ = std::int64_t(at::sequence_number::peek());
  for (const auto& k : known) know(k);
  if (audit_) generator_ = generator_hash();
}

void Recorder::know(const KnownTensor& k) {
  if (!k.tensor.defined()) return;
  if (!is_strided(k.tensor))
    return refuse(std::string(name_of(k.role)) + " '" + k.name + "' has no strided storage, expected a dense tensor");
  // Two tensors of one storage: the first names it.
  outside_.emplace(k.tensor.storage().unsafeGetStorageImpl(), Outside{k.role, k.index, k.name, k.tensor.storage().getWeakStorageImpl()});
}

namespace {

/// The tensor objects on top of the stack; nullptr for what is none.
std::vector<const c10::TensorImpl*> objects(const torch::jit::Stack& stack, std::size_t first) {
  std::vector<const c10::TensorImpl*> out;
  for (auto i = first; i < stack.size(); i++)
    out.push_back(stack[i].isTensor() && stack[i].toTensor().defined() ? stack[i].toTensor().unsafeGetTensorImpl() : nullptr);
  return out;
}

bool may_read_on_host(const c10::OperatorHandle& op, const OpRow* row) {
  if (row && row->kind == Kind::ragged) return true;
  if (op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output)) return true;
  const auto& returns = op.schema().returns();
  return std::any_of(returns.begin(), returns.end(), [](const c10::Argument& r) {
    const auto kind = r.type()->kind();
    return kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType && kind != c10::TypeKind::OptionalType;
  });
}

}  // namespace

void Recorder::end_forward() {
  recording_.forward_end = recording_.graph.nodes.size();
  note_alive();
}

void Recorder::refuse(std::string sentence) {
  seals_.open_all();
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
  if (copies_) keep_outside(id, t.storage());
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
  if (!is_strided(t)) {
    refuse(describe(node) + " has a tensor of layout " + c10::str(t.layout()) + ", expected strided ones only");
    return -1;
  }
  const auto id = storage_id(t, argument);
  auto& storage = recording_.graph.storages[id];  // resize_ may have made it larger
  if (storage.role == Role::internal) storage.bytes = std::max(storage.bytes, std::int64_t(t.storage().nbytes()));
  if (argument && known_[std::size_t(id)].factory >= 0) find_host_made(id);
  const auto value = intern(t, id);
  if (argument) note_autograd(t, value);
  return value;
}

Argument Recorder::record(const c10::IValue& v, const Node& node, bool argument) {
  Argument a;
  if (v.isTensor()) {
    const auto& t = v.toTensor();
    if (argument && t.defined() && is_wrapped_number(t)) {
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

/// A value or a size that depends on values goes to the host: what it does next may depend on it.
bool Recorder::reads_on_host(const c10::OperatorHandle& op, const Node& node, const torch::jit::Stack& stack, std::size_t base) const {
  for (std::size_t k = base; k < stack.size(); k++)
    if (!stack[k].isTensor() && !stack[k].isTensorList() && !stack[k].isNone()) return true;
  // Reads at integer positions have the positions' sizes; only masks make sizes depend on values.
  const auto* row = find_op(node.op);
  if (row && row->kind == Kind::ragged) return true;
  const auto read = node.args.empty() || node.args[0].values.empty() ? -1 : node.args[0].values[0];
  bool masked = !row || row->kind != Kind::gather;
  for_each_value(node.args, [&](ValueId v) {
    const auto dtype = recording_.graph.values[v].dtype;
    masked |= v != read && (dtype == at::kBool || dtype == at::kByte);
  });
  return masked && (op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output));
}

/// Of the node that is recorded now.
void Recorder::note_returned(const std::vector<const c10::TensorImpl*>& given, const torch::jit::Stack& stack) {
  const auto results = objects(stack, stack.size() - std::min(stack.size(), recording_.graph.nodes.back().results.size()));
  for (std::size_t k = 0; k < results.size(); k++) {
    const auto at = std::find(given.begin(), given.end(), results[k]);
    if (results[k] && at != given.end())
      recording_.returned.push_back({recording_.graph.nodes.size() - 1, std::int32_t(k), std::int32_t(at - given.begin())});
  }
}

/// In a step that is one piece of the caller's code. What follows the first update is update too: a plan's sides come in order.
Side Recorder::side_now() {
  const bool in_backward = torch::autograd::get_current_node() != nullptr;
  if (side_ == Side::forward && in_backward) {
    side_ = Side::backward;
    end_forward();
  }
  if (side_ == Side::backward && !in_backward) {
    side_ = Side::update;
    begin_optimizer();
  }
  return side_;
}

void Recorder::on_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  if (refused()) return redispatch(op, keys, stack);
  const auto& schema = op.schema();
  auto& graph = recording_.graph;
  Node node;
  node.id = NodeId(graph.nodes.size());
  node.op = full_name(op);
  node.side = finds_sides_ ? side_now() : side_;
  const auto* row = find_op(node.op);
  node.effects.opaque = !row;
  node.effects.random = op.hasTag(at::Tag::nondeterministic_seeded);
  node.effects.collective = node.op.rfind("c10d", 0) == 0 || node.op.rfind("_c10d", 0) == 0;
  if (auto current = torch::autograd::get_current_node()) node.ran_for = autograd_name(*current, first_sequence_);

  const auto first = stack.size() - schema.arguments().size();
  for (std::size_t i = first; i < stack.size(); i++) node.args.push_back(record(stack[i], node, true));
  const auto given = objects(stack, first);
  if (audit_) {
    audit_before(node);
    open_seals(node);
  }
  const bool pointed = pointers_ && pointers_->count({node.id, node.op});
  const bool may_read = pointed || may_read_on_host(op, row);
  if (may_read) note_alive();

  redispatch(op, keys, stack);

  add_writes(schema, node);
  for (auto s : node.writes) known_[s].version++;
  const auto out = stack.size() - schema.returns().size();
  node.effects.host_read = pointed || reads_on_host(op, node, stack, out);
  if (may_read && !node.effects.host_read) recording_.alive.pop_back();
  if (schema.arguments().size() != node.args.size()) throw InternalError(describe(node) + " disagrees with its schema");
  for (std::size_t k = out; k < stack.size() && !refused(); k++) node.results.push_back(record(stack[k], node, false));
  if (refused()) return;
  if (node.effects.host_read) note_read(node);
  for_each_value(node.results, [&](ValueId v) {
    auto& k = known_[graph.values[v].storage];
    if (k.producer < 0 || std::binary_search(node.writes.begin(), node.writes.end(), graph.values[v].storage)) k.producer = node.id;
  });
  for (auto s : node.writes) known_[s].producer = node.id;
  if (row && row->kind == Kind::factory) note_factory(node);
  if (audit_) {
    audit_after(node);
    measure_memory(node);
  }
  graph.nodes.push_back(std::move(node));
  if (audit_) seal(graph.nodes.back());
  note_returned(given, stack);
}

void Recorder::forbid(const std::string& what, const CallStack& stack) {
  const auto site = call_site(stack);
  throw Error("Options::fullgraph: expected a step in which the host reads nothing that it computes, found " + what +
              (site.empty() ? "" : ", called from " + site));
}

void Recorder::note_read(Node& node) {
  auto stack = call_stack();
  if (forbids_reads_) forbid(describe(node), stack);
  recording_.read_at.emplace(node.id, std::move(stack));
  for (auto& r : node.results) r.constant = None{};  // another number in each step is no other step
}

ValueId Recorder::value_of(const at::Tensor& t, const std::string& what) {
  if (!t.defined()) return -1;
  if (!is_strided(t)) {
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
