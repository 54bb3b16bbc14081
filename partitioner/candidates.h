// Candidates for the choice of what runs again, each judged by the evaluator.
#pragma once

#include "partitioner/activations.h"
#include "partitioner/evaluate.h"
#include "partitioner/recompute.h"

#include <vector>

namespace tandem {

struct Candidate {
  Choice choice;
  std::int64_t saved_bytes = 0;
  std::vector<Group> groups;  // of the graph that run_again() makes of the choice
  Figures figures;
};

/// Eager's own order, node by node; eager's own choice in kernels; then what the cut finds as memory gets dearer, priced anew by how the copies
/// were fused. Each choice occurs once.
std::vector<Candidate> candidates(const Graph&, const Activations&, const PartitionSwitches&);

/// Index of the best: among those whose peak is within the bound, and whose time within 1 % of the fastest of these, the lowest peak, then the
/// fewest saved bytes, then the first.
std::size_t best_of(const std::vector<Candidate>&, std::int64_t peak_bound);

}  // namespace tandem
