// The host replay check: the caller's code runs, each of its ops is compared with the recorded one and answered with a placeholder; nothing is
// computed. Where the host does something else, the ops so far are run, the placeholders get their data, and the same run goes on, recorded.
#pragma once

#include "autograd/key.h"
#include "autograd/placeholder.h"
#include "autograd/slots.h"
#include "autograd/tape.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

class Replayer : public OpListener {
 public:
  using Bind = std::function<void(const Tape& tape, RunInputs& known)>;
  /// Runs some parts of the plan of the path that is followed; puts the storages that they hand on into carried().
  using RunParts = std::function<void(const Tape& followed, std::size_t first, std::size_t last)>;
  using MakeRecorder = std::function<std::unique_ptr<Recorder>(const Tape& followed, const std::string& why)>;

  /// `tapes`: the paths that are known, the likeliest first; at least one. `bind` fills per storage of a tape's graph what is known of the outside
  /// before the step; captured tensors are left empty, they are bound at their first use. All tapes must outlive the replayer.
  Replayer(std::vector<const Tape*> tapes, Bind bind, RunParts run_parts, MakeRecorder make_recorder);

  void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) override;

  const Tape& tape() const { return *tape_; }  // the one that the calls so far follow
  std::size_t position() const { return position_; }
  std::size_t parts_run() const { return parts_run_; }
  std::vector<c10::Storage>& carried() { return carried_; }  // by StorageId
  bool diverged() const { return recorder_ != nullptr; }
  bool failed() const { return failed_; }  // a part of the plan has thrown
  const std::string& why() const { return why_; }
  Recorder& recorder() { return *recorder_; }

  /// Runs what was matched so far, fills the placeholders, and records from here on. Throws what a node throws.
  void diverge(std::string why);
  /// The host is done. Whether a known path that agrees so far ends here and fits; it is tape() then.
  bool ends(const std::function<bool(const Tape&)>& fits);
  /// Whether the tensor is the placeholder (or the outside tensor) of this value.
  bool stands_for(const at::Tensor& tensor, ValueId v) const;

  /// The node that made what the latest call gave, perhaps as a view: what a host that reads memory now most likely reads.
  std::optional<PointerReads::value_type> latest_made() const;

  /// For the plan: outside tensors of this run, numbers of its calls. Those of calls that the host does not make have their recorded values.
  RunInputs inputs() const;
  const std::vector<CapturedStorage>& captured() const { return captured_; }
  /// Makes the memory that answered calls would have written readable again: before anything runs.
  void unveil();
  /// Internal storages whose placeholders somebody holds and that have no data yet.
  std::vector<StorageId> held() const;
  void fill(StorageId s, const c10::Storage& data);  // does nothing where nobody holds the placeholder
  /// The placeholder of a value, also of one that no call has returned yet.
  at::Tensor stand_in(ValueId v) { return placeholder(v); }
  /// Runs the nodes that no part has run, up to `end`, through ATen and fills the placeholders that are held: what a plan would have done.
  void run_nodes(std::size_t end, const RunInputs& inputs);

 private:
  struct Place {  // a storage of the graph in this run
    c10::StorageImpl* impl = nullptr;
    WeakStorage weak{c10::intrusive_ptr<c10::StorageImpl>()};  // internal: keeps the address from being used again
    c10::Storage outside;                                      // held until the plan has run
    std::int64_t shift = 0;
  };

  void load(const Tape& tape, std::size_t from);
  void take(const Tape& other);
  bool follows(const Tape& tape, const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  bool matches(const Tape& tape, const Tape::Arg& arg, const c10::IValue& v);
  bool matches_number(const Tape& tape, const Tape::Arg& arg, const c10::IValue& v);
  bool matches(const Tape& tape, const at::Tensor& t, ValueId v);
  bool bind(const Tape& tape, const at::Tensor& t, const Value& v);
  bool switch_path(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  bool switch_path_by_results(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const torch::jit::Stack& stack);
  bool agrees_so_far(const Tape& other) const;
  void answer(torch::jit::Stack& stack);
  void veil_written();
  bool stop(std::int32_t at);
  bool read(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  bool takes_results(const torch::jit::Stack& stack, std::size_t first);
  at::Tensor placeholder(ValueId v, bool of_normal = false);
  bool views_normal(const torch::jit::Stack& stack, std::size_t first, ValueId v) const;
  bool is_held(StorageId s) const;
  std::string mismatch(const c10::OperatorHandle& op) const;

  std::vector<const Tape*> tapes_;
  const Tape* tape_;
  std::vector<Place> places_;
  std::vector<CapturedStorage> captured_;
  std::vector<double> numbers_;  // of the calls so far
  std::size_t position_ = 0;
  std::size_t parts_run_ = 0, started_ = 0;  // started_: nodes before it have run
  std::vector<c10::Storage> carried_;
  std::uint64_t generator_;
  std::int64_t first_sequence_;
  Bind bind_outside_;
  std::vector<Veil> veils_;
  std::vector<char> veiled_;  // by StorageId
  RunParts run_parts_;
  MakeRecorder make_recorder_;
  std::unique_ptr<Recorder> recorder_;
  std::string why_;
  bool failed_ = false;
  bool moved_ = false;                 // the last call that did not match: because of a number
  std::int32_t failed_argument_ = -1;  // its argument
};

}  // namespace tandem
