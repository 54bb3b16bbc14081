// Records one eager step below autograd as a Graph. Holds weak references only: strong ones change what autograd does.
#pragma once

#include "autograd/graph.h"
#include "autograd/key.h"
#include "autograd/seal.h"
#include "autograd/support/call_site.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
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
  c10::VariableVersion version;  // its version counter, to be advanced as eager does
  std::uint32_t version_at_start = 0, version_at_end = 0;
};

/// What somebody held when the host read a number, or when the closure returned.
struct Alive {
  std::size_t node = 0;         // nodes before it
  std::vector<ValueId> values;  // one on each internal storage, at its version then
};

/// A result that is the very tensor object of an argument though the op does not write it: `lift_fresh`, say.
struct Returned {
  std::size_t node = 0;
  std::int32_t result = 0, argument = 0;
};

/// Nodes whose results the host reads through a pointer, which no call shows: their numbers and ops.
using PointerReads = std::set<std::pair<NodeId, std::string>>;

struct Recording {
  Graph graph;
  std::string refusal;           // one sentence when the step must not be replayed; empty otherwise
  std::size_t forward_end = 0;   // nodes when the closure returned
  std::size_t first_update = 0;  // node at which the optimizer's step began
  std::vector<CapturedStorage> captured;
  std::vector<WeakStorage> storages;    // by StorageId
  bool generator_moved = false;         // by hand, or by another thread, in a step that draws no random number itself
  std::vector<Alive> alive;             // ascending
  std::vector<Returned> returned;       // ascending
  PointerReads pointers;                // those that nobody had told of: the next recording is to know them, this one is refused
  std::map<NodeId, CallStack> read_at;  // where the host's code reads a number
  std::vector<double> memory;           // live bytes of what the step made, after each node; empty without audit
  std::vector<std::uint64_t> hashes;    // per node, of the storages of its results after it ran; empty without audit, 0 where unknown
  std::vector<c10::Storage> outside;    // by StorageId, those that are not internal; empty unless copies were asked for
  std::vector<c10::Storage> before;     // the same from before the step: copies of those that it writes
};

/// What a replay knows when it stops: the nodes that the host's calls matched, and the storages that stand for the graph's.
struct Prefix {
  const Recording* recorded = nullptr;
  std::size_t nodes = 0;
  std::vector<c10::StorageImpl*> storages;  // by StorageId; nullptr where none was met or it is gone
  std::vector<CapturedStorage> captured;    // of this run
  std::int64_t first_sequence = 0;          // where autograd's numbers stood when the step began
  std::vector<double> numbers;              // of the matched calls, in the order of numbers_of()
};

class Recorder : public OpListener {
 public:
  /// `audit`: hash the storages of all arguments before and after each op, and look for pointers that the host takes in between.
  Recorder(const std::vector<KnownTensor>& known, bool audit);

  /// Copies, at its first use, each outside storage that a step recorded before has written.
  void copy_outside(const std::vector<const Graph*>& recorded);
  /// Goes on behind the nodes that a replay has matched: resume() before they are run (it copies what they write), resumed() after.
  void resume(const Prefix& prefix);
  void resumed();
  /// Sides as autograd tells them, for a step that is one piece of the caller's code: what runs in backward, and all after it without grad mode.
  void find_sides() { finds_sides_ = true; }
  /// What these give is read by the host behind the call, as by an op that reads. It must outlive the recording.
  void expect_pointers(const PointerReads& pointers) { pointers_ = &pointers; }
  /// A host read of what the step computes is an Error from now on.
  void forbid_host_reads() { forbids_reads_ = true; }

  void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) override;

  /// A further tensor that exists outside, before an op uses it.
  void know(const KnownTensor& tensor);
  void set_side(Side side) { side_ = side; }
  void end_forward();
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
  bool reads_on_host(const c10::OperatorHandle& op, const Node& node, const torch::jit::Stack& stack, std::size_t base) const;
  void audit_before(const Node& node);
  void audit_after(const Node& node);
  void open_seals(const Node& node);
  void seal(const Node& node);
  void note_pointer(StorageId id);
  void find_dead_conversions();
  void add_writes(const c10::FunctionSchema& schema, Node& node);
  void measure_memory(const Node& node);
  void note_autograd(const at::Tensor& tensor, ValueId value);
  void keep_outside(StorageId id, const c10::Storage& storage);
  Side side_now();
  void note_alive();
  void note_factory(const Node& node);
  void note_read(Node& node);
  void forbid(const std::string& what, const CallStack& stack);
  void note_returned(const std::vector<const c10::TensorImpl*>& given, const torch::jit::Stack& stack);
  void find_host_made(StorageId id);

  struct Known {
    std::int32_t version = 0;
    std::int32_t producer = -1;  // node that made the current version
    std::uint64_t hash = 0;      // of the content after that node
    bool hashed = false;
    std::vector<ValueId> values;
    std::int32_t factory = -1;  // node that made it out of numbers, until something uses it
    std::uint64_t factory_hash = 0;
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
  bool audit_, copies_ = false, finds_sides_ = false, forbids_reads_ = false;
  std::set<std::pair<Role, std::int32_t>> copied_;  // role and index of what the step is expected to write
  const PointerReads* pointers_ = nullptr;          // nullptr: none can be dealt with
  Seals seals_;                                     // on what recorded ops have made, between two ops; with an audit only
  std::uint64_t generator_ = 0;
  std::int64_t first_sequence_ = 0;
};

/// Storages that the step made and that are still alive, those in `exempt` left out: somebody keeps them. One value at the last version of each, the
/// one that covers most of it. Call it when the step's own handles are gone.
std::vector<ValueId> escapes(const Recording& recording, const std::vector<c10::StorageImpl*>& exempt);
/// One sentence about the first of them, or "": for a plan that cannot refresh what the host keeps.
std::string escaped(const Recording& recording, const std::vector<c10::StorageImpl*>& exempt);
/// Whether `before` has a copy of each outside storage that the step wrote.
bool copied_all(const Recording& recording);

/// Whether the host fills the memory that the node makes (torch::tensor of numbers, an accessor): its result is a captured tensor. The node's mark is
/// `host_read`.
bool is_host_made(const Node& node);

/// The nodes that have to be run: without those whose memory the host fills itself. `hashes`: as Recording::hashes, of those that stay.
struct Computed {
  Graph graph;
  std::vector<std::uint64_t> hashes;
};
Computed computed(const Recording& recording);

/// Whether the graph has one of these nodes without the mark `host_read`.
bool misses(const Graph& graph, const PointerReads& pointers);

/// One sentence about the first node whose results the host reads, or "".
std::string host_read(const Graph& graph);

/// One sentence about a captured tensor that no call of the forward shows, so that it may be another one in each step; or "".
std::string late_capture(const Recording& recording);

/// Whether the second of two recordings of equal graphs read the same outside tensors as the first. Returns one sentence or "".
std::string replaced(const Recording& before, const Recording& now);

}  // namespace tandem
