#include "bench/support/step_figures.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tandem::bench {
namespace {

constexpr const char* row_format =
    "{:<13}{:>8}{:>10}{:>12}{:>9}{:>10}{:>12}{:>10}{:>12}{:>11}{:>14}{:>11}{:>10}{:>13}{:>11}{:>8}{:>8}{:>9}{:>9}{:>9}{:>10}{:>10}{:>10}  "
    "{}\n";

std::string time_text(double ms) { return fmt::format("{:.3f}", ms); }
std::string mib_text(std::int64_t bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

std::string to_json(const StepFigures& figures) {
  const std::optional<CompiledFigures>& c = figures.compiled;
  const auto known = [&c](auto member) { return c ? nlohmann::ordered_json((*c).*member) : nlohmann::ordered_json(); };
  nlohmann::ordered_json j;
  j["workload"] = figures.workload;
  j["threads"] = figures.threads;
  j["steps"] = figures.steps;
  j["eager_ms"] = figures.eager_ms;
  j["compiled_ms"] = known(&CompiledFigures::ms);
  j["eager_best_ms"] = figures.eager_best_ms;
  j["compiled_best_ms"] = known(&CompiledFigures::best_ms);
  j["speedup"] = c ? nlohmann::ordered_json(figures.eager_ms / c->ms) : nlohmann::ordered_json();
  j["first_step_ms"] = known(&CompiledFigures::first_step_ms);
  j["eager_first_step_ms"] = figures.eager_first_step_ms;
  j["compile_ms"] = known(&CompiledFigures::compile_ms);
  j["check_ms"] = known(&CompiledFigures::check_ms);
  j["reshape_ms"] = known(&CompiledFigures::reshape_ms);
  j["eager_peak_bytes"] = figures.eager_peak_bytes;
  j["compiled_peak_bytes"] = known(&CompiledFigures::peak_bytes);
  j["check_peak_bytes"] = known(&CompiledFigures::check_peak_bytes);
  j["held_bytes"] = known(&CompiledFigures::held_bytes);
  j["eager_allocations_per_step"] = figures.eager_allocations_per_step;
  j["allocations_per_step"] = known(&CompiledFigures::allocations_per_step);
  j["max_error_ratio"] = known(&CompiledFigures::max_error_ratio);
  j["active"] = c.has_value();
  j["reason"] = figures.reason;
  j["nodes"] = known(&CompiledFigures::nodes);
  j["groups"] = known(&CompiledFigures::groups);
  j["kernels"] = known(&CompiledFigures::kernels);
  j["launches"] = known(&CompiledFigures::launches);
  j["library_calls"] = known(&CompiledFigures::library_calls);
  j["barriers"] = known(&CompiledFigures::barriers);
  j["recomputed_bytes"] = known(&CompiledFigures::recomputed_bytes);
  j["arena_bytes"] = known(&CompiledFigures::arena_bytes);
  j["saved_bytes"] = known(&CompiledFigures::saved_bytes);
  j["replay"] = known(&CompiledFigures::replay);
  j["replay_us"] = known(&CompiledFigures::replay_us);
  j["guard_us"] = known(&CompiledFigures::guard_us);
  j["host_ops"] = known(&CompiledFigures::host_ops);
  return j.dump();
}

std::string table_head() {
  return fmt::format(row_format, "workload", "threads", "eager ms", "compiled ms", "speedup", "first ms", "compile ms", "check ms",
                     "reshape ms", "eager MiB", "compiled MiB", "check MiB", "held MiB", "eager allocs", "allocs", "error", "nodes",
                     "kernels", "library", "replay", "host ops", "host us", "guard us", "plan");
}

std::string table_row(const StepFigures& figures) {
  const std::string eager_ms = time_text(figures.eager_ms), eager_mib = mib_text(figures.eager_peak_bytes);
  if (!figures.compiled) {
    return fmt::format(row_format, figures.workload, figures.threads, eager_ms, "-", "-", "-", "-", "-", "-", eager_mib, "-", "-", "-",
                       figures.eager_allocations_per_step, "-", "-", "-", "-", "-", "-", "-", "-", "-", "inactive: " + figures.reason);
  }
  const CompiledFigures& c = *figures.compiled;
  return fmt::format(row_format, figures.workload, figures.threads, eager_ms, time_text(c.ms),
                     fmt::format("{:.2f}", figures.eager_ms / c.ms), time_text(c.first_step_ms), time_text(c.compile_ms),
                     time_text(c.check_ms), time_text(c.reshape_ms), eager_mib, mib_text(c.peak_bytes), mib_text(c.check_peak_bytes),
                     mib_text(c.held_bytes), figures.eager_allocations_per_step, c.allocations_per_step,
                     fmt::format("{:.3f}", c.max_error_ratio), c.nodes, c.kernels, c.library_calls, c.replay, c.host_ops,
                     fmt::format("{:.1f}", c.replay_us), fmt::format("{:.1f}", c.guard_us), "active");
}

}  // namespace tandem::bench
