#include "trainers/compile_entry.h"

#include "autograd/support/sentence.h"
#include "runtime/check.h"
#include "runtime/lifetimes.h"
#include "runtime/seams.h"
#include "trainers/planning.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

constexpr int max_recordings = 6, max_refusals = 3, max_relearned = 4;
constexpr std::size_t max_backwards = 4;

void count_nodes(PlanReport& r, CallPlan& plan) {
  auto& chain = plan.chain();
  r.saved_bytes = chain.carried_bytes();
  r.recomputed_nodes = plan.recomputed_nodes();
  r.recomputed_bytes = plan.recomputed_bytes();
  for (std::size_t i = 0; i < chain.size(); i++) {
    const auto& part = *chain[i].plan;
    for (const auto& n : part.graph.nodes) {
      (i == 0 ? r.nodes_forward : r.nodes_backward)++;
      r.nodes_folded += n.folded;
    }
    r.groups += std::int64_t(part.partition.groups.size());
    r.arena_bytes += part.memory.arena_bytes;
    r.kernels += std::int64_t(part.program.kernels.size());
    for (const auto& c : part.program.calls) {
      r.nodes_skipped += c.kind == Call::Kind::view;
      r.launches += std::int64_t(c.launches.size());
      r.library_calls += c.kind == Call::Kind::library;
      r.barriers += c.kind == Call::Kind::library || c.kind == Call::Kind::kernel;
    }
    // What the forward hands on lives beside each backward.
    r.compiled_peak_bytes = std::max(r.compiled_peak_bytes, part.memory.peak_bytes + (i > 0 ? chain.carried_bytes() : 0));
    const auto memory = memory_over_step(part);
    for (double bytes : memory) r.compiled_memory.push_back(bytes + (i > 0 ? double(chain.carried_bytes()) : 0));
    if (const auto& module = chain.executor(i).module()) r.compiler = module->compiled_by;
  }
}

/// Both checks; the plans replace eager only when both pass.
void activate(CallEntry& e, RecordedCall now, const Options& options, Journal& journal) {
  const auto id = e.report.id;
  const auto guard = e.report.guard;
  const auto record_ms = e.report.record_ms;
  e.report = PlanReport{};
  e.report.id = id;
  e.report.guard = guard;
  e.report.record_ms = record_ms;
  auto& graph = now.recording.graph;
  const auto nodes = graph.nodes;
  if (seams().captured) seams().captured(graph);
  Stopwatch checking;
  auto verdict = check_capture(graph, now.eager, nodes, now.recording.hashes);
  e.report.check_ms = checking.ms();
  const auto eager = now.eager;
  std::shared_ptr<CallPlan> plan;
  if (verdict.passed) {
    Stopwatch compiling;
    plan = std::make_shared<CallPlan>(now, switches_of(options), jit_of(options));
    e.report.compile_ms = compiling.ms();
    count_nodes(e.report, *plan);
    e.report.eager_memory = now.recording.memory;
    e.report.eager_peak_bytes = peak_of(now.recording.memory);
    Stopwatch generation;
    verdict = check_generation(graph, plan->chain(), eager);
    e.report.check_ms += generation.ms();
  }
  e.report.max_error_ratio = verdict.max_error_ratio;
  if (!verdict.passed) {
    journal.say("check-failed", verdict.sentence);
    write_problem({verdict.sentence, graph, std::nullopt, eager}, options, e.report.id, "call", journal);
    return e.stay_eager(verdict.sentence);
  }
  e.plan = std::move(plan);
  e.state = CallEntry::State::active;
  e.reason.clear();
  e.since_shadow = 0;
  e.shadow_period = options.shadow_every > 0 ? options.shadow_every : first_shadow;
  e.measured_runs = 0;
  journal.say("activated", fmt::format("plan {} for {}: {} nodes, {} backward{}, both checks passed", id, guard, nodes.size(),
                                       e.plan->backwards().size(), e.plan->backwards().size() == 1 ? "" : "s"));
}

void keep(CallEntry& e, RecordedCall call) {
  call.eager = {};
  call.has_snapshot = false;
  e.last = std::move(call);
}

}  // namespace

void CallEntry::stay_eager(std::string why) {
  state = State::eager;
  reason = std::move(why);
  last.reset();
  plan.reset();
}

void learn(CallEntry& e, Journal& journal) {
  for (const auto& sentence : e.observed->take_sentences()) journal.say("fallback", sentence);
  auto keys = e.observed->take_keys();
  if (keys.empty() || e.state == CallEntry::State::eager) return;
  auto known = e.wanted;
  if (e.plan) {  // those that were used, and the new ones
    known.clear();
    for (const auto& b : e.plan->backwards())
      if (b.used > 0) known.push_back(b.key);
  }
  std::size_t fresh = 0;
  for (auto& key : keys) {
    const auto planned = [&](const PlannedBackward& b) { return b.key == key; };
    if (e.plan && std::any_of(e.plan->backwards().begin(), e.plan->backwards().end(), planned)) continue;
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    known.push_back(std::move(key));
    fresh++;
  }
  if (fresh == 0) return;
  if (e.plan && e.relearned++ >= max_relearned) return;
  if (known.size() > max_backwards) known.erase(known.begin(), known.end() - std::ptrdiff_t(max_backwards));
  e.wanted = std::move(known);
  if (!e.plan) return;
  journal.say("recompile", "a backward brought tangents that no plan was made for: the call is recorded again with a backward for them");
  journal.recompiles++;
  e.plan.reset();
  e.last.reset();
  e.recordings = e.refusals = 0;
  e.state = CallEntry::State::recording;
}

void settle(CallEntry& e, RecordedCall now, const Options& options, Journal& journal) {
  e.recordings++;
  if (!now.recording.refusal.empty()) {
    e.refusals++;
    e.reason = now.recording.refusal;
    journal.say("refused", e.reason);
    if (now.final_refusal || e.refusals >= max_refusals) e.stay_eager(e.reason);
    return;
  }
  journal.say("recorded", fmt::format("{} nodes for {}", now.recording.graph.nodes.size(), e.report.guard));
  if (!e.last) return keep(e, std::move(now));
  if (auto d = disagreement(*e.last, now); !d.empty()) {
    e.reason = "two recordings of this call do not agree: " + d;
    if (e.recordings < max_recordings) return keep(e, std::move(now));
    journal.say("refused", e.reason);
    return e.stay_eager(e.reason);
  }
  if (options.replay == Replay::trusted && now.recording.generator_moved)
    return e.stay_eager(
        "the random generator was moved by hand, expected the function to leave it alone where it is not called (Options::replay)");
  if (!now.has_snapshot) return keep(e, std::move(now));
  e.last.reset();
  try {
    activate(e, std::move(now), options, journal);
  } catch (const std::exception& fault) {
    journal.say("refused", sentence_of(fault));
    e.stay_eager(sentence_of(fault));
  }
}

void compare_shadow(CallEntry& e, const RecordedCall& now, const Options& options, Journal& journal) {
  e.since_shadow = 0;
  if (options.shadow_every == 0) e.shadow_period *= 2;
  journal.shadow_steps++;
  auto why = now.recording.refusal.empty() ? disagreement(e.plan->call(), now) : now.recording.refusal;
  if (why.empty()) return;
  why = "a shadow call no longer agrees with the plan (does the function depend on host state?): " + why;
  journal.say("retired", why);
  e.stay_eager(why);
}

}  // namespace tandem
