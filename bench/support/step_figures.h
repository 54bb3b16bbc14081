// Eager against compiled for one workload, measured in one process, step by step in turn.
#pragma once

#include <tandem/options.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tandem::bench {

/// Known only of a plan whose checks have passed.
struct CompiledFigures {
  double ms = 0, best_ms = 0, first_step_ms = 0;  // the first step of a TrainStep is an eager one that is recorded
  double compile_ms = 0, check_ms = 0;
  double reshape_ms = 0;        // first call with another batch size
  std::int64_t peak_bytes = 0;  // of a warm step, above what lives between steps
  std::int64_t check_peak_bytes = 0;
  std::int64_t held_bytes = 0;  // what lives between steps beyond what lives between eager steps
  std::int64_t allocations_per_step = 0;
  double max_error_ratio = 0;
  std::int64_t nodes = 0, groups = 0, kernels = 0, launches = 0, library_calls = 0, barriers = 0;
  std::int64_t saved_bytes = 0, recomputed_bytes = 0, arena_bytes = 0;
  std::string replay;  // forward, full or trusted
  double replay_us = 0, guard_us = 0;
  std::int64_t host_ops = 0;
};

struct StepFigures {
  std::string workload;
  std::int64_t threads = 0, steps = 0;
  double eager_ms = 0, eager_best_ms = 0, eager_first_step_ms = 0;
  std::int64_t eager_peak_bytes = 0, eager_allocations_per_step = 0;
  std::optional<CompiledFigures> compiled;
  std::string reason;  // why there are no compiled figures
};

/// `steps` timed steps of each kind after the warm-up, with Options::replay as given. Installs the counting allocator. Throws Error for an unknown workload.
StepFigures measure_step(const std::string& workload, std::int64_t steps, Replay replay = Replay::automatic);

/// One line, one object; figures that are not known are null.
std::string to_json(const StepFigures& figures);

/// Two functions of one table with equal widths; figures that are not known are '-'.
std::string table_head();
std::string table_row(const StepFigures& figures);

}  // namespace tandem::bench
