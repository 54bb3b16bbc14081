// What one path did so far, whether it is a step's or a call's.
#pragma once

#include "trainers/journal.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// One sequence of ops under one guard: recordings that must agree, then a checked plan, or the reason why not.
struct PathState {
  enum class State : std::uint8_t { recording, active, eager };
  State state = State::recording;
  std::string reason;                          // why it is not active
  std::vector<std::size_t> moved;              // numbers that were not the same in all recordings, ascending
  int recordings = 0, failures = 0, kept = 0;  // kept: runs after which the host held something that the plan does not deliver
  std::int64_t since_shadow = 0, shadow_period = 0, used = 0;
  std::int64_t due = 0;  // see Paths::note_recorded()
  int late = 0;
  bool outdated = false;  // see Paths::outdate()
  int measured_runs = 0;  // the first runs of a plan are timed call by call
  Latest replay_us, guard_us;
  PlanReport report;

  /// Counts one run. The shadow may take another path: this one waits for its next turn all the same.
  bool shadow_is_due() {
    if (++since_shadow < shadow_period) return false;
    since_shadow = 0;
    return true;
  }
  /// Adds the numbers; whether one of them is new.
  bool moves(const std::vector<std::size_t>& numbers);
};

}  // namespace tandem
