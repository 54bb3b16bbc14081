// What is known for one signature: recordings that must agree, then a checked plan, or the reason why not.
#pragma once

#include "runtime/guards.h"
#include "trainers/compiled_step.h"
#include "trainers/journal.h"

#include <memory>
#include <optional>
#include <string>

namespace tandem {

/// One recorded eager step, complete with what the host side needs.
struct RecordedStep {
  Recording recording;
  Outside outside;
  std::vector<bool> has_grad;
  EagerStep eager;  // filled when a snapshot was taken before the step
  bool has_snapshot = false;
  bool final_refusal = false;  // recording again would not help
};

struct Entry {
  enum class State : std::uint8_t { recording, active, eager };
  Signature signature;
  State state = State::recording;
  std::string reason;  // why it is not active
  std::optional<RecordedStep> last;
  int recordings = 0, refusals = 0, failures = 0;
  std::unique_ptr<CompiledStep> step;
  std::int64_t since_shadow = 0, used = 0;
  int measured_runs = 0;  // the first runs of a plan are timed node by node
  PlanReport report;

  void stay_eager(std::string why);
};

/// Takes in one more recording of the entry. When it agrees with the one before, builds and checks the plan and activates it.
void settle(Entry& entry, RecordedStep now, const Options& options, Journal& journal);

/// Compares a shadow recording with the active plan's; retires the plan when they differ.
void compare_shadow(Entry& entry, const RecordedStep& now, Journal& journal);

}  // namespace tandem
