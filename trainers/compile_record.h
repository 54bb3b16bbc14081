// One eager call of a compiled function, recorded together with the backwards that its caller may ask for.
#pragma once

#include "autograd/barrier.h"
#include "autograd/capture.h"
#include "runtime/outcome.h"
#include "tandem/compile.h"
#include "trainers/binding.h"
#include "trainers/compile_watch.h"
#include "trainers/module_tensors.h"

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tandem {

/// A tensor that the backward has a gradient for: leaf or input number `index`.
struct Target {
  bool input = false;
  std::int32_t index = 0;
  bool operator==(const Target&) const = default;
};

struct RecordedBackward {
  TangentKey key;
  std::size_t begin = 0;           // its first node
  std::int32_t first_tangent = 0;  // inputs of the graph from this index on are its tangents, those of absent outputs left out
  std::size_t first_gradient = 0, gradients = 0;  // in Graph::gradients, whose `leaf` is a position in the targets
  bool operator==(const RecordedBackward&) const = default;
};

struct RecordedCall {
  std::uint64_t autograd = 0;  // see fingerprint_of()
  Recording recording;
  Outside outside;
  EagerStep eager;
  bool has_data = false;                       // `eager` is complete: what the call wrote was copied before
  bool final_refusal = false;                  // recording again would not help
  std::vector<std::set<std::string>> reached;  // per differentiable output: the autograd nodes behind it, named as in Node::ran_for
  std::vector<char> differentiable;            // per output
  std::vector<std::size_t> counts;             // see detail::Flat
  std::vector<Target> targets;
  std::vector<RecordedBackward> backwards;
  std::shared_ptr<Observed> observed;  // is told what the caller's own backwards of this call bring; nullptr where none can

  /// The caller's, without tangents.
  std::size_t inputs() const { return backwards.empty() ? outside.input_start.size() : std::size_t(backwards.front().first_tangent); }
  std::size_t forward_end() const { return backwards.empty() ? recording.graph.nodes.size() : backwards.front().begin; }
  void drop_data();
};

/// A tensor of the given geometry with random content that does not move the default generator.
at::Tensor make_tangent(const at::Tensor& like, const std::vector<std::int64_t>& strides, std::uint64_t seed);

struct RecordRequest {
  const detail::Callee& callee;
  ModuleTensors& world;
  const std::vector<at::Tensor>& inputs;
  const std::vector<char>& hooked;  // per leaf, whether it had hooks before the call
  std::function<std::vector<TangentKey>(const Graph& forward)>
      wanted;                              // none for a forward: one backward, tangents laid out as the outputs
  std::vector<const Graph*> recorded;      // what these write is copied before; none: no data are kept
  const PointerReads* pointers = nullptr;  // see Recorder::expect_pointers()
  bool fullgraph = false;                  // a host read of what the function computes is an Error
  bool called = true;                      // the function runs in each call, so that what it keeps can be filled
};

/// Looks on at one call. Make it before the function runs; gradients of what it returns end at its inputs until finish().
class CallRecorder {
 public:
  explicit CallRecorder(const RecordRequest& request);

  /// Before the first op that is to be recorded. `data`: keep what checks of a plan need.
  std::unique_ptr<Recorder> start(bool audit, bool data);
  /// The function has returned `flat`. Records the backwards; the results get watchers for those of the caller.
  RecordedCall finish(Recorder& recorder, detail::Flat& flat);
  /// The call is over and was not recorded.
  void lift(const std::vector<at::Tensor>& outputs) { barriers_.lift(outputs); }

  std::uint64_t first_sequence() const { return first_sequence_; }
  /// In-place ops of a function whose ops were answered have moved the counters of what exists outside; puts them back.
  void put_back_versions();

 private:
  void refuse(std::string sentence);
  void look();
  void check_outputs();
  void find_targets(const std::vector<at::Tensor>& leaves);
  void add_target(Target target, const at::Tensor& tensor);
  std::vector<TangentKey> keys();
  void run_backwards();
  void run_backward(TangentKey key);
  void finish_graph();
  void take_data();
  std::string name_of_target(const Target& t) const;
  std::string kept() const;
  const std::vector<at::Tensor>& outputs() const { return flat_->tensors; }

  const RecordRequest& request_;
  RecordedCall out_;
  std::vector<std::uint32_t> versions_;  // before the call, in the order of ModuleTensors::known()
  Barriers barriers_;
  std::uint64_t first_sequence_;  // after the barriers' own
  std::vector<KnownTensor> known_;
  at::Tensor generator_before_;
  Recorder* recorder_ = nullptr;
  const detail::Flat* flat_ = nullptr;
  std::vector<at::Tensor> targets_, tangents_, gradients_;
};

/// Runs the function, records it, and returns what it returns, with its own autograd graph. Throws what it throws.
detail::Flat record_call(const RecordRequest& request, bool audit, bool data, RecordedCall& out);

/// What the backward of a function's results would do, as one hash; see autograd_fingerprint().
std::uint64_t fingerprint_of(const std::vector<at::Tensor>& outputs, std::uint64_t first_sequence, const ModuleTensors& world);

}  // namespace tandem
