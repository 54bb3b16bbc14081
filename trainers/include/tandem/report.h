// The truth about a step object: what is compiled, what is not and why, time and bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// One curve of a report's page. `x` and `y` have equal lengths.
struct Curve {
  std::string chart, name;
  std::vector<double> x, y;
};

/// One sentence about something that happened. Kinds: recorded, activated, recompile, fallback, refused, retired, check-failed,
/// evicted, path, rerun.
struct Event {
  std::int64_t step = 0;  ///< number of the call, from 1
  std::string kind, sentence;
};

/// A call of an active plan (a library op, or generated kernels with the nodes that they cover) and the shortest time it took, in microseconds.
struct NodeTime {
  std::string node, side;
  double us = 0;
};

/// Where a step was cut because the host reads a number that the step computes.
struct GraphBreak {
  std::string node;      ///< "node 12 aten::_local_scalar_dense (forward)"
  std::string sentence;  ///< what was read, and what it costs
  std::string place;     ///< the caller's code that reads: "user::loss(at::Tensor) at loss.cpp:16", as far as debug information tells
};

/// What is known of one plan (one combination of shapes, flags and optimizer formula).
struct PlanReport {
  std::int64_t id = 0;
  std::string guard;  ///< the inputs that it was made for, e.g. "float32 [32, 20], int64 [32]"
  bool active = false;
  std::string reason;                  ///< why it is not active; empty when it is
  std::string replay;                  ///< forward, full or trusted, see Replay
  std::string replay_reason;           ///< why it is not forward
  double replay_us = 0, guard_us = 0;  ///< per step, medians: the host's code on placeholders; the guards
  std::int64_t host_ops = 0;           ///< calls that the host replay compares
  std::int64_t run_time_numbers = 0;   ///< numbers that are read anew in each step
  std::vector<GraphBreak> breaks;
  std::int64_t steps = 0;
  std::int64_t nodes_forward = 0, nodes_backward = 0, nodes_update = 0, nodes_folded = 0, nodes_skipped = 0, groups = 0;
  std::int64_t kernels = 0, launches = 0,
               library_calls = 0;                           ///< distinct generated kernels; their runs per step; calls of LibTorch and BLAS
  std::int64_t barriers = 0;                                ///< calls after which all threads wait for each other
  std::int64_t saved_bytes = 0;                             ///< made by the forward, read by backward or update
  std::int64_t recomputed_nodes = 0, recomputed_bytes = 0;  ///< forward nodes that run again for the backward, and their results
  std::int64_t arena_bytes = 0;                             ///< of the block that holds the step's planned memory
  std::string compiler;                                     ///< what compiled the kernels
  double max_error_ratio = 0;                          ///< largest error over the allowed one; 0 where bit-equal to eager, <= 1 when passed
  double record_ms = 0, compile_ms = 0, check_ms = 0;  ///< the recorded steps as a whole; passes, planning and compiling; both checks
  std::int64_t eager_peak_bytes = 0, compiled_peak_bytes = 0, check_peak_bytes = 0;  ///< tensor bytes above what lives between steps
  std::vector<double> eager_memory, compiled_memory;                                 ///< the same after each node of one step
  std::vector<NodeTime> nodes;
};

/// The truth about a step object: what is compiled, what is not and why, time and bytes.
struct Report {
  bool active = false;    ///< the latest step ran a plan, or the next one with the same inputs will
  std::string reason;     ///< one sentence when not active
  std::string optimizer;  ///< class, and whether its update is part of the plan
  std::int64_t steps = 0, eager_steps = 0, compiled_steps = 0, shadow_steps = 0, recompiles = 0;
  double first_step_ms = 0, eager_ms = 0, compiled_ms = 0;  ///< medians of the latest 256; eager: unrecorded steps only, else 0
  std::vector<PlanReport> plans;
  std::vector<Event> events;
  std::vector<std::string> problems;  ///< text problems of failed checks, see bench/replay
  std::vector<Curve> curves;          ///< extra curves for the page, the caller's own

  std::string to_string() const;
  std::string to_json() const;
  /// Writes one page that opens without a network. Throws Error when `path` cannot be written.
  void write_html(const std::string& path) const;
};

}  // namespace tandem
