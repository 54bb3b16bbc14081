// The two checks before a plan is activated; both must hold.
#pragma once

#include "runtime/chain.h"
#include "runtime/execute.h"
#include "runtime/outcome.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

struct Verdict {
  bool passed = false;
  std::string sentence = {};    // why not: what differs and the first node that does
  bool with_reference = false;  // generation check: not bit-equal, the reference in double decided
  double max_error_ratio = 0;   // generation check: largest error over the allowed one; 0 where all is bit-equal
};

/// Capture: the graph, interpreted on the recorded batch, state and generator position, must equal the eager step bit for bit: loss, outputs,
/// gradients, everything written outside, generator. This finds what a comparison of plan and graph cannot: a wrong graph. `recorded` and
/// `hashes` are the nodes and content hashes of the recording; they serve to name the first node that differs and may be empty.
Verdict check_capture(const Graph& graph, const EagerStep& eager, const std::vector<Node>& recorded,
                      const std::vector<std::uint64_t>& hashes);

/// Generation: the plan on private copies, per element |plan - ref64| <= 2 |eager - ref64| + bound, see run_reference().
Verdict check_generation(const Graph& graph, const Plan& plan, Executor& executor, const EagerStep& eager);
/// The same for a step in several plans, which run one after another. `graph`: the whole.
Verdict check_generation(const Graph& graph, Chain& chain, const EagerStep& eager);

}  // namespace tandem
