#include "bench/support/demo_summary.h"

#include "bench/support/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace tandem::bench {
namespace {

/// Runs whose plans round differently drift apart; over one epoch the losses must still agree to this relative difference.
constexpr double allowed_drift = 1e-3;

std::int64_t full_batch(const RunLog& log) {
  std::int64_t most = 0;
  for (const StepLog& s : log.steps) most = std::max(most, s.batch);
  return most;
}

/// The first step after the one that activated the last plan, counted from 0; 0 when there is none. Both runs are judged from there on.
std::size_t steady_from(const Report& report) {
  std::int64_t last = 0;
  for (const Event& e : report.events) {
    if (e.kind == "activated") last = std::max(last, e.step);
  }
  return static_cast<std::size_t>(last);
}

/// Times of full batches at `from` and after, of one kind.
std::vector<double> times(const RunLog& log, std::size_t from, bool compiled) {
  const std::int64_t full = full_batch(log);
  std::vector<double> ms;
  for (std::size_t i = from; i < log.steps.size(); ++i) {
    if (log.steps[i].batch == full && log.steps[i].compiled == compiled) ms.push_back(log.steps[i].ms);
  }
  return ms;
}

const PlanReport* busiest_plan(const Report& report) {
  const auto at = std::max_element(report.plans.begin(), report.plans.end(),
                                   [](const PlanReport& a, const PlanReport& b) { return a.steps < b.steps; });
  return at == report.plans.end() || !at->active ? nullptr : &*at;
}

bool all_bit_equal(const Report& report) {
  return std::all_of(report.plans.begin(), report.plans.end(), [](const PlanReport& p) { return p.active && p.max_error_ratio == 0; });
}

double loss_difference(const Comparison& runs, std::size_t steps) {
  double largest = 0;
  for (std::size_t i = 0; i < std::min(steps, runs.eager.steps.size()); ++i) {
    largest = larger(largest, std::abs(runs.eager.steps[i].loss - runs.compiled.steps[i].loss));
  }
  return largest;
}

std::string bytes(std::int64_t n) { return fmt::format("{:.1f} KiB", static_cast<double>(n) / 1024); }

std::string time(const std::vector<double>& ms) { return ms.empty() ? "-" : fmt::format("{:.3f} ms", median(ms)); }

std::string difference(double d) { return d == 0 ? "0 (bit-equal)" : fmt::format("{:.3g}", d); }

std::string row(const std::string& label, const std::string& eager, const std::string& compiled, const std::string& note = "") {
  std::string line = fmt::format("  {:<22}{:>14}{:>14}  {}", label, eager, compiled, note);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string fact(const std::string& label, const std::string& value) { return fmt::format("  {:<24}{}\n", label, value); }

std::string speed_note(const std::vector<double>& eager, const std::vector<double>& compiled) {
  if (eager.empty() || compiled.empty()) return "";
  return fmt::format("eager/compiled {:.3f}", median(eager) / median(compiled));
}

std::string plan_facts(const Report& report) {
  std::string text = fact("active", report.active ? "yes" : "no: " + report.reason);
  for (const PlanReport& p : report.plans) {
    text +=
        fact(fmt::format("plan {}", p.id), p.guard + (p.active ? fmt::format(": active, {} steps", p.steps) : ": not active: " + p.reason));
    if (!p.active) continue;
    text += fact(
        "", fmt::format("{} nodes in {} groups: {} generated kernels in {} launches, {} library calls, {} barriers",
                        p.nodes_forward + p.nodes_backward + p.nodes_update, p.groups, p.kernels, p.launches, p.library_calls, p.barriers));
    text += fact("", fmt::format("saved for backward {}, recomputed {}, arena {}; largest error {:.3g} of the allowed one",
                                 bytes(p.saved_bytes), bytes(p.recomputed_bytes), bytes(p.arena_bytes), p.max_error_ratio));
  }
  return text;
}

struct Cost {
  double record = 0, compile = 0, check = 0;
  double total() const { return record + compile + check; }
};

Cost cost_of(const Report& report) {
  Cost cost;
  for (const PlanReport& p : report.plans) {
    cost.record += p.record_ms;
    cost.compile += p.compile_ms;
    cost.check += p.check_ms;
  }
  return cost;
}

}  // namespace

double larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::infinity();
  return std::max(a, b);
}

std::string break_even(const Comparison& runs) {
  const std::size_t from = steady_from(runs.report);
  const std::vector<double> eager = times(runs.eager, from, false), compiled = times(runs.compiled, from, true);
  if (from == 0 || eager.empty() || compiled.empty()) return "never (no compiled step of a full batch)";
  const double eager_ms = median(eager), compiled_ms = median(compiled);
  if (compiled_ms >= eager_ms) return "never (compiled step is not faster)";

  // Steps that ran eager after the last activation are the shadow steps: they are part of what a compiled step costs.
  const std::vector<double> shadow = times(runs.compiled, from, false);
  const auto compiled_count = static_cast<double>(compiled.size()), shadow_count = static_cast<double>(shadow.size());
  const double shadow_ms = shadow.empty() ? 0 : median(shadow);
  const double steady_ms = (compiled_ms * compiled_count + shadow_ms * shadow_count) / (compiled_count + shadow_count);
  const double saved = eager_ms - steady_ms;
  if (saved <= 0) return fmt::format("never (with shadow steps a step takes {:.3f} ms, eager {:.3f} ms)", steady_ms, eager_ms);
  const double spent = cost_of(runs.report).total();
  return fmt::format("step {} ({:.1f} ms spent, {:.4f} ms saved a step, shadow steps included)",
                     static_cast<std::int64_t>(from) + static_cast<std::int64_t>(std::ceil(spent / saved)), spent, saved);
}

std::string summary_table(const Comparison& runs) {
  const std::size_t from = steady_from(runs.report);
  const std::vector<double> eager = times(runs.eager, from, false), compiled = times(runs.compiled, from, true);
  const PlanReport* plan = busiest_plan(runs.report);
  const Cost cost = cost_of(runs.report);
  std::string text = row("", "eager", "compiled");
  text += row("test accuracy", fmt::format("{:.2f} %", 100 * runs.eager.test_accuracy),
              fmt::format("{:.2f} %", 100 * runs.compiled.test_accuracy));
  text += row("median step", time(eager), time(compiled), speed_note(eager, compiled));
  text += row("first step", fmt::format("{:.3f} ms", runs.eager_first_ms), fmt::format("{:.3f} ms", runs.compiled_first_ms));
  text += row("peak memory of a step", plan ? bytes(plan->eager_peak_bytes) : "-", plan ? bytes(plan->compiled_peak_bytes) : "-",
              "above what lives between steps");
  text += fact("loss difference", difference(loss_difference(runs, runs.eager.steps.size())));
  text += fact("parameter difference", difference(runs.parameter_difference));
  text += fact("compile, check, record", fmt::format("{:.3f} ms, {:.3f} ms, {:.3f} ms", cost.compile, cost.check, cost.record));
  text += fact("break-even", break_even(runs));
  return text + plan_facts(runs.report);
}

void add_curves(Comparison& runs) {
  // The step object runs eager only while it records; the loop beside it is the honest figure.
  const std::vector<double> eager_ms = times(runs.eager, steady_from(runs.report), false);
  if (!eager_ms.empty()) runs.report.eager_ms = median(eager_ms);
  const auto add = [&](const std::string& name, const RunLog& log) {
    Curve loss{"Loss by step", name, {}, {}}, spent{"Time spent by step (ms)", name, {}, {}};
    double sum = 0;
    for (std::size_t i = 0; i < log.steps.size(); ++i) {
      sum += log.steps[i].ms;
      loss.x.push_back(static_cast<double>(i + 1));
      loss.y.push_back(log.steps[i].loss);
      spent.x.push_back(static_cast<double>(i + 1));
      spent.y.push_back(sum);
    }
    runs.report.curves.push_back(std::move(loss));
    runs.report.curves.push_back(std::move(spent));
  };
  add("eager", runs.eager);
  add("compiled", runs.compiled);
}

std::string fault_of(const Comparison& runs) {
  const Report& report = runs.report;
  if (report.plans.empty()) return "expected active plans, found none: " + report.reason;
  for (const PlanReport& p : report.plans) {
    if (!p.active) return fmt::format("expected every plan to be active, found plan {} ({}) not active: {}", p.id, p.guard, p.reason);
    if (!(p.max_error_ratio <= 1))
      return fmt::format("expected errors within the check's bound, found {:.3g} times that in plan {}", p.max_error_ratio, p.id);
  }
  if (!report.active) return "expected an active step, found it not active: " + report.reason;
  const double loss = loss_difference(runs, runs.eager.steps.size());
  if (all_bit_equal(report)) {
    if (loss == 0 && runs.parameter_difference == 0) return "";
    return fmt::format(
        "every plan was bit-equal to eager in its check, so the runs must be; found losses that differ by {:.3g} and parameters that "
        "differ by {:.3g}",
        loss, runs.parameter_difference);
  }
  const auto ragged =
      std::find_if(runs.eager.steps.begin(), runs.eager.steps.end(), [&](const StepLog& s) { return s.batch != full_batch(runs.eager); });
  const auto epoch = static_cast<std::size_t>(ragged - runs.eager.steps.begin());
  const double scale = std::max(1.0, std::abs(runs.eager.steps.front().loss)), drift = loss_difference(runs, epoch) / scale;
  if (drift <= allowed_drift) return "";
  return fmt::format("expected losses of the first epoch within {:g} of eager's, found {:.3g}", allowed_drift, drift);
}

}  // namespace tandem::bench
