#include "trainers/call_path.h"

#include "autograd/support/sentence.h"
#include "runtime/check.h"
#include "runtime/lifetimes.h"
#include "runtime/seams.h"
#include "trainers/planning.h"
#include "trainers/recorded_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace tandem {
namespace {

constexpr int max_relearned = 4;
constexpr std::size_t max_backwards = 4;

void describe(PlanReport& r, CallPlan& plan) {
  auto& chain = plan.chain();
  r.saved_bytes = chain.carried_bytes();
  r.recomputed_nodes = plan.recomputed_nodes();
  r.recomputed_bytes = plan.recomputed_bytes();
  for (std::size_t i = 0; i < chain.size(); i++) {
    const auto& part = *chain[i].plan;
    const bool forward = i < plan.forwards();
    if (forward && plan.parts().parts[i].host) {
      r.breaks.push_back(break_at(plan.call().recording, plan.parts().parts[i].begin, "call", chain.carried_bytes()));
      continue;
    }
    (forward ? r.nodes_forward : r.nodes_backward) += std::int64_t(part.graph.nodes.size());
    add_plan(r, part);
    // What the forward hands on lives beside each backward.
    const auto beside = i > 0 ? chain.carried_bytes() : 0;
    r.compiled_peak_bytes = std::max(r.compiled_peak_bytes, part.memory.peak_bytes + beside);
    for (double bytes : memory_over_step(part)) r.compiled_memory.push_back(bytes + double(beside));
    if (const auto& module = chain.executor(i).module()) r.compiler = module->compiled_by;
  }
}

/// Makes run-time scalars of the numbers that move; those of the backwards follow from the function's. One sentence where they cannot.
std::string free_numbers(const Graph& before, RecordedCall& now, const std::vector<std::size_t>& moved, std::vector<Derived>& derived) {
  auto& g = now.recording.graph;
  auto found = derive_numbers(before, g, moved, now.forward_end());
  if (!found) return "a number of the backward moves with the function's in a way that is not known";
  derived = std::move(*found);
  const auto places = numbers_of(g);
  for (auto i : moved) free_number(g, places[i]);
  return "";
}

/// What trusted plans, which stand for the function itself, cannot do.
std::string untrusted(const RecordedCall& now, const std::vector<std::size_t>& moved) {
  if (now.recording.generator_moved)
    return "the random generator was moved by hand, expected the function to leave it alone where it is not called (Options::replay)";
  if (!moved.empty()) return "a number of the function is another in each call, expected the same where it is not called (Options::replay)";
  return host_read(now.recording.graph);
}

PlanReport named_as(const PlanReport& old) {
  PlanReport r;
  r.id = old.id;
  r.guard = old.guard;
  r.record_ms = old.record_ms;
  return r;
}

/// Both checks; the plans replace eager only when both pass.
void activate(CallPath& path, RecordedCall now, std::vector<Derived> derived, const Options& options, Journal& journal) {
  auto& report = path.report = named_as(path.report);
  auto eager = std::move(now.eager);
  eager.before.scalars.clear();
  for (const auto& s : now.recording.graph.scalars) eager.before.scalars.push_back(s.recorded);
  const auto ours = computed(now.recording);
  auto graph = ours.graph;
  if (seams().captured) seams().captured(graph);
  Stopwatch checking;
  auto verdict = check_capture(graph, eager, ours.graph.nodes, ours.hashes);
  report.check_ms = checking.ms();
  std::shared_ptr<CallPlan> plan;
  if (verdict.passed) {
    Stopwatch compiling;
    plan = std::make_shared<CallPlan>(now, std::move(derived), switches_of(options), jit_of(options));
    report.compile_ms = compiling.ms();
    describe(report, *plan);
    report.eager_memory = now.recording.memory;
    report.eager_peak_bytes = peak_of(now.recording.memory);
    Stopwatch generation;
    verdict = check_generation(graph, plan->chain(), eager);
    report.check_ms += generation.ms();
  }
  report.max_error_ratio = verdict.max_error_ratio;
  if (!verdict.passed) {
    journal.say("check-failed", verdict.sentence);
    write_problem({verdict.sentence, graph, std::nullopt, eager}, options, report.id, "call", journal);
    return path.stay_eager(verdict.sentence);
  }
  path.plan = std::move(plan);
  path.state = CallPath::State::active;
  path.reason.clear();
  path.since_shadow = 0;
  path.shadow_period = options.shadow_every > 0 ? options.shadow_every : first_shadow;
  path.measured_runs = 0;
  const bool trusted = options.replay == Replay::trusted;
  report.replay = trusted ? "trusted" : "forward";
  report.replay_reason = trusted ? "Options::replay asks for it" : "";
  report.host_ops = trusted ? 0 : std::int64_t(path.plan->tape().length());
  report.run_time_numbers = std::int64_t(graph.scalars.size());
  journal.say("activated", fmt::format("plan {} for {}: {} nodes, {} backward{}, both checks passed", report.id, report.guard,
                                       graph.nodes.size(), path.plan->backwards().size(), path.plan->backwards().size() == 1 ? "" : "s"));
}

}  // namespace

void CallPath::stay_eager(std::string why) {
  state = State::eager;
  reason = std::move(why);
  plan.reset();
}

bool starts_as(const CallPath& path, const Graph& forward) {
  const auto& nodes = path.last.recording.graph.nodes;
  if (path.last.forward_end() != forward.nodes.size()) return false;
  for (std::size_t i = 0; i < forward.nodes.size(); i++) {
    const auto &a = nodes[i], &b = forward.nodes[i];
    if (a.op != b.op || a.args.size() != b.args.size()) return false;
    for (std::size_t k = 0; k < a.args.size(); k++)
      if (a.args[k].values != b.args[k].values) return false;
  }
  return true;
}

std::string disagreement(const CallPath& path, const RecordedCall& now, std::vector<std::size_t>& moved) {
  const auto& last = path.last;
  const bool same_backwards = last.backwards == now.backwards;
  auto m = same_backwards
               ? moved_numbers(last.recording.graph, now.recording.graph)
               : moved_numbers(calls_of(last.recording.graph, last.forward_end()), calls_of(now.recording.graph, now.forward_end()));
  moved = std::move(m.numbers);
  if (!m.difference.empty()) return m.difference;
  if (last.differentiable != now.differentiable || last.counts != now.counts || last.targets != now.targets)
    return "what the function returns and depends on differs, expected the same outputs and leaves";
  return "";
}

void add_recording(CallPath& path, RecordedCall now, const std::vector<std::size_t>& moved, const Options& options, Journal& journal) {
  using State = CallPath::State;
  path.recordings++;
  const bool moves = path.moves(moved);
  if (path.state == State::eager) return;
  const bool new_backwards = path.last.backwards != now.backwards;
  if (path.state == State::active && (!moves || new_backwards)) return;
  auto again = now;
  again.drop_data();
  if (new_backwards || !now.has_data) {
    // Numbers of other backwards have other places.
    const auto places = numbers_of(path.last.recording.graph);
    if (new_backwards) std::erase_if(path.moved, [&](std::size_t i) { return std::size_t(places[i].node) >= path.last.forward_end(); });
    path.last = std::move(again);
    path.plan.reset();
    path.state = State::recording;
    return;
  }
  if (path.state == State::active)
    journal.say("recompile",
                fmt::format("a number of plan {} is another in this call: it is read anew in each call from now on", path.report.id));
  std::vector<Derived> derived;
  auto why = options.replay == Replay::trusted ? untrusted(now, path.moved) : "";
  if (why.empty() && options.replay == Replay::trusted) why = replaced(path.last.recording, now.recording);
  if (why.empty() && options.replay != Replay::trusted) why = late_capture(now.recording);
  if (why.empty()) why = free_numbers(path.last.recording.graph, now, path.moved, derived);
  path.last = std::move(again);
  if (!why.empty()) {
    journal.say("refused", why);
    return path.stay_eager(why);
  }
  try {
    activate(path, std::move(now), std::move(derived), options, journal);
  } catch (const std::exception& fault) {
    journal.say("refused", sentence_of(fault));
    path.stay_eager(sentence_of(fault));
  }
}

void check_shadow(CallPath& path, RecordedCall now, const Options& options, Journal& journal) {
  path.since_shadow = 0;
  if (options.shadow_every == 0) path.shadow_period *= 2;
  journal.shadow_steps++;
  const auto& recorded = path.plan->call();
  if (!now.has_data || now.backwards != recorded.backwards) return;
  const auto graph = computed(recorded.recording).graph;
  auto& scalars = now.eager.before.scalars;
  scalars.assign(graph.scalars.size(), 0);
  const auto places = numbers_of(recorded.recording.graph);
  for (const auto& p : places)
    if (const auto s = recorded.recording.graph.nodes[std::size_t(p.node)].args[std::size_t(p.arg)].scalar; s >= 0)
      scalars[std::size_t(s)] = value_of(now.recording.graph.nodes[std::size_t(p.node)].args[std::size_t(p.arg)]);
  const auto verdict = check_generation(graph, path.plan->chain(), now.eager);
  path.report.max_error_ratio = std::max(path.report.max_error_ratio, verdict.max_error_ratio);
  if (verdict.passed) return;
  const auto why = "a shadow call no longer agrees with the plan: " + verdict.sentence;
  journal.say("retired", why);
  write_problem({why, graph, std::nullopt, now.eager}, options, path.report.id, "call", journal);
  path.stay_eager(why);
}

void learn(CallPath& path, const Options& options, Journal& journal) {
  std::vector<TangentKey> keys;
  for (const auto& o : path.observed) {
    for (const auto& sentence : o->take_sentences()) journal.say("fallback", sentence);
    for (auto& key : o->take_keys()) keys.push_back(std::move(key));
  }
  if (keys.empty() || path.state == CallPath::State::eager) return;
  auto known = path.wanted;
  if (path.plan) {  // those that were used, and the new ones
    known.clear();
    for (const auto& b : path.plan->backwards())
      if (b.used > 0) known.push_back(b.key);
  }
  std::size_t fresh = 0;
  for (auto& key : keys) {
    const auto planned = [&](const PlannedBackward& b) { return b.key == key; };
    if (path.plan && std::any_of(path.plan->backwards().begin(), path.plan->backwards().end(), planned)) continue;
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    known.push_back(std::move(key));
    fresh++;
  }
  if (fresh == 0) return;
  if (path.plan && (options.fail_on_recompile || path.relearned++ >= max_relearned)) return;
  if (known.size() > max_backwards) known.erase(known.begin(), known.end() - std::ptrdiff_t(max_backwards));
  path.wanted = std::move(known);
  if (!path.plan) return;
  journal.say("recompile", "a backward brought tangents that no plan was made for: the call is recorded again with a backward for them");
  journal.recompiles++;
  path.plan.reset();
  path.state = CallPath::State::recording;
}

}  // namespace tandem
