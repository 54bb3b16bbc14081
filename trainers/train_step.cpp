#include "autograd/key.h"
#include "tandem/tandem.h"
#include "trainers/entry.h"

#include <fmt/format.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <list>

namespace tandem {
namespace {

constexpr int measured_runs = 8;
constexpr const char* crowded =
    "more combinations of shapes and flags come in turn than Options::max_plans keeps, expected fewer: this one runs eager";
thread_local bool step_is_running = false;

struct RunningScope {
  RunningScope() {
    if (step_is_running) throw Error("step: expected one step at a time on a thread, found a step called inside another");
    step_is_running = true;
  }
  ~RunningScope() { step_is_running = false; }
};

}  // namespace

struct TrainStep::Impl {
  Impl(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer, std::vector<detail::LossFunction> l, Options o)
      : options(std::move(o)), loss(std::move(l)), world(std::move(model), optimizer), runner(world, loss, options),
        lbfgs(dynamic_cast<torch::optim::LBFGS*>(&optimizer)), update_recorded(world.formula() != nullptr) {
    if (lbfgs && options.accumulate > 1)
      throw Error("Options::accumulate: expected 1 with LBFGS, which evaluates the loss several times per step");
    if (auto refusal = options.compile ? claim_key() : std::string("Options::compile is off"); !refusal.empty()) off = refusal;
  }

  StepResult run(const detail::Inputs& inputs);
  void check_inputs(const detail::Inputs& inputs) const;
  StepResult run_part(const detail::Inputs& inputs, const StepKind& kind);
  StepResult run_lbfgs(const detail::Inputs& inputs, const StepKind& kind);
  bool drops_gradients(const StepKind& kind) const { return kind.first_micro && options.zero_grad_to_none; }
  Signature signature_of(const World::Present& present, const StepKind& kind);
  std::string unsupported(const Signature& signature) const;
  bool make_room();
  Entry* entry_for(const Signature& signature);
  StepResult run_plain(const detail::Inputs& inputs, const StepKind& kind);
  bool run_plan(Entry& entry, const World::Present& present, const StepKind& kind, StepResult& result);
  StepResult run_recorded(Entry& entry, const detail::Inputs& inputs, const StepKind& kind);
  void take_snapshot(Entry& entry, const detail::Inputs& inputs, RecordedStep& step) const;
  void adopt_leaves(Recorder& recorder, EagerResult& eager);
  void finish_recording(Recorder& recorder, EagerResult& eager, const StepKind& kind, const std::vector<ValueId>& before,
                        const std::vector<Number>& numbers, RecordedStep& step);
  void update_alone();
  Report report() const;

  Options options;
  std::vector<detail::LossFunction> loss;
  World world;
  EagerStepRunner runner;
  torch::optim::LBFGS* lbfgs;
  bool update_recorded;
  std::string off;  // why nothing is recorded at all
  std::list<Entry> entries;
  Entry* latest = nullptr;
  std::int64_t next_id = 1, micro = 0;
  int adoptions = 0;
  std::int64_t pushed_out = 0;  // entries that went before they came to a plan
  Journal journal;
};

void TrainStep::Impl::check_inputs(const detail::Inputs& inputs) const {
  if (inputs.size() >= loss.size() || !loss[inputs.size()]) {
    std::string accepted;
    for (std::size_t n = 0; n < loss.size(); n++)
      if (loss[n]) accepted += (accepted.empty() ? "" : " or ") + std::to_string(n);
    throw Error(fmt::format("step: expected {} input tensors as the loss function takes, found {}", accepted, inputs.size()));
  }
  for (std::size_t i = 0; i < inputs.size(); i++)
    if (!inputs[i].defined()) throw Error(fmt::format("step: expected defined tensors, found an undefined one as input {}", i));
}

StepResult TrainStep::Impl::run(const detail::Inputs& inputs) {
  check_inputs(inputs);
  RunningScope running;
  Stopwatch watch;
  journal.next_step();
  world.refresh();
  const StepKind kind{micro == 0, micro + 1 == options.accumulate, update_recorded};
  auto result = lbfgs ? run_lbfgs(inputs, kind) : run_part(inputs, kind);
  result.updated = kind.updates;
  if (kind.updates) runner.drop_gradients();
  micro = kind.updates ? 0 : micro + 1;
  const auto ms = watch.ms();
  if (journal.steps == 1) journal.first_step_ms = ms;
  result.compiled ? journal.compiled_time(ms) : void();
  (result.compiled ? journal.compiled_steps : journal.eager_steps)++;
  return result;
}

StepResult TrainStep::Impl::run_lbfgs(const detail::Inputs& inputs, const StepKind& kind) {
  std::optional<StepResult> first;
  lbfgs->step([&] {
    auto part = run_part(inputs, kind);
    auto loss_value = part.loss;
    if (!first) first = std::move(part);
    return loss_value;
  });
  return *first;
}

Signature TrainStep::Impl::signature_of(const World::Present& present, const StepKind& kind) {
  Tensors tensors{*present.inputs, world.leaves(), world.buffers(), {}, {}};
  for (const auto& state : present.state) tensors.state.push_back(state.tensor);
  for (std::size_t i = 0; i < world.leaves().size(); i++) tensors.gradients.push_back(world.gradient(i, drops_gradients(kind)));
  auto s = observe(tensors);
  s.training = world.training();
  s.first_micro = kind.first_micro;
  s.updates = kind.updates;
  if (kind.updates && kind.update_recorded) s.optimizer = world.formula()->variant();
  return s;
}

/// One sentence about a step that no plan can stand for, whatever the loss function does.
std::string TrainStep::Impl::unsupported(const Signature& s) const {
  for (std::size_t i = 0; i < s.hooked.size(); i++)
    if (s.hooked[i])
      return "parameter '" + world.leaves()[i].name + "' has a gradient hook, expected none: hooks run host code that a plan would skip";
  for (std::size_t i = 0; i < s.inputs.size(); i++) {
    if (s.inputs[i].requires_grad)
      return fmt::format("input {} requires grad, expected inputs that do not: its gradient would belong to another tensor in each step",
                         i);
    if (s.inputs[i].zero) return fmt::format("input {} is a zero tensor without memory, expected one with memory", i);
    if (s.inputs[i].number) return fmt::format("input {} is a wrapped number, expected a tensor: recorded numbers are constants", i);
  }
  if (s.autocast) return "autocast is on, expected off: its weight cache lives on the host";
  if (s.inference_mode || !s.grad_mode) return "grad mode is off, expected on";
  if (s.anomaly) return "autograd's anomaly mode is on, expected off: it looks at every gradient on the host";
  return "";
}

/// False when more signatures come in turn than plans are kept: they would push each other out before their second recording, for ever.
bool TrainStep::Impl::make_room() {
  constexpr std::int64_t patience = 1000;  // steps
  if (std::int64_t(entries.size()) < options.max_plans) return true;
  const auto oldest = std::min_element(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  if (pushed_out >= 2 * options.max_plans && journal.steps - oldest->used < patience) return false;
  pushed_out += oldest->state == Entry::State::recording;
  journal.say("evicted",
              fmt::format("plan {} for {}: {} plans are kept at most", oldest->report.id, oldest->report.guard, options.max_plans));
  if (latest == &*oldest) latest = nullptr;
  entries.erase(oldest);
  return true;
}

/// Where this signature's plan is or will be; nullptr when there is no room for one.
Entry* TrainStep::Impl::entry_for(const Signature& signature) {
  for (auto& e : entries)
    if (e.signature == signature) return &e;
  const bool again = std::any_of(entries.begin(), entries.end(), [](const Entry& e) { return e.state == Entry::State::active; });
  if (again && latest) {
    journal.recompiles++;
    journal.say("recompile", "no plan fits: " + difference(latest->signature, signature, world.leaves(), world.buffers()));
  }
  if (!make_room()) return nullptr;
  entries.emplace_back();
  auto& e = entries.back();
  e.signature = signature;
  e.report.id = next_id++;
  e.report.guard = describe(signature);
  if (auto why = unsupported(signature); !why.empty()) e.stay_eager(why);
  return &e;
}

StepResult TrainStep::Impl::run_plain(const detail::Inputs& inputs, const StepKind& kind) {
  Stopwatch watch;
  auto eager = runner.run(inputs, kind, nullptr, {});
  journal.eager_time(watch.ms());
  if (kind.updates && !kind.update_recorded) update_alone();
  return {eager.loss, eager.outputs, eager.grad_norm, false, false};
}

void TrainStep::Impl::update_alone() {
  if (!lbfgs) world.optimizer().step();
}

StepResult TrainStep::Impl::run_part(const detail::Inputs& inputs, const StepKind& kind) {
  if (!off.empty()) return run_plain(inputs, kind);
  const auto present = world.present(inputs);
  auto* found = entry_for(signature_of(present, kind));
  if (!found) {
    latest = nullptr;
    return run_plain(inputs, kind);
  }
  auto& entry = *found;
  entry.used = journal.steps;
  latest = &entry;
  if (entry.state == Entry::State::eager) return run_plain(inputs, kind);
  StepResult result;
  if (entry.state == Entry::State::active && ++entry.since_shadow < options.shadow_every && run_plan(entry, present, kind, result))
    return result;
  return run_recorded(entry, inputs, kind);
}

bool TrainStep::Impl::run_plan(Entry& entry, const World::Present& present, const StepKind& kind, StepResult& result) {
  if (auto why = entry.step->bind(world, present); !why.empty()) {
    journal.say("fallback", why);
    return false;
  }
  const bool measure = entry.measured_runs < measured_runs;
  entry.step->executor().time_calls(measure);
  result = entry.step->run(world, runner, present, kind, options.zero_grad_to_none);
  entry.measured_runs += measure;
  entry.report.steps++;
  if (kind.updates && !kind.update_recorded) update_alone();
  return true;
}

/// Private copies of what the step will write, as far as the recording before tells.
void TrainStep::Impl::take_snapshot(Entry& entry, const detail::Inputs& inputs, RecordedStep& step) const {
  if (!entry.last) return;
  RunInputs live;
  if (!bind_outside(entry.last->recording.graph, entry.last->outside, world, world.present(inputs), live).empty()) return;
  step.eager.before = private_copy(entry.last->recording.graph, live);
  for (const auto& b : live.storages) step.eager.after.push_back(b.storage);
  step.eager.generator_before = generator_state();
  step.has_snapshot = true;
}

StepResult TrainStep::Impl::run_recorded(Entry& entry, const detail::Inputs& inputs, const StepKind& kind) {
  const bool shadow = entry.state == Entry::State::active;
  Stopwatch watch;
  RecordedStep step;
  if (!shadow) take_snapshot(entry, inputs, step);
  const auto known = world.known(inputs, drops_gradients(kind));
  const auto versions = versions_of(known);
  step.outside.input_start = starts_of(inputs);

  EagerResult eager;
  {
    Recorder recorder(known, /*audit=*/!shadow);
    std::vector<ValueId> before;
    std::vector<Number> numbers;
    eager = runner.run(inputs, kind, &recorder, [&] {
      std::vector<char> has(world.leaves().size());
      for (std::size_t i = 0; i < has.size(); i++) {
        const auto& g = world.leaves()[i].tensor.grad();
        has[i] = g.defined();
        before.push_back(recorder.value_of(g, "the gradient of '" + world.leaves()[i].name + "'"));
        if (step.has_snapshot && g.defined()) step.eager.gradients.push_back(g.detach().clone());
      }
      step.has_grad = world.has_grad(has);
      if (kind.updates && kind.update_recorded) numbers = world.formula()->numbers(step.has_grad);
    });
    finish_recording(recorder, eager, kind, before, numbers, step);
  }
  step.outside.versions = version_deltas(known, versions);
  step.outside.captured = step.recording.captured;
  entry.report.record_ms += watch.ms();
  if (shadow)
    compare_shadow(entry, step, journal);
  else
    settle(entry, std::move(step), options, journal);
  if (kind.updates && !kind.update_recorded) update_alone();
  return {eager.loss, eager.outputs, eager.grad_norm, false, false};
}

/// A leaf that outlives the step and is on nobody's list is known from now on. One that the step itself made goes with the step.
void TrainStep::Impl::adopt_leaves(Recorder& recorder, EagerResult& eager) {
  constexpr int enough = 3;
  auto leaves = std::move(eager.look.leaves);
  bool adopted = false;
  for (const auto& leaf : leaves) adopted |= leaf.use_count() > 1 && world.add_leaf(leaf);
  if (!adopted) return;
  recorder.refuse("the loss depends on a leaf that neither the model nor the optimizer lists: it is known from the next step on");
  if (++adoptions > enough) off = "the loss depends on a new leaf tensor in each step that outlives the step, expected the same leaves";
}

void TrainStep::Impl::finish_recording(Recorder& recorder, EagerResult& eager, const StepKind& kind, const std::vector<ValueId>& before,
                                       const std::vector<Number>& numbers, RecordedStep& step) {
  auto& graph = recorder.graph();
  graph.loss = recorder.value_of(eager.loss, "the loss");
  for (const auto& t : eager.outputs) graph.outputs.push_back(recorder.value_of(t, "an output of the loss function"));
  graph.grad_norm = recorder.value_of(eager.grad_norm, "the gradient norm");
  const bool dropped = kind.updates && kind.update_recorded && !runner.keeps_gradients();
  for (std::size_t i = 0; i < before.size(); i++) {
    const auto& leaf = world.leaves()[i];
    if (before[i] < 0) continue;
    const bool goes = dropped && i < world.optimizer_leaves();
    graph.gradients.push_back({std::int32_t(i), leaf.name, goes ? -1 : recorder.value_of(leaf.tensor.grad(), "a gradient"), before[i]});
    if (step.has_snapshot) step.eager.kept.push_back(goes ? at::Tensor() : leaf.tensor.grad());
  }
  adopt_leaves(recorder, eager);
  if (!eager.look.refusal.empty()) {
    recorder.refuse(eager.look.refusal);
    step.final_refusal = true;
  }
  step.recording = recorder.finish();
  auto& recording = step.recording;
  step.eager.loss = eager.loss;
  step.eager.outputs = eager.outputs;
  step.eager.grad_norm = eager.grad_norm;
  if (step.has_snapshot) step.eager.generator_after = generator_state();
  if (!recording.refusal.empty()) return;
  for (const auto& n : numbers) step.eager.before.scalars.push_back(n.value);
  if (kind.updates && kind.update_recorded)
    if (auto why = bind_numbers(recording.graph, recording.first_update, numbers); !why.empty()) {
      update_recorded = false;  // from the next step on the optimizer runs eager behind the plan
      journal.say("fallback", "the optimizer's update is not the one that is known, it runs eager behind the plan: " + why);
      recording.refusal = why;
      return;
    }
  std::vector<c10::StorageImpl*> exempt;
  auto spare = [&](const at::Tensor& t) {
    if (t.defined() && t.has_storage()) exempt.push_back(t.storage().unsafeGetStorageImpl());
  };
  spare(eager.loss);
  spare(eager.grad_norm);
  for (const auto& t : eager.outputs) spare(t);
  for (const auto& l : world.leaves()) spare(l.tensor.grad());
  for (const auto& s : world.present({}).state) spare(s.tensor);
  recording.refusal = escaped(recording, exempt);
}

namespace {
void add_times(CompiledStep& step, PlanReport& report) {
  const auto& plan = step.plan();
  const auto& us = step.executor().shortest_us();
  for (std::size_t k = 0; k < us.size(); k++) {
    if (!std::isfinite(us[k])) continue;
    const auto side = plan.graph.nodes[step.executor().index().nodes[k].front()].side;
    report.nodes.push_back({describe_call(plan, k), name_of(side), us[k]});
  }
}
}  // namespace

Report TrainStep::Impl::report() const {
  Report r;
  journal.fill(r);
  auto& w = const_cast<World&>(world);
  r.optimizer = w.formula() ? w.formula()->name() + (update_recorded ? ", its update is part of the plan" : ", eager behind the plan")
                            : "unknown to Tandem, eager behind the plan";
  if (lbfgs) r.optimizer = "LBFGS, eager behind the plan";
  for (const auto& e : entries) {
    // Step 1, in which the optimizer makes its state, is a path of its own and comes once: no plan to speak of.
    if (e.state == Entry::State::recording && e.recordings <= 1 && e.refusals == 0 && &e != latest) continue;
    r.plans.push_back(e.report);
    auto& p = r.plans.back();
    p.active = e.state == Entry::State::active;
    p.reason = e.state == Entry::State::recording && e.reason.empty() ? "it is being recorded: two recordings must agree first" : e.reason;
    if (!e.step) continue;
    add_times(*e.step, p);
  }
  r.active = off.empty() && latest && latest->state == Entry::State::active;
  if (!r.active) {
    r.reason = !off.empty() ? off : latest ? latest->reason : r.steps == 0 ? "no step has run yet" : crowded;
    if (r.reason.empty()) r.reason = "it is being recorded: two recordings must agree first";
  }
  return r;
}

TrainStep::TrainStep(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer, std::vector<detail::LossFunction> loss,
                     Options options) {
  check_options(options);
  if (!model) throw Error("TrainStep: expected a module, found an empty holder");
  impl_ = std::make_unique<Impl>(std::move(model), optimizer, std::move(loss), std::move(options));
}
TrainStep::TrainStep(TrainStep&&) noexcept = default;
TrainStep& TrainStep::operator=(TrainStep&&) noexcept = default;
TrainStep::~TrainStep() = default;

StepResult TrainStep::run(const detail::Inputs& inputs) { return impl_->run(inputs); }

bool TrainStep::flush() {
  auto& i = *impl_;
  if (i.micro == 0) return false;
  RunningScope running;
  i.world.refresh();
  i.runner.clip();
  i.world.optimizer().step();
  i.runner.drop_gradients();
  i.micro = 0;
  return true;
}

Report TrainStep::report() const { return impl_->report(); }

const char* version() { return TANDEM_VERSION; }

}  // namespace tandem
