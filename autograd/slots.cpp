#include "autograd/slots.h"

#include "autograd/support/error.h"

#include <c10/core/TensorImpl.h>

namespace tandem {
namespace {

bool same_place(const Value& a, const Value& b) {
  return a.offset == b.offset && a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides && a.conj == b.conj && a.neg == b.neg &&
         a.zero == b.zero;
}

}  // namespace

c10::DispatchKeySet keys_of(const Value& v, c10::Device device) {
  const auto key = c10::computeDispatchKey(v.dtype, c10::Layout::Strided, device);
  const auto component = c10::toBackendComponent(key);
  auto keys = c10::DispatchKeySet(key) | c10::getAutocastRelatedKeySetFromBackend(component) |
              c10::getAutogradRelatedKeySetFromBackend(component) | c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView);
  if (v.conj) keys = keys.add(c10::DispatchKey::Conjugate);
  if (v.neg) keys = keys.add(c10::DispatchKey::Negative);
  if (v.zero) keys = keys.add(c10::DispatchKey::ZeroTensor);
  return keys;
}

at::Tensor make_tensor(const Value& v, const c10::Storage& storage, std::int64_t shift) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), keys_of(v, storage.device()), c10::scalarTypeToTypeMeta(v.dtype));
  impl->set_sizes_and_strides(v.sizes, v.strides, v.offset + shift / std::int64_t(c10::elementSize(v.dtype)));
  return at::Tensor(std::move(impl));
}

Slots::Slots(const Graph& graph)
    : graph_(graph), slot_of_(graph.values.size()), slots_on_(graph.storages.size()), storages_(graph.storages.size()),
      kept_(graph.storages.size(), false) {
  std::vector<ValueId> first_of_slot;
  for (std::size_t i = 0; i < graph.values.size(); i++) {
    const auto& v = graph.values[i];
    auto& candidates = slots_on_[v.storage];
    std::int32_t slot = -1;
    for (auto s : candidates)
      if (same_place(graph.values[first_of_slot[s]], v)) slot = s;
    if (slot < 0) {
      slot = std::int32_t(first_of_slot.size());
      first_of_slot.push_back(ValueId(i));
      candidates.push_back(slot);
    }
    slot_of_[i] = slot;
  }
  tensors_.resize(first_of_slot.size());
}

void Slots::bind(const RunInputs& inputs) {
  for (std::size_t s = 0; s < storages_.size(); s++) {
    if (graph_.storages[s].role == Role::internal) continue;
    const auto& b = inputs.storages[s];
    auto& mine = storages_[s];
    // Tensors on a storage that stays (a parameter's) are kept from run to run.
    if (mine.storage.unsafeGetStorageImpl() == b.storage.unsafeGetStorageImpl() && mine.shift == b.shift) continue;
    for (auto slot : slots_on_[s]) tensors_[slot].reset();
    mine = b;
  }
}

const at::Tensor& Slots::get(ValueId v) {
  auto& t = tensors_[slot_of_[v]];
  if (!t.defined()) t = fresh(v);
  return t;
}

at::Tensor Slots::fresh(ValueId v) const {
  const auto& value = graph_.values[v];
  const auto& b = storages_[value.storage];
  if (!b.storage)
    throw InternalError("value %" + std::to_string(v) + " is read before storage s" + std::to_string(value.storage) + " exists");
  return make_tensor(value, b.storage, b.shift);
}

void Slots::set(ValueId v, at::Tensor t) {
  auto& b = storages_[graph_.values[v].storage];
  if (!b.storage) b.storage = t.storage();
  tensors_[slot_of_[v]] = std::move(t);
}

void Slots::place(StorageId s, c10::Storage memory) {
  for (auto slot : slots_on_[s]) tensors_[slot].reset();
  storages_[s] = {std::move(memory), 0};
}

char* Slots::base(StorageId s) const {
  const auto& b = storages_[s];
  if (!b.storage) throw InternalError("storage s" + std::to_string(s) + " is used by a kernel before it exists");
  return static_cast<char*>(const_cast<c10::Storage&>(b.storage).mutable_data()) + b.shift;
}

void Slots::release(StorageId s) {
  if (kept_[s]) return;
  for (auto slot : slots_on_[s]) tensors_[slot].reset();
  storages_[s] = {};
}

void Slots::release_step() {
  for (std::size_t s = 0; s < storages_.size(); s++) {
    const auto role = graph_.storages[s].role;
    if (role == Role::internal || role == Role::input || role == Role::gradient || role == Role::captured || role == Role::carried)
      release(StorageId(s));
  }
}

void Slots::release_internal() {
  for (std::size_t s = 0; s < storages_.size(); s++)
    if (graph_.storages[s].role == Role::internal) release(StorageId(s));
}

}  // namespace tandem
