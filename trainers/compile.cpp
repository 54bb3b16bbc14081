#include "tandem/compile.h"

#include "autograd/key.h"
#include "trainers/compile_edge.h"
#include "trainers/compile_entry.h"
#include "trainers/compile_replay.h"
#include "trainers/eager.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <mutex>

namespace tandem {
namespace {

constexpr int measured_runs = 8;
constexpr const char* crowded =
    "more combinations of shapes and flags come in turn than Options::max_plans keeps, expected fewer: this one runs eager";

/// Whether somebody records the ops of this thread, a step or another compiled function: this call then is a part of what they record.
bool is_recorded() {
  const auto tls = c10::impl::tls_local_dispatch_key_set();
  return tls.included_.has(c10::DispatchKey::Fake) && !tls.excluded_.has(c10::DispatchKey::Fake);
}

}  // namespace

namespace detail {

struct CompiledFunction::Impl {
  Impl(std::shared_ptr<torch::nn::Module> module, Options o)
      : options(std::move(o)), world(std::make_shared<ModuleTensors>(std::move(module))) {
    if (auto refusal = options.compile ? claim_key() : std::string("Options::compile is off"); !refusal.empty()) off = refusal;
  }

  Flat run(const Callee& callee, const Inputs& inputs);
  Signature signature_of(const Inputs& inputs) const;
  static std::string unsupported(const Signature& signature, const Inputs& inputs);
  bool make_room();
  CallEntry* entry_for(const Signature& signature, const Inputs& inputs);
  std::optional<Flat> run_plan(CallEntry& entry, const Callee& callee, const Inputs& inputs);
  Flat run_recorded(CallEntry& entry, const Callee& callee, const Inputs& inputs);
  Flat turn_aside(CallEntry& entry, CallReplay replayed);
  void advance_versions(CallPlan& plan, const Inputs& inputs, const std::vector<char>* through) const;
  void forward(CallPlan& plan, const Inputs& inputs, const RunInputs& bound, Chain::Held& held, std::vector<at::Tensor>& outputs);
  Report report();

  Options options;
  std::shared_ptr<ModuleTensors> world;
  std::shared_ptr<std::recursive_mutex> mutex = std::make_shared<std::recursive_mutex>();
  std::string off;  // why nothing is recorded at all
  std::list<CallEntry> entries;
  CallEntry* latest = nullptr;
  bool turned_aside = false;  // the latest call left its plan
  std::int64_t next_id = 1;
  std::int64_t pushed_out = 0;  // entries that went before they came to a plan
  Journal journal;
};

Signature CompiledFunction::Impl::signature_of(const Inputs& inputs) const {
  auto s = observe({inputs, world->leaves(), world->buffers(), {}, {}});
  s.hooked.clear();  // hooks on parameters are autograd's business, behind the edge
  s.training = world->training();
  return s;
}

/// One sentence about a call that no plan can stand for, whatever the function does.
std::string CompiledFunction::Impl::unsupported(const Signature& s, const Inputs& inputs) {
  for (std::size_t i = 0; i < s.inputs.size(); i++) {
    const auto& in = s.inputs[i];
    if (!in.defined) return fmt::format("input {} is undefined, expected a tensor", i);
    if (!in.strided) return fmt::format("input {} has no strided memory, expected a dense tensor", i);
    if (in.zero) return fmt::format("input {} is a zero tensor without memory, expected one with memory", i);
    if (in.number) return fmt::format("input {} is a wrapped number, expected a tensor: recorded numbers are constants", i);
    if (inputs[i]._fw_grad(0).defined()) return fmt::format("input {} has a forward gradient, expected none", i);
  }
  if (s.autocast) return "autocast is on, expected off: its weight cache lives on the host";
  if (s.anomaly) return "autograd's anomaly mode is on, expected off: it looks at every gradient on the host";
  return "";
}

/// False when more signatures come in turn than plans are kept: they would push each other out before their second recording, for ever.
bool CompiledFunction::Impl::make_room() {
  constexpr std::int64_t patience = 1000;  // calls
  if (std::int64_t(entries.size()) < options.max_plans) return true;
  const auto oldest = std::min_element(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.used < b.used; });
  if (pushed_out >= 2 * options.max_plans && journal.steps - oldest->used < patience) return false;
  pushed_out += oldest->state == CallEntry::State::recording;
  journal.say("evicted",
              fmt::format("plan {} for {}: {} plans are kept at most", oldest->report.id, oldest->report.guard, options.max_plans));
  if (latest == &*oldest) latest = nullptr;
  entries.erase(oldest);
  return true;
}

/// Where this signature's plan is or will be; nullptr when there is no room for one.
CallEntry* CompiledFunction::Impl::entry_for(const Signature& signature, const Inputs& inputs) {
  for (auto& e : entries)
    if (e.signature == signature) return &e;
  const bool again = std::any_of(entries.begin(), entries.end(), [](const auto& e) { return e.state == CallEntry::State::active; });
  if (again && latest) {
    journal.recompiles++;
    journal.say("recompile", "no plan fits: " + difference(latest->signature, signature, world->leaves(), world->buffers()));
  }
  if (!make_room()) return nullptr;
  auto& e = entries.emplace_back();
  e.signature = signature;
  e.report.id = next_id++;
  e.report.guard = describe(signature);
  if (!signature.grad_mode || signature.inference_mode) e.report.guard += " (inference)";
  if (auto why = unsupported(signature, inputs); !why.empty()) e.stay_eager(why);
  return &e;
}

Flat CompiledFunction::Impl::run(const Callee& callee, const Inputs& inputs) {
  if (is_recorded()) return callee(inputs);
  std::unique_lock lock(*mutex);
  Stopwatch watch;
  journal.next_step();
  CallEntry* entry = nullptr;
  if (off.empty()) {
    world->refresh();
    entry = entry_for(signature_of(inputs), inputs);
    latest = entry;
  }
  if (entry) {
    entry->used = journal.steps;
    learn(*entry, journal);
  }
  if (!entry || entry->state == CallEntry::State::eager) {
    journal.eager_steps++;
    lock.unlock();
    auto out = callee(inputs);
    lock.lock();
    if (journal.steps == 1) journal.first_step_ms = watch.ms();
    journal.eager_time(watch.ms());
    return out;
  }
  if (entry->state == CallEntry::State::active && ++entry->since_shadow < entry->shadow_period)
    if (turned_aside = false; auto out = run_plan(*entry, callee, inputs)) {
      (turned_aside ? journal.eager_steps : journal.compiled_steps)++;
      if (!turned_aside) journal.compiled_time(watch.ms());
      return std::move(*out);
    }
  journal.eager_steps++;
  auto out = run_recorded(*entry, callee, inputs);
  if (journal.steps == 1) journal.first_step_ms = watch.ms();
  return out;
}

/// By how much the counters of what the call wrote move. `through`: per node of the forward, after a failure, whether it ran.
void CompiledFunction::Impl::advance_versions(CallPlan& plan, const Inputs& inputs, const std::vector<char>* through) const {
  const auto& graph = plan.chain()[0].plan->graph;
  auto due = [&](Role role, std::int32_t index, std::uint32_t by) {
    if (!through) return by;
    std::uint32_t all = 0, ran = 0;
    for (std::size_t i = 0; i < graph.nodes.size(); i++)
      for (auto s : graph.nodes[i].writes)
        if (const auto& storage = graph.storages[std::size_t(s)]; storage.role == role && storage.index == index) {
          all++;
          ran += (*through)[i];
        }
    return ran == all ? (all ? by : 0) : std::min(by, ran);
  };
  const auto& outside = plan.call().outside;
  for (const auto& d : outside.versions) {
    const auto t = world->resolve(d.role, d.index, inputs);
    if (!t.defined() || t.is_inference()) continue;
    for (auto n = due(d.role, d.index, d.by); n > 0; n--) t.unsafeGetTensorImpl()->bump_version();
  }
  for (std::size_t i = 0; i < outside.captured.size(); i++) {
    auto counter = outside.captured[i].version;  // a handle on the same counter
    const auto by = outside.captured[i].version_at_end - outside.captured[i].version_at_start;
    for (auto n = by ? due(Role::captured, std::int32_t(i), by) : 0; n > 0; n--) counter.bump();
  }
}

/// Runs the forward plan. What it throws comes through, and leaves what eager would leave.
void CompiledFunction::Impl::forward(CallPlan& plan, const Inputs& inputs, const RunInputs& bound, Chain::Held& held,
                                     std::vector<at::Tensor>& outputs) {
  auto& executor = plan.chain().executor(0);
  struct End {
    Executor& executor;
    ~End() { executor.end(); }
  } end{executor};
  try {
    plan.chain().run(0, bound, held);
  } catch (...) {
    if (const auto call = executor.failed_call(); call >= 0) {
      std::vector<char> ran(plan.chain()[0].plan->graph.nodes.size(), false);
      for (std::size_t k = 0; k < std::size_t(call); k++)
        for (auto i : executor.index().nodes[k]) ran[i] = true;
      advance_versions(plan, inputs, &ran);
    }
    throw;
  }
  const auto& values = plan.chain()[0].plan->graph.outputs;
  for (std::size_t i = 0; i < plan.captured().outputs.size(); i++) outputs.push_back(executor.value(values[i]));
  advance_versions(plan, inputs, nullptr);
}

/// The function did something else and went on in eager. Where it keeps doing so the check costs more than the plan gains.
Flat CompiledFunction::Impl::turn_aside(CallEntry& entry, CallReplay replayed) {
  constexpr std::int64_t patience = 8;
  entry.since_shadow--;
  turned_aside = true;
  if (entry.diverged++ == 0) journal.say("path", "the call ran eager: " + replayed.why);
  if (entry.diverged >= patience && entry.diverged > entry.followed) {
    journal.say("retired", "most calls are not what was recorded: " + replayed.why);
    entry.stay_eager("most calls are not what was recorded: " + replayed.why);
  }
  return std::move(replayed.out);
}

std::optional<Flat> CompiledFunction::Impl::run_plan(CallEntry& entry, const Callee& callee, const Inputs& inputs) {
  const auto plan = entry.plan;
  RunInputs bound;
  if (auto why = bind_call(plan->captured(), plan->outside(), plan->call().outside, *world, inputs, bound); !why.empty()) {
    journal.say("fallback", why);
    return std::nullopt;
  }
  if (options.replay != Replay::trusted) {
    Stopwatch host;
    auto replayed = replay_call(callee, *world, inputs, plan->call(), plan->tape(), bound, !plan->overwritten().empty());
    if (!replayed.followed) return turn_aside(entry, std::move(replayed));
    entry.followed++;
    entry.replay_us.add(host.ms() * 1000);
  }
  std::shared_ptr<Again> again;
  if (!plan->backwards().empty()) again = std::make_shared<Again>(callee, world, plan, inputs, bound);
  const bool measure = entry.measured_runs < measured_runs;
  for (std::size_t i = 0; i < plan->chain().size(); i++) plan->chain().executor(i).time_calls(measure);
  Flat out;
  out.counts = plan->call().counts;
  auto held = plan->chain().nothing_held();
  forward(*plan, inputs, bound, held, out.tensors);
  if (again) {
    again->note_versions();
    connect({plan, mutex, entry.observed, std::move(held), {}, std::move(again)}, *world, inputs, bound, out.tensors);
  }
  entry.measured_runs += measure;
  entry.report.steps++;
  return out;
}

Flat CompiledFunction::Impl::run_recorded(CallEntry& entry, const Callee& callee, const Inputs& inputs) {
  const bool shadow = entry.state == CallEntry::State::active;
  Stopwatch watch;
  RecordedCall call;
  std::vector<TangentKey> wanted = entry.wanted;
  if (shadow) {
    wanted.clear();
    for (const auto& b : entry.plan->backwards()) wanted.push_back(b.key);
  }
  auto out = record_call({callee, *world, inputs, wanted, !shadow && entry.last ? &*entry.last : nullptr, !shadow, entry.observed}, call);
  entry.report.record_ms += watch.ms();
  shadow ? compare_shadow(entry, call, options, journal) : settle(entry, std::move(call), options, journal);
  return out;
}

namespace {
void add_times(CallPlan& plan, PlanReport& report) {
  for (std::size_t i = 0; i < plan.chain().size(); i++) {
    const auto& part = *plan.chain()[i].plan;
    const auto& us = plan.chain().executor(i).shortest_us();
    for (std::size_t k = 0; k < us.size(); k++)
      if (std::isfinite(us[k])) report.nodes.push_back({describe_call(part, k), i == 0 ? "forward" : "backward", us[k]});
  }
}
}  // namespace

Report CompiledFunction::Impl::report() {
  const std::lock_guard lock(*mutex);
  for (auto& e : entries)
    for (const auto& sentence : e.observed->take_sentences()) journal.say("fallback", sentence);
  Report r;
  journal.fill(r);
  r.optimizer = "none: a function";
  for (const auto& e : entries) {
    r.plans.push_back(e.report);
    auto& p = r.plans.back();
    p.active = e.state == CallEntry::State::active;
    p.reason =
        e.state == CallEntry::State::recording && e.reason.empty() ? "it is being recorded: two recordings must agree first" : e.reason;
    if (e.plan) {
      const bool trusted = options.replay == Replay::trusted;
      p.replay = trusted ? "trusted" : "forward";
      p.replay_reason = trusted ? "Options::replay asks for it" : "";
      p.replay_us = e.replay_us.median();
      p.host_ops = trusted ? 0 : std::int64_t(e.plan->tape().length());
      add_times(*e.plan, p);
    }
  }
  r.active = off.empty() && latest && latest->state == CallEntry::State::active;
  if (!r.active) {
    r.reason = !off.empty() ? off : latest ? latest->reason : r.steps == 0 ? "no call has run yet" : crowded;
    if (r.reason.empty()) r.reason = "it is being recorded: two recordings must agree first";
  }
  return r;
}

CompiledFunction::CompiledFunction(std::shared_ptr<torch::nn::Module> module, Options options) {
  check_options(options);
  impl_ = std::make_shared<Impl>(std::move(module), std::move(options));
}
Flat CompiledFunction::run(const Callee& callee, const Inputs& inputs) { return impl_->run(callee, inputs); }
Report CompiledFunction::report() const { return impl_->report(); }

}  // namespace detail
}  // namespace tandem
