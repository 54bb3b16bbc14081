#include "autograd/replay.h"

#include "autograd/audit.h"
#include "autograd/autograd_graph.h"
#include "autograd/node_call.h"
#include "autograd/observed.h"
#include "autograd/placeholder.h"

#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>

namespace tandem {
namespace {

bool has_lazy_bits(const at::Tensor& t) {
  static constexpr c10::DispatchKeySet bits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  return t.key_set().has_any(bits);
}

bool same_lazy_bits(const at::Tensor& t, const Value& v) {
  if (!has_lazy_bits(t)) return !v.conj && !v.neg && !v.zero;
  return t.is_conj() == v.conj && t.is_neg() == v.neg && t._is_zerotensor() == v.zero;
}

}  // namespace

Replayer::Replayer(std::vector<const Tape*> tapes, Bind bind, RunParts run_parts, MakeRecorder make_recorder)
    : tapes_(std::move(tapes)), tape_(tapes_.front()), bind_outside_(std::move(bind)), run_parts_(std::move(run_parts)),
      make_recorder_(std::move(make_recorder)) {
  generator_ = generator_hash();
  first_sequence_ = std::int64_t(autograd_sequence());
  numbers_.reserve(tape_->numbers().size());
  load(*tape_, 0);
}

/// Takes the tape's storages from number `from` on; those before it are bound by calls that matched.
void Replayer::load(const Tape& tape, std::size_t from) {
  RunInputs known;
  known.storages.resize(tape.graph().storages.size());
  bind_outside_(tape, known);
  places_.resize(known.storages.size());
  carried_.resize(std::max(carried_.size(), known.storages.size()));
  for (std::size_t s = from; s < places_.size(); s++) {
    auto& b = known.storages[s];
    places_[s] = {};
    places_[s].impl = b.storage.unsafeGetStorageImpl();
    places_[s].outside = std::move(b.storage);
    places_[s].shift = b.shift;
  }
}

bool Replayer::bind(const Tape& tape, const at::Tensor& t, const Value& v) {
  auto* impl = t.storage().unsafeGetStorageImpl();
  const auto& storage = tape.graph().storages[std::size_t(v.storage)];
  if (storage.role != Role::captured || is_placeholder(*impl)) return false;
  if (std::any_of(places_.begin(), places_.end(), [&](const Place& p) { return p.impl == impl; })) return false;
  const auto shift = (t.storage_offset() - v.offset) * std::int64_t(t.itemsize());
  if (shift == 0 ? std::int64_t(t.storage().nbytes()) != storage.bytes : tape.writes(v.storage)) return false;
  auto& p = places_[std::size_t(v.storage)];
  p.impl = impl;
  p.outside = t.storage();
  p.shift = shift;
  const auto& version = t.unsafeGetTensorImpl()->version_counter();
  const auto now = version.enabled() ? version.current_version() : 0;
  captured_.push_back({v.storage, t.storage().getWeakStorageImpl(), version, now, now});
  return true;
}

bool Replayer::matches(const Tape& tape, const at::Tensor& t, ValueId id) {
  if (id < 0) return !t.defined();
  if (!t.defined() || !is_strided(t)) return false;
  const auto& v = tape.graph().values[std::size_t(id)];
  auto& p = places_[std::size_t(v.storage)];
  if (p.impl != t.storage().unsafeGetStorageImpl() && (p.impl || !bind(tape, t, v))) return false;
  if (t.dtype() != tape.shape(id).type || t.sizes() != at::IntArrayRef(v.sizes) || t.strides() != at::IntArrayRef(v.strides)) return false;
  const auto offset = p.shift == 0 ? v.offset : v.offset + p.shift / std::int64_t(t.itemsize());
  return t.storage_offset() == offset && same_lazy_bits(t, v);
}

bool Replayer::matches_number(const Tape& tape, const Tape::Arg& arg, const c10::IValue& v) {
  const bool whole = is_integral(*arg.argument);
  if (whole ? !v.isInt() : !v.isDouble()) return false;
  const double value = whole ? double(v.toInt()) : v.toDouble();
  numbers_.push_back(value);
  const auto i = std::size_t(arg.number);
  if (tape.is_free(i)) return !whole || std::int64_t(value) == v.toInt();
  if (same_bits(value, tape.recorded_number(i))) return true;
  moved_ = true;
  return false;
}

bool Replayer::matches(const Tape& tape, const Tape::Arg& arg, const c10::IValue& v) {
  using Is = Tape::Is;
  switch (arg.is) {
    case Is::tensor:
      return v.isTensor() && !(v.toTensor().defined() && is_wrapped_number(v.toTensor())) &&
             matches(tape, v.toTensor(), arg.argument->values[0]);
    case Is::none: return v.isNone();
    case Is::flag: return v.isBool() && v.toBool() == bool(arg.whole);
    case Is::whole: return v.isInt() && v.toInt() == arg.whole;
    case Is::number: return matches_number(tape, arg, v);
    case Is::wrapped:
    case Is::wrapped_constant: {
      if (!v.isTensor() || !v.toTensor().defined() || !is_wrapped_number(v.toTensor())) return false;
      const auto number = number_of(v.toTensor());
      if (arg.is == Is::wrapped_constant) return same(number, arg.argument->constant);
      return number.index() == arg.argument->constant.index() && matches_number(tape, arg, to_ivalue(number));
    }
    case Is::tensors: {
      if (!v.isTensorList()) return false;
      const auto list = v.toTensorVector();
      const auto& values = arg.argument->values;
      if (list.size() != values.size()) return false;
      for (std::size_t i = 0; i < list.size(); i++)
        if (!matches(tape, list[i], values[i])) return false;
      return true;
    }
    case Is::optional_tensors: {
      if (!v.isOptionalTensorList()) return false;
      const auto list = v.toOptionalTensorVector();
      const auto& values = arg.argument->values;
      if (list.size() != values.size()) return false;
      for (std::size_t i = 0; i < list.size(); i++)
        if (!matches(tape, list[i] ? *list[i] : at::Tensor(), values[i])) return false;
      return true;
    }
    case Is::other: {
      Constant found;
      return !v.isTensor() && to_constant(v, found) && same(found, arg.argument->constant);
    }
  }
  return false;
}

bool Replayer::follows(const Tape& tape, const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  moved_ = false;
  failed_argument_ = -1;
  if (position_ >= tape.length()) return false;
  const auto& call = tape.calls()[position_];
  if (!(call.op == op)) return false;
  const auto first = stack.size() - call.args.size();
  for (std::size_t i = 0; i < call.args.size(); i++)
    if (!matches(tape, call.args[i], stack[first + i])) {
      failed_argument_ = std::int32_t(i);
      numbers_.resize(std::size_t(call.first_number));
      return false;
    }
  return true;
}

/// The numbers of the calls so far are what the other tape wants, too.
bool Replayer::agrees_so_far(const Tape& other) const {
  if (common_calls(*tape_, other) < position_) return false;
  for (std::size_t i = 0; i < numbers_.size(); i++)
    if (!other.is_free(i) && !same_bits(numbers_[i], other.recorded_number(i))) return false;
  return true;
}

void Replayer::take(const Tape& other) {
  const auto met = named_by(tape_->graph(), position_).storages;  // those have the same numbers on both tapes
  tape_ = &other;
  std::erase_if(captured_, [&](const CapturedStorage& c) { return std::size_t(c.id) >= met; });
  load(other, met);
}

bool Replayer::switch_path(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto* before = tape_;
  for (const auto* other : tapes_) {
    if (other == before || !agrees_so_far(*other)) continue;
    take(*other);
    if (follows(*other, op, stack)) return true;
    take(*before);
  }
  return false;
}

bool Replayer::ends(const std::function<bool(const Tape&)>& fits) {
  if (position_ == tape_->length() && fits(*tape_)) return true;
  const auto* before = tape_;
  for (const auto* other : tapes_) {
    if (other == before || other->length() != position_ || !agrees_so_far(*other)) continue;
    take(*other);
    if (fits(*other)) return true;
  }
  if (tape_ != before) take(*before);
  return false;
}

void Replayer::on_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  if (recorder_) return recorder_->on_op(op, keys, stack);
  if (!follows(*tape_, op, stack)) {
    const auto sentence = mismatch(op);
    if (!switch_path(op, stack)) {
      diverge(sentence);
      return recorder_->on_op(op, keys, stack);
    }
  }
  const auto& call = tape_->calls()[position_];
  const auto& node = tape_->graph().nodes[position_];
  if (call.random && generator_hash() != generator_)
    diverge("the random generator was moved by hand before " + describe(node));
  else if (call.stop >= 0 && !stop(call.stop))
    diverge("the host keeps a tensor at " + describe(node) + " that it did not keep in the recorded steps");
  else if (call.host_read && !read(op, keys, stack))
    diverge(describe(node) + " gives other sizes than in the recorded steps");
  if (recorder_) return recorder_->on_op(op, keys, stack);
  if (!call.host_read) answer(stack);
  position_++;
}

/// Runs the step up to here and gives the host its data. False where the plan does not deliver what the host holds.
bool Replayer::stop(std::int32_t at) {
  const auto parts = tape_->parts_before(position_);
  if (parts <= parts_run_) return true;
  for (auto s : held())
    if (!tape_->delivers(at, s)) return false;
  unveil();
  failed_ = true;
  run_parts_(*tape_, parts_run_, parts);
  failed_ = false;
  parts_run_ = parts;
  started_ = position_;
  for (auto s : held())
    if (carried_[std::size_t(s)]) fill(s, carried_[std::size_t(s)]);
  generator_ = generator_hash();
  return true;
}

/// The host read itself: the stack holds its results then, or its arguments as before.
bool Replayer::read(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  const auto& call = tape_->calls()[position_];
  const auto first = stack.size() - call.args.size();
  const torch::jit::Stack arguments(stack.begin() + std::ptrdiff_t(first), stack.end());
  redispatch(op, keys, stack);
  if (!takes_results(stack, first) && !switch_path_by_results(op, arguments, stack)) {
    torch::jit::drop(stack, stack.size() - first);
    stack.insert(stack.end(), arguments.begin(), arguments.end());
    return false;
  }
  if (!tape_->parts().free_reads[position_]) {
    parts_run_++;
    started_ = position_ + 1;
  }
  return true;
}

bool Replayer::takes_results(const torch::jit::Stack& stack, std::size_t first) {
  const auto& call = tape_->calls()[position_];
  std::vector<std::pair<ValueId, at::Tensor>> found;
  for (std::size_t k = 0; k < call.results.size(); k++) {
    const auto& r = call.results[k];
    if (r.is == Tape::Is::tensor) found.emplace_back(r.argument->values[0], stack[first + k].toTensor());
    if (r.is != Tape::Is::tensors) continue;
    const auto list = stack[first + k].toTensorVector();
    if (list.size() != r.argument->values.size()) return false;
    for (std::size_t i = 0; i < list.size(); i++) found.emplace_back(r.argument->values[i], list[i]);
  }
  for (const auto& [id, t] : found) {
    if (id < 0 || !t.defined()) continue;
    const auto& v = tape_->graph().values[std::size_t(id)];
    if (t.sizes() != at::IntArrayRef(v.sizes) || t.strides() != at::IntArrayRef(v.strides) || t.scalar_type() != v.dtype) return false;
    auto& p = places_[std::size_t(v.storage)];
    p.impl = t.storage().unsafeGetStorageImpl();
    if (tape_->graph().storages[std::size_t(v.storage)].role == Role::captured) {  // the host is about to fill it
      p.outside = t.storage();
      captured_.push_back({v.storage, t.storage().getWeakStorageImpl(), c10::VariableVersion(0), 0, 0});
      continue;
    }
    p.weak = t.storage().getWeakStorageImpl();
    carried_[std::size_t(v.storage)] = t.storage();
  }
  return true;
}

std::optional<PointerReads::value_type> Replayer::latest_made() const {
  const auto& g = tape_->graph();
  StorageId latest = -1;
  if (position_ > 0) for_each_value(g.nodes[position_ - 1].results, [&](ValueId v) { latest = g.values[std::size_t(v)].storage; });
  for (std::size_t n = 0; n < position_; n++) {
    bool makes = false;
    for_each_value(g.nodes[n].results, [&](ValueId v) { makes |= g.values[std::size_t(v)].storage == latest; });
    if (makes && g.storages[std::size_t(latest)].role == Role::internal) return std::pair(g.nodes[n].id, g.nodes[n].op);
  }
  return std::nullopt;
}

std::string Replayer::mismatch(const c10::OperatorHandle& op) const {
  if (position_ >= tape_->length()) return "found " + full_name(op) + " after the last recorded op";
  const auto& node = tape_->graph().nodes[position_];
  if (failed_argument_ < 0) return "found " + full_name(op) + " where " + describe(node) + " was recorded";
  const auto name = tape_->calls()[position_].op.schema().arguments()[std::size_t(failed_argument_)].name();
  if (moved_) return "argument '" + name + "' of " + describe(node) + " is another number than in the recorded steps";
  return "argument '" + name + "' of " + describe(node) + " is not the recorded one";
}

at::Tensor Replayer::placeholder(ValueId id, bool of_normal) {
  if (id < 0) return {};
  const auto& v = tape_->graph().values[std::size_t(id)];
  auto& p = places_[std::size_t(v.storage)];
  c10::Storage storage = p.outside;
  if (!storage && p.impl) storage = c10::Storage(p.weak.lock());
  if (!storage) {
    const auto& s = tape_->graph().storages[std::size_t(v.storage)];
    storage = make_placeholder(s.bytes, s.device);
    p.impl = storage.unsafeGetStorageImpl();
    p.weak = storage.getWeakStorageImpl();
  }
  const auto& shape = tape_->shape(id);
  // In inference mode a view of a normal tensor is a normal tensor.
  auto impl = of_normal ? c10::make_intrusive<c10::TensorImpl>(c10::TensorImpl::VIEW, std::move(storage), shape.keys, shape.type)
                        : c10::make_intrusive<c10::TensorImpl>(std::move(storage), shape.keys, shape.type);
  const auto offset = p.shift == 0 ? v.offset : v.offset + p.shift / std::int64_t(shape.type.itemsize());
  impl->set_sizes_and_strides(v.sizes, v.strides, offset);
  return at::Tensor(std::move(impl));
}

/// Memory that exists, and that the call would have written, must not be read before it is.
void Replayer::veil_written() {
  for (auto s : tape_->graph().nodes[position_].writes) {
    auto& p = places_[std::size_t(s)];
    veiled_.resize(places_.size());
    if (veiled_[std::size_t(s)] || !p.impl) continue;
    const auto storage = p.outside ? p.outside : c10::Storage(p.weak.lock());
    if (!storage || is_unreadable(*storage.unsafeGetStorageImpl())) continue;
    veils_.emplace_back(storage);
    veiled_[std::size_t(s)] = true;
  }
}

void Replayer::unveil() {
  veils_.clear();
  veiled_.clear();
}

/// Whether, in inference mode, the value is a view of an argument that is no inference tensor.
bool Replayer::views_normal(const torch::jit::Stack& stack, std::size_t first, ValueId id) const {
  if (!c10::InferenceMode::is_enabled() || id < 0) return false;
  const auto* impl = places_[std::size_t(tape_->graph().values[std::size_t(id)].storage)].impl;
  return impl && std::any_of(stack.begin() + std::ptrdiff_t(first), stack.end(), [&](const c10::IValue& v) {
           return v.isTensor() && v.toTensor().defined() && v.toTensor().has_storage() && !v.toTensor().is_inference() &&
                  v.toTensor().storage().unsafeGetStorageImpl() == impl;
         });
}

void Replayer::answer(torch::jit::Stack& stack) {
  veil_written();
  const auto& call = tape_->calls()[position_];
  const auto first = stack.size() - call.args.size();
  c10::SmallVector<c10::IValue, 4> results;
  for (const auto& r : call.results) {
    if (r.returned >= 0) {
      results.push_back(std::move(stack[first + std::size_t(r.returned)]));
      const auto& t = results.back().toTensor();
      if (const auto id = r.argument->values[0]; id >= 0 && t.defined()) {
        const auto& v = tape_->graph().values[std::size_t(id)];
        if (t.sizes() != at::IntArrayRef(v.sizes) || t.strides() != at::IntArrayRef(v.strides))
          t.unsafeGetTensorImpl()->set_sizes_and_strides(v.sizes, v.strides, t.storage_offset());
      }
    } else if (r.is == Tape::Is::tensor) {
      results.emplace_back(placeholder(r.argument->values[0], views_normal(stack, first, r.argument->values[0])));
    } else if (r.is == Tape::Is::tensors) {
      c10::List<at::Tensor> list;
      for (auto v : r.argument->values) list.push_back(placeholder(v));
      results.emplace_back(std::move(list));
    } else {
      results.emplace_back();
    }
  }
  torch::jit::drop(stack, call.args.size());
  for (auto& r : results) stack.push_back(std::move(r));
}

bool Replayer::stands_for(const at::Tensor& t, ValueId id) const {
  if (id < 0 || !t.defined()) return id < 0 && !t.defined();
  if (!is_strided(t)) return false;
  const auto& v = tape_->graph().values[std::size_t(id)];
  const auto& p = places_[std::size_t(v.storage)];
  return p.impl == t.storage().unsafeGetStorageImpl() && t.sizes() == at::IntArrayRef(v.sizes) &&
         t.strides() == at::IntArrayRef(v.strides) && t.scalar_type() == v.dtype &&
         t.storage_offset() == v.offset + p.shift / std::int64_t(t.itemsize()) && same_lazy_bits(t, v);
}

}  // namespace tandem
