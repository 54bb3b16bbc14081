// One sequence of ops that a step can take.
#pragma once

#include "trainers/compiled_step.h"
#include "trainers/paths.h"
#include "trainers/recorded_step.h"

#include <memory>
#include <string>
#include <vector>

namespace tandem {

struct Path : PathState {
  RecordedStep last;  // without its data
  std::unique_ptr<CompiledStep> step;

  void stay_eager(std::string why);
};

/// Whether the recording takes this path; `moved` gets the numbers that differ. Otherwise one sentence about the first difference.
std::string disagreement(const Path& path, const RecordedStep& now, std::vector<std::size_t>& moved);

/// Takes in a recording that agrees: frees the numbers that moved, and where the step's data were kept builds and checks a plan.
void add_recording(Path& path, RecordedStep now, const std::vector<std::size_t>& moved, const Options& options, Journal& journal);

/// The plan once more, on private copies, against a step that eager has just made. Retires the plan when it fails.
void check_shadow(Path& path, RecordedStep now, const Options& options, Journal& journal);

}  // namespace tandem
