#include "autograd/key.h"
#include "autograd/placeholder.h"
#include "runtime/undo.h"
#include "tandem/tandem.h"
#include "trainers/step_object.h"

#include <fmt/format.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <new>

namespace tandem {
namespace {

constexpr int measured_runs = 8;
thread_local bool step_is_running = false;

}  // namespace

TrainStep::Impl::Running::Running(Impl& step) : step_(step) {
  if (step_is_running) throw Error("step: expected one step at a time on a thread, found a step called inside another");
  if (step_.busy.exchange(true)) throw Error("step: expected one thread at a time in a step object, found another one inside");
  step_is_running = true;
  lock_ = std::unique_lock(step_.reporting);
}
TrainStep::Impl::Running::~Running() {
  step_is_running = false;
  step_.busy = false;
}

TrainStep::Impl::Impl(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer* optimizer, std::vector<detail::LossFunction> l,
                      Options o)
    : options(std::move(o)), loss(std::move(l)), whole(!optimizer), world(std::move(model), optimizer), runner(world, loss, options, whole),
      lbfgs(dynamic_cast<torch::optim::LBFGS*>(optimizer)), update_recorded(!whole && !lbfgs) {
  if (lbfgs && options.accumulate > 1)
    throw Error("Options::accumulate: expected 1 with LBFGS, which evaluates the loss several times per step");
  if (options.replay == Replay::trusted) update_recorded &= world.formula() != nullptr;
  if (auto refusal = options.compile ? claim_key() : std::string("Options::compile is off"); !refusal.empty()) off = refusal;
}

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
  const Running running(*this);
  Stopwatch watch;
  journal.next_step();
  world.refresh();
  const StepKind kind{micro == 0, micro + 1 == options.accumulate && !whole, update_recorded};
  auto result = lbfgs ? run_lbfgs(inputs, kind) : run_part(inputs, kind);
  result.updated = kind.updates || whole;
  if (kind.updates) runner.drop_gradients();
  micro = kind.updates || whole ? 0 : micro + 1;
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

bool TrainStep::Impl::flush() {
  if (micro == 0) return false;
  const Running running(*this);
  world.refresh();
  runner.clip();
  world.optimizer().step();
  runner.drop_gradients();
  micro = 0;
  return true;
}

void TrainStep::Impl::update_alone() {
  if (!lbfgs) world.optimizer().step();
}

StepResult TrainStep::Impl::run_plain(const detail::Inputs& inputs, const StepKind& kind) {
  Stopwatch watch;
  auto eager = runner.run(inputs, kind, nullptr);
  journal.eager_time(watch.ms());
  if (kind.updates && !kind.update_recorded) update_alone();
  return {eager.loss, eager.outputs, eager.grad_norm, false, false};
}

StepResult TrainStep::Impl::run_part(const detail::Inputs& inputs, const StepKind& kind) {
  if (!off.empty()) return run_plain(inputs, kind);
  Stopwatch guards;
  const auto present = world.present(inputs);
  auto* entry = entry_for(signature_of(present, kind));
  latest = entry;
  latest_path = nullptr;
  if (!entry) return run_plain(inputs, kind);
  entry->used = journal.steps;
  if (!entry->eager_reason.empty()) return run_plain(inputs, kind);
  entry->drop_outdated();
  const auto active = entry->active();
  if (active.empty() || entry->records(journal.steps)) return run_recorded(*entry, present, kind, nullptr);
  auto& likeliest = *active.front();
  likeliest.guard_us.add(guards.ms() * 1000);
  if (likeliest.shadow_is_due()) return run_recorded(*entry, present, kind, &likeliest);
  return likeliest.step->level() == CompiledStep::Level::trusted ? run_trusted(*entry, present, kind, likeliest)
                                                                 : run_replayed(*entry, present, kind, active);
}

StepResult TrainStep::Impl::run_recorded(Entry& entry, const World::Present& present, const StepKind& kind, Path* shadowed) {
  RecordingWatch watch(world, runner, present, kind, drops_gradients(kind), whole);
  if (options.fullgraph) watch.fullgraph();
  if (options.replay != Replay::trusted) watch.expect_pointers(entry.pointers);
  watch.record(/*audit=*/!shadowed, entry.recorded());
  auto eager = runner.run(*present.inputs, kind, &watch);
  return take_recording(entry, watch, eager, kind, shadowed);
}

StepResult TrainStep::Impl::take_recording(Entry& entry, RecordingWatch& watch, EagerResult& eager, const StepKind& kind, Path* shadowed) {
  adopt_leaves(*watch.recorder(), eager);
  const auto numbers = watch.numbers();
  auto step = watch.finish(eager);
  const auto ms = watch.ms();
  StepResult result{eager.loss, eager.outputs, eager.grad_norm, false, false};
  name_numbers(step, numbers, kind);
  latest_path = settle(entry, std::move(step), options, journal, next_id, shadowed);
  if (latest_path) {
    entry.note_recorded(*latest_path, journal.steps);
    latest_path->report.record_ms += ms;
  }
  if (entry.active().empty() && !world.formula() && kind.update_recorded && entry.failed()) {
    update_recorded = false;
    journal.say("fallback", "the optimizer's update cannot be replayed, it runs eager behind the plan: " + entry.why());
  }
  if (kind.updates && !kind.update_recorded) update_alone();
  return result;
}

/// Refuses what a plan cannot do; gives the numbers of a known optimizer's update their names.
void TrainStep::Impl::name_numbers(RecordedStep& step, const std::vector<Number>& numbers, const StepKind& kind) {
  auto& recording = step.recording;
  if (!recording.refusal.empty() || !kind.updates || !kind.update_recorded || !world.formula()) return;
  auto why = bind_numbers(recording.graph, recording.first_update, numbers);
  if (why.empty()) return;
  update_recorded = false;  // from the next step on the optimizer runs eager behind the plan
  journal.say("fallback", "the optimizer's update is not the one that is known, it runs eager behind the plan: " + why);
  recording.refusal = why;
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

StepResult TrainStep::Impl::run_trusted(Entry& entry, const World::Present& present, const StepKind& kind, Path& path) {
  const StepContext step{world, runner, present, kind, options.zero_grad_to_none, nullptr, {}};
  if (auto why = path.step->bind(step); !why.empty()) {
    journal.say("fallback", why);
    return run_recorded(entry, present, kind, nullptr);
  }
  return run_plan(entry, path, step);
}

StepResult TrainStep::Impl::run_plan(Entry& entry, Path& path, const StepContext& step) {
  const bool measure = path.measured_runs < measured_runs;
  for (std::size_t i = 0; i < path.step->chain().size(); i++) path.step->chain().executor(i).time_calls(measure);
  StepResult result;
  const bool delivers = !step.replay || path.step->delivers(step.replay->held());
  try {
    result = delivers ? path.step->run(step) : path.step->run_nodes(step);
  } catch (const std::exception& e) {
    entry.note_failure(path, e, path.step->failed_by_itself(), journal);
    throw;
  }
  path.measured_runs += measure;
  path.report.steps++;
  path.used = journal.steps;
  latest_path = &path;
  if (!delivers) {
    entry.record_at = journal.steps + 1;
    entry.note_kept(path, "step", journal);
  }
  if (step.kind.updates && !step.kind.update_recorded) update_alone();
  return result;
}

/// What the host has done cannot be done twice, and it cannot go on without the data: the step ends where eager would stand.
Error TrainStep::Impl::raw_read(Entry& entry, Path& path, const Replayer& replayer) {
  const std::string why =
      "the step reads the memory of a tensor (data_ptr, accessor) that it has computed itself, expected ops, item() or to()";
  const std::string then =
      entry.guess(path, replayer.latest_made(), why) ? "a plan is cut there from now on" : "the steps that follow run eager";
  journal.say("refused", why + ": " + then);
  return Error("step: " + why + "; it ended there, " + then);
}

/// Raw memory access cannot be resumed: the closure is called once more.
StepResult TrainStep::Impl::rerun(Entry& entry, const World::Present& present, const StepKind& kind, Path& path, const Replayer& replayer) {
  const std::string why =
      "the closure reads the memory of a tensor of this step (data_ptr, accessor, printing), which has not been computed";
  const bool again = entry.guess(path, replayer.latest_made(), why);
  journal.say("rerun", why + ": it was called a second time, eager, and " + (again ? "a plan is cut there from now on" : "stays eager"));
  for (std::size_t i = 0; i < world.leaves().size(); i++)  // a backward may have begun
    if (!entry.signature.gradients[i].defined) world.leaves()[i].tensor.mutable_grad().reset();
  return run_plain(*present.inputs, kind);
}

StepResult TrainStep::Impl::run_replayed(Entry& entry, const World::Present& present, const StepKind& kind,
                                         const std::vector<Path*>& active) {
  RunInputs known;
  if (auto why = active.front()->step->bind_known(world, present, known); !why.empty()) {
    journal.say("fallback", why);
    return run_recorded(entry, present, kind, nullptr);
  }
  Stopwatch host;
  Undo undo;
  ReplayWatch watch(world, runner, present, kind, drops_gradients(kind), whole);
  if (options.fail_on_recompile) watch.fail_on_recompile();
  if (options.fullgraph) watch.fullgraph();
  if (options.replay != Replay::trusted) watch.expect_pointers(entry.pointers);
  StepContext step{world, runner, present, kind, options.zero_grad_to_none, nullptr, watch.versions()};
  watch.replay(
      active, entry.recorded(),
      [&](Path& path) {
        const auto why = path.step->bind(step);
        if (!why.empty()) journal.say("fallback", why);
        return why.empty();
      },
      [&](Path& path, std::size_t first, std::size_t last) {
        if (watch.may_start_over()) undo.keep(path.step->tape(), first, last, watch.replayer().inputs());
        path.step->run_parts(step, first, last);
      });
  step.replay = &watch.replayer();
  EagerResult eager;
  try {
    eager = runner.run(*present.inputs, kind, &watch);
    if (!eager.stopped) watch.step_returned(eager);
    eager.look = {};  // leaves that the step has made go with it
  } catch (const std::exception& e) {
    if (watch.replayer().failed()) entry.note_failure(watch.path(), e, watch.path().step->failed_by_itself(), journal);
    if (watch.replayer().diverged() || watch.replayer().failed() || watch.refused()) throw;
    watch.replayer().unveil();
    if (is_placeholder_read(e) && watch.may_start_over() && undo.take_back()) {
      watch.path().step->take_back_versions(step);
      return rerun(entry, present, kind, watch.path(), watch.replayer());
    }
    const bool raw = is_placeholder_read(e);
    watch.replayer().diverge("the step threw");
    if (raw) throw raw_read(entry, watch.path(), watch.replayer());
    throw;
  }
  if (watch.replayer().diverged()) {
    entry.late = watch.replayer().parts_run() > 0;
    return take_recording(entry, watch, eager, kind, nullptr);
  }
  auto& path = watch.path();
  path.replay_us.add(host.ms() * 1000);
  if (path.step->level() == CompiledStep::Level::full && kind.updates && kind.update_recorded) runner.drop_gradients();
  auto result = run_plan(entry, path, step);
  if (!eager.stopped) {
    result.loss = eager.loss;
    result.outputs = eager.outputs;
    result.grad_norm = eager.grad_norm;
  }
  return result;
}

TrainStep::TrainStep(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer, std::vector<detail::LossFunction> loss,
                     Options options) {
  check_options(options);
  if (!model) throw Error("TrainStep: expected a module, found an empty holder");
  impl_ = std::make_unique<Impl>(std::move(model), &optimizer, std::move(loss), std::move(options));
}
TrainStep::TrainStep(std::vector<detail::LossFunction> body, Options options) {
  check_options(options);
  check_body_options(options);
  impl_ = std::make_unique<Impl>(nullptr, nullptr, std::move(body), std::move(options));
}
TrainStep::TrainStep(TrainStep&&) noexcept = default;
TrainStep& TrainStep::operator=(TrainStep&&) noexcept = default;
TrainStep::~TrainStep() = default;

StepResult TrainStep::run(const detail::Inputs& inputs) { return impl_->run(inputs); }
bool TrainStep::flush() { return impl_->flush(); }
Report TrainStep::report() const {
  const std::lock_guard lock(impl_->reporting);
  return impl_->report();
}

const char* version() { return TANDEM_VERSION; }

}  // namespace tandem
