#include "trainers/path.h"

#include "autograd/support/sentence.h"
#include "runtime/check.h"
#include "runtime/lifetimes.h"
#include "runtime/seams.h"
#include "trainers/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace tandem {
namespace {

void count(PlanReport& r, const Plan& plan) {
  for (const auto& n : plan.graph.nodes)
    (n.side == Side::forward ? r.nodes_forward : n.side == Side::backward ? r.nodes_backward : r.nodes_update)++;
  r.saved_bytes += plan.partition.saved_bytes;
  r.recomputed_nodes += std::int64_t(plan.partition.recomputed.size());
  r.recomputed_bytes += plan.partition.recomputed_bytes;
  add_plan(r, plan);
}

/// What a plan is made of, over all of its parts.
void describe(PlanReport& r, const RecordedStep& recorded, const Parts& parts, const Chain& chain) {
  r.nodes_forward = r.nodes_backward = r.nodes_update = r.nodes_folded = r.nodes_skipped = r.groups = 0;
  r.launches = r.library_calls = r.barriers = r.kernels = 0;
  r.saved_bytes = r.recomputed_nodes = r.recomputed_bytes = r.arena_bytes = r.compiled_peak_bytes = 0;
  r.compiled_memory.clear();
  r.breaks.clear();
  for (std::size_t i = 0; i < chain.size(); i++) {
    const auto& plan = *chain[i].plan;
    if (const auto& module = chain[i].executor->module()) r.compiler = module->compiled_by;
    const auto& part = parts.parts[i];
    if (part.host) {
      r.breaks.push_back(break_at(recorded.recording, part.begin, "step", chain.carried_bytes()));
      continue;
    }
    count(r, plan);
    for (auto bytes : memory_over_step(plan)) r.compiled_memory.push_back(bytes);
    r.compiled_peak_bytes = std::max(r.compiled_peak_bytes, plan.memory.peak_bytes);
  }
  if (chain.size() > 1) r.compiled_peak_bytes += chain.carried_bytes();
  r.eager_memory = recorded.recording.memory;
  r.eager_peak_bytes = peak_of(recorded.recording.memory);
}

struct Freed {
  CompiledStep::Level level = CompiledStep::Level::forward;
  std::string reason;  // why it is not forward
  std::vector<Derived> derived;
};

/// What the host does behind a read in the backward shows only when it makes the backward's calls.
std::string late_read(const Recording& r) {
  for (std::size_t n = r.forward_end; n < r.graph.nodes.size(); n++)
    if (r.graph.nodes[n].effects.host_read) return "the host reads a number in " + describe(r.graph.nodes[n]);
  return "";
}

/// Makes run-time scalars of the numbers that move: those of the closure, and what follows from them later in the step. Where the host makes the
/// update's calls too, each floating number of the update is one: schedules and step counts move them sooner or later.
Freed free_numbers(const Graph& before, RecordedStep& now, const std::vector<std::size_t>& moved, Replay wanted) {
  using Level = CompiledStep::Level;
  auto& g = now.recording.graph;
  const auto places = numbers_of(g);
  Freed out;
  auto number = [&](std::size_t i) -> Argument& { return g.nodes[std::size_t(places[i].node)].args[std::size_t(places[i].arg)]; };
  auto bound = [&](std::size_t i) { return number(i).scalar >= 0; };  // the optimizer's own
  std::vector<std::size_t> loose;
  std::copy_if(moved.begin(), moved.end(), std::back_inserter(loose), [&](std::size_t i) { return !bound(i); });
  out.reason = wanted == Replay::full ? "Options::replay asks for it" : now.full_reason;
  if (wanted == Replay::trusted) {
    out.level = Level::trusted;
    out.reason = "Options::replay asks for it";
    return out;
  }
  if (out.reason.empty()) out.reason = late_capture(now.recording);
  if (out.reason.empty()) out.reason = late_read(now.recording);
  if (out.reason.empty()) {
    if (auto derived = derive_numbers(before, g, loose, now.recording.forward_end))
      out.derived = std::move(*derived);
    else
      out.reason = "a number of the backward moves with the closure's in a way that is not known";
  }
  if (!out.reason.empty()) {
    out.level = Level::full;
    for (auto& n : g.nodes)
      for (auto& a : n.args) a.scalar = -1;
    g.scalars.clear();
    loose = moved;
    for (std::size_t i = 0; i < places.size(); i++)
      if (g.nodes[std::size_t(places[i].node)].side == Side::update && !is_integral(number(i))) loose.push_back(i);
    std::sort(loose.begin(), loose.end());
    loose.erase(std::unique(loose.begin(), loose.end()), loose.end());
  }
  for (auto i : loose) free_number(g, places[i]);
  return out;
}

/// Of a step in one part: what a text problem can hold.
std::optional<Plan> only_plan(const Chain& chain) { return chain.size() == 1 ? std::optional<Plan>(*chain[0].plan) : std::nullopt; }

/// Both checks; the plan replaces eager only when both pass.
void activate(Path& path, RecordedStep now, const Freed& freed, const Options& options, Journal& journal) {
  auto& report = path.report;
  Problem problem;
  now.eager.before.scalars.clear();
  for (const auto& s : now.recording.graph.scalars) now.eager.before.scalars.push_back(s.recorded);
  auto ours = computed(now.recording);
  problem.graph = ours.graph;
  if (seams().captured) seams().captured(problem.graph);
  Stopwatch checking;
  auto eager = std::move(now.eager);
  auto verdict = check_capture(problem.graph, eager, ours.graph.nodes, ours.hashes);
  report.check_ms = checking.ms();
  if (verdict.passed) {
    Stopwatch compiling;
    auto parts = parts_of(now.recording, freed.level == CompiledStep::Level::full);
    const auto& whole = parts.parts.size() == 1 ? problem.graph : now.recording.graph;
    Chain chain(cut(whole, parts), problem.graph.outputs.size() + parts.alive.size(), switches_of(options), jit_of(options));
    describe(report, now, parts, chain);
    now.drop_data();
    path.step = std::make_unique<CompiledStep>(std::move(now), std::move(parts), std::move(chain), freed.level, freed.derived);
    report.compile_ms = compiling.ms();
    Stopwatch generation;
    verdict = check_generation(problem.graph, path.step->chain(), eager);
    report.check_ms += generation.ms();
    if (!verdict.passed) problem.plan = only_plan(path.step->chain());
    report.check_peak_bytes = check_bytes(problem.graph, *path.step->chain()[0].plan, verdict.with_reference);
  }
  report.max_error_ratio = verdict.max_error_ratio;
  if (!verdict.passed) {
    problem.sentence = verdict.sentence;
    problem.eager = std::move(eager);
    journal.say("check-failed", verdict.sentence);
    write_problem(problem, options, report.id, "step", journal);
    return path.stay_eager(verdict.sentence);
  }
  report.replay = name_of(freed.level);
  report.replay_reason = freed.reason;
  report.host_ops = freed.level == CompiledStep::Level::trusted ? 0 : std::int64_t(path.step->tape().length());
  report.run_time_numbers = std::int64_t(problem.graph.scalars.size());
  path.state = Path::State::active;
  path.reason.clear();
  path.since_shadow = 0;
  if (path.shadow_period == 0) path.shadow_period = options.shadow_every > 0 ? options.shadow_every : first_shadow;
  path.measured_runs = 0;
  journal.say("activated",
              fmt::format("plan {} for {}: {} nodes, both checks passed", report.id, report.guard, problem.graph.nodes.size()));
}

}  // namespace

bool PathState::moves(const std::vector<std::size_t>& numbers) {
  const auto known = moved.size();
  for (auto i : numbers)
    if (std::find(moved.begin(), moved.end(), i) == moved.end()) moved.push_back(i);
  std::sort(moved.begin(), moved.end());
  return known != moved.size();
}

void Path::stay_eager(std::string why) {
  state = State::eager;
  reason = std::move(why);
  step.reset();
}

std::string disagreement(const Path& path, const RecordedStep& now, std::vector<std::size_t>& moved) {
  auto m = moved_numbers(path.last.recording.graph, now.recording.graph);
  moved = std::move(m.numbers);
  return m.difference;
}

void add_recording(Path& path, RecordedStep now, const std::vector<std::size_t>& moved, const Options& options, Journal& journal) {
  path.recordings++;
  const bool moves = path.moves(moved);
  if (path.state == Path::State::eager) return;
  if (path.state == Path::State::active && !moves) return;
  auto again = now;
  again.drop_data();
  if (!now.has_data) {
    path.last = std::move(again);
    if (path.state == Path::State::active) path.state = Path::State::recording;
    return;
  }
  if (path.state == Path::State::active)
    journal.say("recompile",
                fmt::format("a number of plan {} is another in this step: it is read anew in each step from now on", path.report.id));
  const auto freed = free_numbers(path.last.recording.graph, now, path.moved, options.replay);
  path.last = std::move(again);
  if (freed.level == CompiledStep::Level::trusted && now.visible_outputs < now.recording.graph.outputs.size())
    return path.stay_eager(
        "the step keeps a tensor alive after its end, expected only the loss, the outputs and the gradients where the closure is not "
        "called (Options::replay): a plan would not refresh it");
  if (freed.level == CompiledStep::Level::trusted && now.recording.generator_moved)
    return path.stay_eager(
        "the random generator was moved by hand, expected the closure to leave it alone where it is not called (Options::replay)");
  if (freed.level == CompiledStep::Level::trusted && !host_read(now.recording.graph).empty())
    return path.stay_eager(host_read(now.recording.graph));
  try {
    activate(path, std::move(now), freed, options, journal);
  } catch (const std::exception& fault) {
    journal.say("refused", sentence_of(fault));
    path.stay_eager(sentence_of(fault));
  }
}

void check_shadow(Path& path, RecordedStep now, const Options& options, Journal& journal) {
  path.since_shadow = 0;
  if (options.shadow_every == 0) path.shadow_period *= 2;
  journal.shadow_steps++;
  if (!now.has_data) return;
  Problem problem;
  problem.graph = computed(path.step->recorded().recording).graph;
  const auto places = numbers_of(now.recording.graph);
  now.eager.before.scalars.assign(problem.graph.scalars.size(), 0);
  for (std::size_t i = 0; i < places.size(); i++)
    if (const auto s = path.step->tape().scalar_of(i); s >= 0)
      now.eager.before.scalars[std::size_t(s)] =
          value_of(now.recording.graph.nodes[std::size_t(places[i].node)].args[std::size_t(places[i].arg)]);
  const auto verdict = check_generation(problem.graph, path.step->chain(), now.eager);
  path.report.max_error_ratio = std::max(path.report.max_error_ratio, verdict.max_error_ratio);
  if (verdict.passed) return;
  problem.sentence = "a shadow step no longer agrees with the plan: " + verdict.sentence;
  problem.plan = only_plan(path.step->chain());
  problem.eager = std::move(now.eager);
  journal.say("retired", problem.sentence);
  write_problem(problem, options, path.report.id, "step", journal);
  path.stay_eager(problem.sentence);
}

}  // namespace tandem
