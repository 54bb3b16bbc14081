// Tensor bytes that are alive over a run, at the boundaries of the calls. Scratch memory inside a kernel is not in it, for eager neither.
#pragma once

#include "runtime/plan.h"

#include <cstdint>
#include <vector>

namespace tandem {

/// Live bytes of internal storages after each call, before its releases; folded values are not counted, they live between steps.
std::vector<double> memory_over_step(const Plan& plan);
/// The same for a graph that is interpreted node by node.
std::vector<double> memory_over_step(const Graph& graph);
std::int64_t peak_of(const std::vector<double>& timeline);

/// Tensor bytes that both checks hold at once at most: the snapshot, private copies, the gradients' copies, the runs, and, where the reference in
/// double was needed, its runs.
std::int64_t check_bytes(const Graph& captured, const Plan& plan, bool with_reference);

}  // namespace tandem
