// The reference of the generation check: the graph in double, in lock step with the graph in its own dtypes.
#pragma once

#include "runtime/outcome.h"

#include <vector>

namespace tandem {

/// Decisions (results that are no floating numbers, random draws) are taken from the run in the graph's dtypes, so that both runs follow one path.
/// `gradients`: values that replace Graph::gradients[i].before when the update side begins, so that the update is judged as a function of the
/// plan's own gradients; empty: the graph's own.
struct ReferenceRun {
  Outcome native, exact;           // after the whole step; gradients are those before the update side
  std::vector<Outcome> perturbed;  // exact runs in which every floating result is off by a random rounding (Monte Carlo arithmetic,
                                   // D. S. Parker, 1997): their spread is the running error bound of each element
};
ReferenceRun run_reference(const Graph& graph, const EagerStep& eager, const std::vector<at::Tensor>& gradients, int perturbations);

/// Largest |found - exact| / (2 |native - exact| + bound) over all tensors and elements, and where. Data without a floating dtype must be equal.
struct ErrorRatio {
  double ratio = 0;
  std::string where;
};
ErrorRatio error_ratio(const ReferenceRun& reference, const Outcome& found);

/// Both together. What a few perturbed runs nearly allow is judged again by more of them: that they are all close to each other may be chance.
ErrorRatio error_ratio(const Graph& graph, const EagerStep& eager, const std::vector<at::Tensor>& gradients, int perturbations,
                       const Outcome& found);

}  // namespace tandem
