// One eager call of a compiled function, recorded together with the backwards that its caller may ask for.
#pragma once

#include "autograd/capture.h"
#include "runtime/outcome.h"
#include "tandem/compile.h"
#include "trainers/binding.h"
#include "trainers/compile_watch.h"
#include "trainers/module_tensors.h"

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
  EagerStep eager;  // filled when a snapshot was taken before the call
  bool has_snapshot = false;
  bool final_refusal = false;                  // recording again would not help
  std::vector<std::set<std::string>> reached;  // per differentiable output: the autograd nodes behind it, named as in Node::ran_for
  std::vector<char> differentiable;            // per output
  std::vector<std::size_t> counts;             // see detail::Flat
  std::vector<Target> targets;
  std::vector<RecordedBackward> backwards;
};

/// A tensor of the given geometry with random content that does not move the default generator.
at::Tensor make_tangent(const at::Tensor& like, const std::vector<std::int64_t>& strides, std::uint64_t seed);

struct RecordRequest {
  const detail::Callee& callee;
  ModuleTensors& world;
  const std::vector<at::Tensor>& inputs;
  const std::vector<TangentKey>& wanted;  // empty: one backward with all tangents, laid out as the outputs
  const RecordedCall* before = nullptr;   // tells what a snapshot must copy; none is taken without
  bool audit = true;
  std::shared_ptr<Observed> observed;  // is told what the caller's own backwards bring
};

/// Runs the function, returns what it returns, with its own autograd graph, and throws what it throws.
detail::Flat record_call(const RecordRequest& request, RecordedCall& out);

/// Fills `out.storages` for the storages of `ids`; tangents are left out. Returns one sentence when a storage is not what was recorded.
std::string bind_call(const Graph& graph, const std::vector<StorageId>& ids, const Outside& outside, const ModuleTensors& world,
                      const std::vector<at::Tensor>& inputs, RunInputs& out);

/// Storages of the graph that exist before the call, ascending.
std::vector<StorageId> outside_storages(const Graph& graph);

/// Empty when two recordings agree; otherwise one sentence.
std::string disagreement(const RecordedCall& before, const RecordedCall& now);

}  // namespace tandem
