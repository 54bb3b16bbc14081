// One sequence of ops that a step can take under one guard: recordings that must agree, then a checked plan, or the reason why not.
#pragma once

#include "trainers/compiled_step.h"
#include "trainers/journal.h"
#include "trainers/recorded_step.h"

#include <memory>
#include <string>
#include <vector>

namespace tandem {

struct Path {
  enum class State : std::uint8_t { recording, active, eager };
  State state = State::recording;
  std::string reason;              // why it is not active
  RecordedStep last;               // without its data
  std::vector<std::size_t> moved;  // numbers that were not the same in all recordings, ascending
  std::unique_ptr<CompiledStep> step;
  int recordings = 0, failures = 0;
  std::int64_t since_shadow = 0, shadow_period = 0, used = 0;
  int measured_runs = 0;  // the first runs of a plan are timed call by call
  Latest replay_us, guard_us;
  PlanReport report;

  void stay_eager(std::string why);
};

/// Whether the recording takes this path; `moved` gets the numbers that differ. Otherwise one sentence about the first difference.
std::string disagreement(const Path& path, const RecordedStep& now, std::vector<std::size_t>& moved);

/// Takes in a recording that agrees: frees the numbers that moved, and where the step's data were kept builds and checks a plan.
void add_recording(Path& path, RecordedStep now, const std::vector<std::size_t>& moved, const Options& options, Journal& journal);

/// The plan once more, on private copies, against a step that eager has just made. Retires the plan when it fails.
void check_shadow(Path& path, RecordedStep now, const Options& options, Journal& journal);

}  // namespace tandem
