// One sequence of ops that a compiled function can take.
#pragma once

#include "trainers/compile_plan.h"
#include "trainers/paths.h"

#include <memory>
#include <string>
#include <vector>

namespace tandem {

struct CallPath : PathState {
  RecordedCall last;  // without its data
  std::shared_ptr<CallPlan> plan;
  std::vector<TangentKey> wanted;                                                    // backwards to record; empty: one with all tangents
  std::vector<std::shared_ptr<Observed>> observed = {std::make_shared<Observed>()};  // of the plan's own backwards, then of recorded calls
  int relearned = 0;

  void stay_eager(std::string why);
};

/// Whether the recording takes this path, whatever backwards were recorded with it; `moved` gets the numbers that differ. Otherwise one sentence about
/// the first difference.
std::string disagreement(const CallPath& path, const RecordedCall& now, std::vector<std::size_t>& moved);

/// Takes in a recording that agrees: frees the numbers that moved, and where the call's data were kept builds and checks the plans.
void add_recording(CallPath& path, RecordedCall now, const std::vector<std::size_t>& moved, const Options& options, Journal& journal);

/// The plans once more, on private copies, against a call that eager has just made. Retires them when they fail.
void check_shadow(CallPath& path, RecordedCall now, const Options& options, Journal& journal);

/// Takes in what the caller's backwards brought since: where it is new, the path is recorded again, with a backward for each.
void learn(CallPath& path, const Options& options, Journal& journal);

/// Whether the first calls of a graph are those of the path's forward.
bool starts_as(const CallPath& path, const Graph& forward);

}  // namespace tandem
