#include "trainers/entry.h"

#include "runtime/lifetimes.h"
#include "runtime/problem.h"
#include "runtime/seams.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace tandem {
namespace {

constexpr int max_recordings = 5, max_refusals = 2;
constexpr std::size_t report_problem_bytes = 1 << 20, max_problems = 8;

PlanSwitches switches_of(const Options& o) {
  return {{o.decompose, o.fuse, o.fold, o.cse, o.dce}, {o.skip_views, o.partition, o.fuse, o.fuse_update}, {o.arena, o.blas}};
}

jit::Settings jit_of(const Options& o) {
  jit::Settings settings;
  if (!o.jit) settings.compiler = jit::Compiler::system;
  return settings;
}

void write_problem(const Problem& problem, const Options& options, std::int64_t plan, Journal& journal) {
  auto text = print(problem);
  if (!options.problem_dir.empty()) {
    const auto path = fmt::format("{}/tandem-problem-plan{}-step{}.txt", options.problem_dir, plan, journal.steps);
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (file.flush())
      journal.say("check-failed", "the text problem was written to " + path);
    else
      journal.say("check-failed", "expected a writable folder for the text problem, found '" + options.problem_dir + "'");
  }
  if (text.size() > report_problem_bytes)
    text =
        problem.sentence + "\n(text problem of " + std::to_string(text.size()) + " bytes: set Options::problem_dir to have it written)\n";
  if (journal.problems.size() >= max_problems) journal.problems.erase(journal.problems.begin());
  journal.problems.push_back(std::move(text));
}

void count_nodes(PlanReport& r, const Plan& plan) {
  r.nodes_forward = r.nodes_backward = r.nodes_update = r.nodes_folded = r.nodes_skipped = 0;
  for (const auto& n : plan.graph.nodes) {
    (n.side == Side::forward ? r.nodes_forward : n.side == Side::backward ? r.nodes_backward : r.nodes_update)++;
    r.nodes_folded += n.folded;
  }
  for (const auto& c : plan.program.calls) r.nodes_skipped += c.kind == Call::Kind::view;
  r.groups = std::int64_t(plan.partition.groups.size());
  r.saved_bytes = plan.partition.saved_bytes;
  r.recomputed_nodes = std::int64_t(plan.partition.recomputed.size());
  r.recomputed_bytes = plan.partition.recomputed_bytes;
  r.arena_bytes = plan.memory.arena_bytes;
  r.kernels = std::int64_t(plan.program.kernels.size());
  r.launches = r.library_calls = r.barriers = 0;
  for (const auto& c : plan.program.calls) {
    r.launches += std::int64_t(c.launches.size());
    r.library_calls += c.kind == Call::Kind::library;
    r.barriers += c.kind == Call::Kind::library || c.kind == Call::Kind::kernel;
  }
}

/// Both checks; the plan replaces eager only when both pass.
void activate(Entry& e, RecordedStep now, const Options& options, Journal& journal) {
  Problem problem;
  problem.graph = now.recording.graph;
  if (seams().captured) seams().captured(problem.graph);
  Stopwatch checking;
  auto verdict = check_capture(problem.graph, now.eager, now.recording.graph.nodes, now.recording.hashes);
  e.report.check_ms = checking.ms();
  if (verdict.passed) {
    Stopwatch compiling;
    auto plan = make_plan(problem.graph, switches_of(options));
    if (seams().planned) seams().planned(plan);
    count_nodes(e.report, plan);
    e.step = std::make_unique<CompiledStep>(problem.graph, now.outside, now.has_grad, std::move(plan), jit_of(options));
    if (const auto& module = e.step->executor().module()) e.report.compiler = module->compiled_by;
    e.report.compile_ms = compiling.ms();
    Stopwatch generation;
    verdict = check_generation(problem.graph, e.step->plan(), e.step->executor(), now.eager);
    e.report.check_ms += generation.ms();
    if (!verdict.passed) problem.plan = e.step->plan();
    e.report.check_peak_bytes = check_bytes(problem.graph, e.step->plan(), verdict.with_reference);
    e.report.compiled_memory = memory_over_step(e.step->plan());
    e.report.compiled_peak_bytes = e.step->plan().memory.peak_bytes;
    e.report.eager_memory = now.recording.memory;
    e.report.eager_peak_bytes = peak_of(now.recording.memory);
  }
  e.report.max_error_ratio = verdict.max_error_ratio;
  if (!verdict.passed) {
    problem.sentence = verdict.sentence;
    problem.eager = now.eager;
    journal.say("check-failed", verdict.sentence);
    write_problem(problem, options, e.report.id, journal);
    e.step.reset();
    return e.stay_eager(verdict.sentence);
  }
  e.state = Entry::State::active;
  e.reason.clear();
  e.since_shadow = 0;
  e.measured_runs = 0;
  journal.say("activated",
              fmt::format("plan {} for {}: {} nodes, both checks passed", e.report.id, e.report.guard, problem.graph.nodes.size()));
}

/// Remembers a recording for the next one to be compared with; its data are not needed then.
void keep(Entry& e, RecordedStep step) {
  step.eager = {};
  step.has_snapshot = false;
  e.last = std::move(step);
}

/// A recorded graph with its inputs where another recording has them: mini-batches are slices, and where one lies is no part of the step.
Graph placed_as(const Graph& there, const Outside& outside_there, Graph graph, const Outside& outside) {
  for (std::size_t s = 0; s < std::min(graph.storages.size(), there.storages.size()); s++)
    if (graph.storages[s].role == Role::input && there.storages[s].role == Role::input) graph.storages[s].bytes = there.storages[s].bytes;
  for (auto& v : graph.values) {
    const auto& storage = graph.storages[std::size_t(v.storage)];
    if (storage.role != Role::input) continue;
    const auto i = std::size_t(storage.index);
    v.offset += (outside_there.input_start[i] - outside.input_start[i]) / std::int64_t(c10::elementSize(v.dtype));
  }
  return graph;
}

std::string disagreement(const RecordedStep& before, const RecordedStep& now) {
  const auto& graph = before.recording.graph;
  if (auto d = first_difference(graph, placed_as(graph, before.outside, now.recording.graph, now.outside)); !d.empty()) return d;
  return replaced(before.recording, now.recording);
}

}  // namespace

void Entry::stay_eager(std::string why) {
  state = State::eager;
  reason = std::move(why);
  last.reset();
}

void settle(Entry& e, RecordedStep now, const Options& options, Journal& journal) {
  e.recordings++;
  if (!now.recording.refusal.empty()) {
    e.refusals++;
    e.reason = now.recording.refusal;
    journal.say("refused", e.reason);
    if (now.final_refusal || e.refusals >= max_refusals) e.stay_eager(e.reason);
    return;
  }
  journal.say("recorded", fmt::format("{} nodes for {}", now.recording.graph.nodes.size(), e.report.guard));
  if (!e.last) {
    keep(e, std::move(now));
    return;
  }
  if (auto d = disagreement(*e.last, now); !d.empty()) {
    e.reason = "two recordings of this step do not agree: " + d;
    if (e.recordings >= max_recordings) {
      journal.say("refused", e.reason);
      return e.stay_eager(e.reason);
    }
    keep(e, std::move(now));
    return;
  }
  if (!now.has_snapshot) {
    keep(e, std::move(now));
    return;
  }
  e.last.reset();
  for (auto& b : now.eager.before.storages) b.shift = 0;  // bound by the recording before, but this step's graph says where its inputs lie
  try {
    activate(e, std::move(now), options, journal);
  } catch (const std::exception& fault) {
    e.step.reset();
    journal.say("refused", fault.what());
    e.stay_eager(fault.what());
  }
}

void compare_shadow(Entry& e, const RecordedStep& now, Journal& journal) {
  e.since_shadow = 0;
  journal.shadow_steps++;
  auto why = now.recording.refusal;
  const auto& captured = e.step->captured();
  if (why.empty()) why = first_difference(captured, placed_as(captured, e.step->outside(), now.recording.graph, now.outside));
  for (std::size_t i = 0; why.empty() && i < now.outside.captured.size(); i++) {
    const auto& mine = e.step->outside().captured;
    if (i >= mine.size() || mine[i].storage._unsafe_get_target() != now.outside.captured[i].storage._unsafe_get_target())
      why = "the step reads another captured tensor than the one recorded, expected the same";
  }
  if (why.empty()) return;
  why = "a shadow step no longer agrees with the plan (does the loss function depend on host state?): " + why;
  journal.say("retired", why);
  e.step.reset();
  e.stay_eager(why);
}

}  // namespace tandem
