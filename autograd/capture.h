// Records one eager step below autograd as a Graph. Holds weak references only: strong ones change what autograd does.
#pragma once

#include "autograd/graph.h"
#include "autograd/key.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace tandem {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

/// A tensor that exists before the step and has a role in it.
struct KnownTensor {
  Role role;
  std::int32_t index;
  std::string name;
  at::Tensor tensor;
};

/// A tensor that the step read and nobody told us about: the closure's own.
struct CapturedStorage {
  StorageId id;
  WeakStorage storage;
  c10::VariableVersion version;   // its version counter, to be advanced as eager does
  std::uint32_t version_at_start = 0, version_at_end = 0;
};

struct Recording {
  Graph graph;
  std::string refusal;  // one sentence when the step must not be replayed; empty otherwise
  std::size_t first_update = 0;        // node at which the optimizer's step began
  std::vector<CapturedStorage> captured;
  std::vector<WeakStorage> storages;   // by StorageId
  std::vector<double> memory;          // live bytes of what the step made, after each node; empty without audit
  std::vector<std::uint64_t> hashes;   // per node, of the storages of its results after it ran; empty without audit
};

class Recorder : public OpListener {
 public:
  /// `audit`: hash the storages of all arguments before and after each op.
  Recorder(const std::vector<KnownTensor>& known, bool audit);

  void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) override;

  void set_side(Side side) { side_ = side; }
  /// The optimizer's own step begins now (what came before in the update side is clipping).
  void begin_optimizer() { recording_.first_update = recording_.graph.nodes.size(); }
  /// The value that a tensor has now, for outputs; refuses when no recorded op made it.
  ValueId value_of(const at::Tensor& tensor, const std::string& what);
  void refuse(std::string sentence);
  bool refused() const { return !recording_.refusal.empty(); }

  /// Ends the recording. The caller fills loss, outputs and gradients by value_of() before.
  Recording finish();
  Graph& graph() { return recording_.graph; }

 private:
  StorageId storage_id(const at::Tensor& tensor, bool argument);
  ValueId intern(const at::Tensor& tensor, StorageId storage);
  Argument record(const c10::IValue& value, const Node& node, bool argument);
  ValueId record_tensor(const at::Tensor& tensor, const Node& node, bool argument);
  void check_schema(const c10::OperatorHandle& op, const Node& node, const torch::jit::Stack& stack, std::size_t base);
  void audit_before(const Node& node);
  void audit_after(const Node& node);
  void add_writes(const c10::FunctionSchema& schema, Node& node);
  void measure_memory(const Node& node);
  void note_autograd(const at::Tensor& tensor, ValueId value);

  struct Known {
    std::int32_t version = 0;
    std::int32_t producer = -1;   // node that made the current version
    std::uint64_t hash = 0;       // of the content after that node
    bool hashed = false;
    std::vector<ValueId> values;
  };
  struct Outside {  // a known tensor that no op has used yet
    Role role;
    std::int32_t index;
    std::string name;
    WeakStorage storage;
  };
  Recording recording_;
  std::vector<Known> known_;
  std::unordered_map<c10::StorageImpl*, Outside> outside_;
  std::unordered_map<c10::StorageImpl*, StorageId> ids_;
  std::vector<StorageId> alive_;  // internal storages that were alive when last looked at
  Side side_ = Side::forward;
  bool audit_;
  std::uint64_t generator_ = 0;
  std::int64_t first_sequence_ = 0;
};

/// Storages that the step made and that are still alive, loss, outputs, gradients and optimizer state left out: somebody keeps them. Call it
/// when the step's own handles are gone. Returns one sentence or "".
std::string escaped(const Recording& recording, const std::vector<c10::StorageImpl*>& exempt);

/// Whether the second of two recordings of equal graphs read the same outside tensors as the first. Returns one sentence or "".
std::string replaced(const Recording& before, const Recording& now);

}  // namespace tandem
