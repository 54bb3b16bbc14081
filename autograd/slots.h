// The tensors of one run of a graph. Values that differ by their version only share a slot: the memory is the same.
#pragma once

#include "autograd/graph.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace tandem {

/// What a non-internal storage is in one run. `shift`: bytes by which an input lies further into its storage than in the recorded step.
struct Binding {
  c10::Storage storage;
  std::int64_t shift = 0;
};

/// The outside world of one run: a binding per storage id (internal ones are left empty) and a number per run-time scalar.
struct RunInputs {
  std::vector<Binding> storages;
  std::vector<double> scalars;
};

/// The dispatch keys of a tensor of the value's dtype and bits.
c10::DispatchKeySet keys_of(const Value& value, c10::Device device);

/// A strided tensor of the value's geometry on `storage`, without autograd state.
at::Tensor make_tensor(const Value& value, const c10::Storage& storage, std::int64_t shift = 0);

class Slots {
 public:
  explicit Slots(const Graph& graph);

  void bind(const RunInputs& inputs);
  const at::Tensor& get(ValueId v);   // made from its geometry where no op has returned it
  at::Tensor fresh(ValueId v) const;  // a tensor object of its own, for ops that change the geometry of their argument
  void set(ValueId v, at::Tensor t);  // a result
  void forget(ValueId v) { tensors_[slot_of_[v]].reset(); }  // a tensor object that an op has left in another geometry
  void place(StorageId s, c10::Storage memory);              // where the storage lies from now on, until it is released
  /// The address of the storage's first byte, as the recorded step counts them. Throws InternalError when it does not exist.
  char* base(StorageId s) const;
  bool has_storage(StorageId s) const { return bool(storages_[s].storage); }
  bool same_slot(ValueId a, ValueId b) const { return slot_of_[a] == slot_of_[b]; }
  void release(StorageId s);
  void release_internal();
  void release_step();  // internal storages, and those that the plan must not keep alive: inputs, gradients, captured tensors
  void keep(StorageId s) { kept_[s] = true; }  // survives release_internal: folded values
  const Graph& graph() const { return graph_; }

 private:
  const Graph& graph_;
  std::vector<std::int32_t> slot_of_;
  std::vector<at::Tensor> tensors_;
  std::vector<std::vector<std::int32_t>> slots_on_;
  std::vector<Binding> storages_;
  std::vector<char> kept_;
};

}  // namespace tandem
