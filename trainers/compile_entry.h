// What is known of one signature of a compiled function: recordings that must agree, then checked plans, or the reason why not.
#pragma once

#include "runtime/guards.h"
#include "trainers/compile_plan.h"
#include "trainers/journal.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct CallEntry {
  enum class State : std::uint8_t { recording, active, eager };
  Signature signature;
  State state = State::recording;
  std::string reason;  // why it is not active
  std::optional<RecordedCall> last;
  int recordings = 0, refusals = 0, relearned = 0;
  std::vector<TangentKey> wanted;  // backwards to record; empty: see RecordRequest
  std::shared_ptr<CallPlan> plan;
  std::shared_ptr<Observed> observed = std::make_shared<Observed>();
  std::int64_t since_shadow = 0, shadow_period = 0, used = 0;
  std::int64_t followed = 0, diverged = 0;  // calls that did what was recorded, and others
  Latest replay_us;
  int measured_runs = 0;
  PlanReport report;

  void stay_eager(std::string why);
};

/// Takes in what the caller's backwards brought since: when it is new, the entry records again, with a backward for each.
void learn(CallEntry& entry, Journal& journal);

/// Takes in one more recording. When it agrees with the one before, builds and checks the plans and activates them.
void settle(CallEntry& entry, RecordedCall now, const Options& options, Journal& journal);

/// Compares a shadow recording with the active plans'; retires them when they differ.
void compare_shadow(CallEntry& entry, const RecordedCall& now, const Options& options, Journal& journal);

}  // namespace tandem
