#include "trainers/watch.h"

#include <algorithm>
#include <utility>

namespace tandem {

Path& ReplayWatch::path_of(const Tape& tape) const {
  return **std::find_if(paths_.begin(), paths_.end(), [&](const Path* p) { return &p->step->tape() == &tape; });
}

void ReplayWatch::replay(const std::vector<Path*>& paths, std::vector<const Graph*> like, std::function<bool(Path&)> bind,
                         std::function<void(Path&, std::size_t, std::size_t)> run_parts) {
  paths_ = paths;
  bind_ = std::move(bind);
  like_ = std::move(like);
  std::vector<const Tape*> tapes;
  for (const auto* p : paths) tapes.push_back(&p->step->tape());
  replayer_ = std::make_unique<Replayer>(
      std::move(tapes), [this](const Tape& tape, RunInputs& known) { path_of(tape).step->bind_known(world_, present_, known); },
      [this, run_parts = std::move(run_parts)](const Tape& tape, std::size_t first, std::size_t last) {
        run_parts(path_of(tape), first, last);
      },
      [this](const Tape&, const std::string& why) {
        refused_ = fail_on_recompile_;
        if (refused_) throw Error("Options::fail_on_recompile: expected a step that a plan fits, found another: " + why);
        return make_recorder(/*audit=*/true, replayer_->parts_run() == 0 ? like_ : std::vector<const Graph*>());
      });
}

/// Where all known paths that agree so far need no more of the host than the closure, the plan does the rest.
bool ReplayWatch::closure_returned(std::vector<at::Tensor>& returned, std::uint64_t first_sequence) {
  if (whole_ || replayer_->diverged()) return RecordingWatch::closure_returned(returned, first_sequence);
  std::vector<torch::autograd::Node*> nodes;
  const bool has_loss = !returned.empty() && returned[0].defined() && returned[0].requires_grad();
  const auto autograd = has_loss ? autograd_fingerprint(returned[0], first_sequence, world_.leaf_set(), &nodes) : 0;
  auto fits = [&](const Tape& tape) {
    const auto& recorded = path_of(tape).step->recorded();
    const auto& g = recorded.recording.graph;
    if (path_of(tape).step->level() == CompiledStep::Level::full || !has_loss || autograd != recorded.autograd) return false;
    if (returned.size() != recorded.visible_outputs + 1 || !replayer_->stands_for(returned[0], g.loss)) return false;
    for (std::size_t i = 1; i < returned.size(); i++)
      if (!replayer_->stands_for(returned[i], g.outputs[i - 1])) return false;
    return true;
  };
  step_.autograd = autograd;
  if (replayer_->ends(fits) && bind_(path())) {
    release_saved(nodes);
    returned.clear();
    return true;
  }
  if (path().step->level() == CompiledStep::Level::full) return false;
  replayer_->diverge("the closure returned something else than in the recorded steps, or its backward would run something else");
  return RecordingWatch::closure_returned(returned, first_sequence);
}

void ReplayWatch::before_update() {
  if (replayer_->diverged()) return RecordingWatch::before_update();
  // For a step that leaves the path later.
  const auto& recorded = path().step->recorded();
  step_.has_grad = recorded.has_grad;
  before_.assign(world_.leaves().size(), -1);
  for (const auto& g : recorded.recording.graph.gradients) before_[std::size_t(g.leaf)] = g.before;
  if (kind_.updates && kind_.update_recorded && world_.formula()) numbers_ = world_.formula()->numbers(step_.has_grad);
}

void ReplayWatch::begin_optimizer() {
  updates_ = true;
  RecordingWatch::begin_optimizer();
}

void ReplayWatch::step_returned(const EagerResult& eager) {
  if (replayer_->diverged()) return;
  auto fits = [&](const Tape& tape) {
    const auto& recorded = path_of(tape).step->recorded();
    const auto& g = recorded.recording.graph;
    std::vector<at::Tensor> returned;
    if (g.loss >= 0 || !whole_) returned.push_back(eager.loss);
    if (whole_ && g.loss < 0 && eager.loss.defined()) returned.push_back(eager.loss);
    returned.insert(returned.end(), eager.outputs.begin(), eager.outputs.end());
    std::vector<ValueId> expected;
    if (g.loss >= 0) expected.push_back(g.loss);
    expected.insert(expected.end(), g.outputs.begin(), g.outputs.begin() + std::ptrdiff_t(recorded.visible_outputs));
    if (returned.size() != expected.size()) return false;
    for (std::size_t i = 0; i < returned.size(); i++)
      if (!replayer_->stands_for(returned[i], expected[i])) return false;
    return replayer_->stands_for(eager.grad_norm, g.grad_norm) && path_of(tape).step->level() == CompiledStep::Level::full;
  };
  if (replayer_->ends(fits) && bind_(path())) return;
  replayer_->diverge("the step ended before the last recorded op, or returned something else");
}

}  // namespace tandem
