#include "tandem/compile.h"

#include "autograd/key.h"
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
constexpr const char* being_recorded = "it is being recorded: two recordings must agree first";
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
  Signature signature_of(const Inputs& inputs);
  static std::string unsupported(const Signature& signature, const Inputs& inputs);
  bool make_room();
  CallEntry* entry_for(const Signature& signature, const Inputs& inputs);
  RecordRequest request_for(CallEntry& entry, const Callee& callee, const Inputs& inputs);
  Flat run_plain(const Callee& callee, const Inputs& inputs, const Stopwatch& watch, std::unique_lock<std::recursive_mutex>& lock);
  Flat run_recorded(CallEntry& entry, const Callee& callee, const Inputs& inputs, CallPath* shadowed);
  Flat run_replayed(CallEntry& entry, const Callee& callee, const Inputs& inputs, const std::vector<CallPath*>& active);
  Flat run_trusted(CallEntry& entry, const Callee& callee, const Inputs& inputs, CallPath& path);
  Flat run_plan(CallPath& path, CallRun& run, Replayer* replay);
  CallPath* take_recording(CallEntry& entry, RecordedCall call, CallPath* shadowed);
  void turn_aside(CallEntry& entry, CallReplay& replay, Flat& out);
  Report report();

  Options options;
  std::shared_ptr<ModuleTensors> world;
  std::shared_ptr<std::recursive_mutex> mutex = std::make_shared<std::recursive_mutex>();
  std::string off;  // why nothing is recorded at all
  std::list<CallEntry> entries;
  std::vector<char> hooked;  // per leaf, when the latest call began
  CallEntry* latest = nullptr;
  CallPath* latest_path = nullptr;
  std::int64_t next_id = 1;
  std::int64_t pushed_out = 0;  // entries that went before they came to a plan
  Journal journal;
};

Signature CompiledFunction::Impl::signature_of(const Inputs& inputs) {
  auto s = observe({inputs, world->leaves(), world->buffers(), {}, {}});
  hooked = std::exchange(s.hooked, {});  // hooks on parameters are autograd's business, behind the edge
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
  pushed_out += !oldest->has_active() && oldest->eager_reason.empty();
  journal.say("evicted", fmt::format("plan {} for {}: {} plans are kept at most", oldest->id, oldest->guard, options.max_plans));
  if (latest == &*oldest) latest = nullptr;
  for (const auto& p : oldest->paths)
    if (latest_path == &p) latest_path = nullptr;
  entries.erase(oldest);
  return true;
}

/// Where this signature's plan is or will be; nullptr when there is no room for one.
CallEntry* CompiledFunction::Impl::entry_for(const Signature& signature, const Inputs& inputs) {
  for (auto& e : entries)
    if (e.signature == signature) return &e;
  const bool again = std::any_of(entries.begin(), entries.end(), [](const auto& e) { return e.has_active(); });
  if (again && latest) {
    const auto why = "no plan fits: " + difference(latest->signature, signature, world->leaves(), world->buffers());
    if (options.fail_on_recompile) throw Error("Options::fail_on_recompile: expected a call that a plan fits, found none: " + why);
    journal.recompiles++;
    journal.say("recompile", why);
  }
  if (!make_room()) return nullptr;
  auto& e = entries.emplace_back();
  e.signature = signature;
  e.id = next_id++;
  e.guard = describe(signature);
  if (!signature.grad_mode || signature.inference_mode) e.guard += " (inference)";
  e.eager_reason = unsupported(signature, inputs);
  return &e;
}

Flat CompiledFunction::Impl::run(const Callee& callee, const Inputs& inputs) {
  if (is_recorded()) return callee(inputs);
  std::unique_lock lock(*mutex);
  Stopwatch watch;
  journal.next_step();
  latest_path = nullptr;
  CallEntry* entry = nullptr;
  if (off.empty()) {
    world->refresh();
    entry = entry_for(signature_of(inputs), inputs);
    latest = entry;
  }
  if (entry) {
    entry->used = journal.steps;
    for (auto& p : entry->paths) learn(p, options, journal);
  }
  if (!entry || !entry->eager_reason.empty()) return run_plain(callee, inputs, watch, lock);
  entry->drop_outdated();
  const auto active = entry->active();
  const auto compiled = journal.compiled_steps;
  Flat out;
  if (active.empty() || entry->records(journal.steps)) {
    out = run_recorded(*entry, callee, inputs, nullptr);
  } else if (active.front()->shadow_is_due()) {
    out = run_recorded(*entry, callee, inputs, active.front());
  } else {
    out = options.replay == Replay::trusted ? run_trusted(*entry, callee, inputs, *active.front())
                                            : run_replayed(*entry, callee, inputs, active);
  }
  if (journal.compiled_steps > compiled)
    journal.compiled_time(watch.ms());
  else
    journal.eager_steps++;
  if (journal.steps == 1) journal.first_step_ms = watch.ms();
  return out;
}

Flat CompiledFunction::Impl::run_plain(const Callee& callee, const Inputs& inputs, const Stopwatch& watch,
                                       std::unique_lock<std::recursive_mutex>& lock) {
  journal.eager_steps++;
  lock.unlock();
  auto out = callee(inputs);
  lock.lock();
  if (journal.steps == 1) journal.first_step_ms = watch.ms();
  journal.eager_time(watch.ms());
  return out;
}

RecordRequest CompiledFunction::Impl::request_for(CallEntry& entry, const Callee& callee, const Inputs& inputs) {
  auto wanted = [&entry](const Graph& forward) {
    for (const auto& p : entry.paths)
      if (starts_as(p, forward)) {
        std::vector<TangentKey> keys = p.wanted;
        if (p.plan && keys.empty())
          for (const auto& b : p.plan->backwards()) keys.push_back(b.key);
        return keys;
      }
    return std::vector<TangentKey>();
  };
  const bool called = options.replay != Replay::trusted;
  return {callee, *world, inputs, hooked, std::move(wanted), entry.recorded(), called ? &entry.pointers : nullptr, options.fullgraph,
          called};
}

Flat CompiledFunction::Impl::run_recorded(CallEntry& entry, const Callee& callee, const Inputs& inputs, CallPath* shadowed) {
  const auto request = request_for(entry, callee, inputs);
  Stopwatch watch;
  RecordedCall call;
  auto out = record_call(request, /*audit=*/!shadowed, /*data=*/!entry.paths.empty(), call);
  if (auto* path = take_recording(entry, std::move(call), shadowed)) path->report.record_ms += watch.ms();
  return out;
}

CallPath* CompiledFunction::Impl::take_recording(CallEntry& entry, RecordedCall call, CallPath* shadowed) {
  constexpr std::size_t most = 4;
  auto observed = call.observed;
  latest_path = settle(entry, std::move(call), options, journal, next_id, shadowed);
  if (!latest_path) return nullptr;
  entry.note_recorded(*latest_path, journal.steps);
  auto& all = latest_path->observed;  // the first is the plan's own
  if (all.size() > most) all.erase(all.begin() + 1);
  if (observed) all.push_back(std::move(observed));
  return latest_path;
}

/// The function did something else and went on in eager. Where it keeps doing so the check costs more than the plan gains.
void CompiledFunction::Impl::turn_aside(CallEntry& entry, CallReplay& replay, Flat& out) {
  constexpr std::int64_t patience = 8;
  if (replay.raw()) {
    const bool cut = entry.guess(replay.path(), replay.replayer().latest_made(), replay.why() + ", and stays eager");
    journal.say("rerun", replay.why() + (cut ? ", and a plan is cut there from now on" : ", and stays eager"));
    return;
  }
  if (entry.diverged++ == 0) journal.say("path", "the call ran eager: " + replay.why());
  entry.late = replay.replayer().parts_run() > 0;
  take_recording(entry, replay.take_recording(out), nullptr);
  if (entry.diverged < patience || entry.diverged <= entry.followed) return;
  entry.eager_reason = "most calls are not what was recorded: " + replay.why();
  journal.say("retired", entry.eager_reason);
  for (auto& p : entry.paths) p.stay_eager(entry.eager_reason);
}

Flat CompiledFunction::Impl::run_plan(CallPath& path, CallRun& run, Replayer* replay) {
  Flat out;
  out.counts = path.plan->call().counts;
  out.tensors = run.finish(replay);
  run.connect(out.tensors, mutex, path.observed.front());
  path.measured_runs++;
  path.report.steps++;
  path.used = journal.steps;
  latest_path = &path;
  journal.compiled_steps++;
  return out;
}

Flat CompiledFunction::Impl::run_trusted(CallEntry& entry, const Callee& callee, const Inputs& inputs, CallPath& path) {
  CallRun run(callee, world, inputs, path.measured_runs < measured_runs);
  if (auto why = run.bind(path.plan, nullptr); !why.empty()) {
    journal.say("fallback", why);
    return run_recorded(entry, callee, inputs, nullptr);
  }
  try {
    return run_plan(path, run, nullptr);
  } catch (const std::exception& e) {
    entry.note_failure(path, e, run.failed_by_itself(), journal);
    throw;
  }
}

Flat CompiledFunction::Impl::run_replayed(CallEntry& entry, const Callee& callee, const Inputs& inputs,
                                          const std::vector<CallPath*>& active) {
  auto& likeliest = *active.front();
  CallRun run(callee, world, inputs, likeliest.measured_runs < measured_runs);
  RunInputs known;
  if (auto why = run.bind_known(*likeliest.plan, known); !why.empty()) {
    journal.say("fallback", why);
    return run_recorded(entry, callee, inputs, nullptr);
  }
  Stopwatch host;
  const auto request = request_for(entry, callee, inputs);
  CallReplay replay(request, active, std::move(known), run, options.fail_on_recompile);
  Flat out;
  try {
    out = replay.run();
  } catch (const std::exception& e) {
    if (replay.replayer().failed()) entry.note_failure(replay.path(), e, run.failed_by_itself(), journal);
    if (replay.raw()) turn_aside(entry, replay, out);
    throw;
  }
  if (!replay.followed()) {
    turn_aside(entry, replay, out);
    return out;
  }
  auto& path = replay.path();
  path.replay_us.add(host.ms() * 1000);
  const bool keeps = replay.fill_kept();
  if (auto why = run.bind(path.plan, &replay.replayer()); !why.empty()) throw Error(why);
  entry.followed++;
  try {
    out = run_plan(path, run, &replay.replayer());
    if (keeps) entry.note_kept(path, "call", journal);
    return out;
  } catch (const std::exception& e) {
    entry.note_failure(path, e, run.failed_by_itself(), journal);
    throw;
  }
}

namespace {
void add_times(CallPlan& plan, PlanReport& report) {
  for (std::size_t i = 0; i < plan.chain().size(); i++) {
    const auto& part = *plan.chain()[i].plan;
    const auto& us = plan.chain().executor(i).shortest_us();
    for (std::size_t k = 0; k < us.size(); k++)
      if (std::isfinite(us[k])) report.nodes.push_back({describe_call(part, k), i < plan.forwards() ? "forward" : "backward", us[k]});
  }
}
}  // namespace

Report CompiledFunction::Impl::report() {
  const std::lock_guard lock(*mutex);
  for (auto& e : entries)
    for (auto& path : e.paths)
      for (const auto& o : path.observed)
        for (const auto& sentence : o->take_sentences()) journal.say("fallback", sentence);
  Report r;
  journal.fill(r);
  r.optimizer = "none: a function";
  for (const auto& e : entries) {
    for (const auto& path : e.paths) {
      r.plans.push_back(path.report);
      auto& p = r.plans.back();
      p.active = path.state == CallPath::State::active;
      p.reason = path.state == CallPath::State::eager ? path.reason : p.active ? "" : e.reason.empty() ? being_recorded : e.reason;
      p.replay_us = path.replay_us.median();
      if (path.plan) add_times(*path.plan, p);
    }
    if (!e.paths.empty()) continue;
    auto& p = r.plans.emplace_back();
    p.id = e.id;
    p.guard = e.guard;
    p.reason = e.why().empty() ? being_recorded : e.why();
  }
  r.active = off.empty() && latest && latest_path && latest_path->state == CallPath::State::active;
  if (!r.active) {
    r.reason = !off.empty() ? off : latest ? latest->why() : r.steps == 0 ? "no call has run yet" : crowded;
    if (r.reason.empty()) r.reason = being_recorded;
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
