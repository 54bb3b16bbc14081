// From the roles of a graph's outside storages to the tensors of this step.
#pragma once

#include "autograd/capture.h"
#include "autograd/slots.h"

#include <functional>
#include <string>
#include <vector>

namespace tandem {

/// What a recording tells of the outside world beyond its graph.
struct Outside {
  std::vector<CapturedStorage> captured;
  std::vector<std::int64_t> input_start;  // byte offset of each input into its storage in the recorded step
  struct VersionDelta {
    Role role;
    std::int32_t index;
    std::uint32_t by;
    std::size_t position;  // in World::known()
  };
  std::vector<VersionDelta> versions;  // by how much the step advances version counters
};

/// 0 for a tensor that has no counter.
std::uint32_t version_of(const at::Tensor& tensor);
/// Version counters of everything known, in the order of World::known.
std::vector<std::uint32_t> versions_of(const std::vector<KnownTensor>& known);
std::vector<Outside::VersionDelta> version_deltas(const std::vector<KnownTensor>& known, const std::vector<std::uint32_t>& before);
/// By how much a counter moves where the whole step moves it `by`.
using DueBumps = std::function<std::uint32_t(Role role, std::int32_t index, std::uint32_t by)>;

std::vector<std::int64_t> starts_of(const std::vector<at::Tensor>& inputs);

/// The tensor of a role and index now; undefined where there is none.
using Resolve = std::function<at::Tensor(Role role, std::int32_t index)>;

/// Fills `out.storages` but for captured ones, and for inputs from number `inputs` on. Returns one sentence when a storage is not what was recorded.
std::string bind_known(const Graph& graph, const Outside& outside, std::size_t inputs, const Resolve& resolve, RunInputs& out);
/// Fills captured ones that are still empty by the tensors that were recorded.
std::string bind_captured(const Graph& graph, const Outside& outside, const std::vector<at::Tensor>& inputs, RunInputs& out);

}  // namespace tandem
