// A failed check as a text that replays: the graph, the plan, the data of the step. See bench/replay.
#pragma once

#include "runtime/check.h"

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

struct Problem {
  std::string sentence;      // the verdict that it was written for
  Graph graph;               // as captured
  std::optional<Plan> plan;  // absent: the capture check failed
  EagerStep eager;
};

/// Everything, data as hexadecimal bytes.
std::string print(const Problem& problem);
/// Throws Error "text line L: expected X, found Y".
Problem parse_problem(std::string_view text);
/// Runs the check that the problem is about again.
Verdict replay(const Problem& problem);

}  // namespace tandem
