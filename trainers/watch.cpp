#include "trainers/watch.h"

#include "autograd/slots.h"

#include <algorithm>

namespace tandem {

RecordingWatch::RecordingWatch(World& world, EagerStepRunner& runner, const World::Present& present, const StepKind& kind,
                               bool drops_gradients, bool whole)
    : world_(world), runner_(runner), present_(present), kind_(kind), drops_gradients_(drops_gradients), whole_(whole),
      versions_(world.versions(present, drops_gradients)) {}

std::unique_ptr<Recorder> RecordingWatch::make_recorder(bool audit, const std::vector<const Graph*>& like) {
  known_ = world_.known(*present_.inputs, drops_gradients_);
  input_start_ = starts_of(*present_.inputs);
  auto recorder = std::make_unique<Recorder>(known_, audit);
  if (whole_) recorder->find_sides();
  if (fullgraph_) recorder->forbid_host_reads();
  if (pointers_) recorder->expect_pointers(*pointers_);
  if (!like.empty()) {
    recorder->copy_outside(like);
    step_.has_data = true;
    generator_before_ = generator_state();
  }
  return recorder;
}

void RecordingWatch::record(bool audit, const std::vector<const Graph*>& like) { recorder_ = make_recorder(audit, like); }

void RecordingWatch::set_side(Side side) {
  if (auto* r = recorder()) r->set_side(side);
}

bool RecordingWatch::closure_returned(std::vector<at::Tensor>& returned, std::uint64_t first_sequence) {
  if (auto* r = recorder(); r && !whole_) r->end_forward();
  if (!whole_ && !returned.empty() && returned[0].defined())
    step_.autograd = autograd_fingerprint(returned[0], first_sequence, world_.leaf_set());
  return false;
}

void RecordingWatch::before_update() {
  auto* r = recorder();
  if (!r) return;
  std::vector<char> has(world_.leaves().size());
  for (std::size_t i = 0; i < has.size(); i++) {
    const auto& g = world_.leaves()[i].tensor.grad();
    has[i] = g.defined();
    before_.push_back(r->value_of(g, "the gradient of '" + world_.leaves()[i].name + "'"));
    if (step_.has_data && g.defined()) step_.eager.gradients.push_back(g.detach().clone());
  }
  step_.has_grad = world_.has_grad(has);
  if (kind_.updates && kind_.update_recorded && world_.formula()) numbers_ = world_.formula()->numbers(step_.has_grad);
}

void RecordingWatch::begin_optimizer() {
  if (auto* r = recorder()) r->begin_optimizer();
}

void RecordingWatch::finish_gradients(Recorder& r) {
  const bool dropped = kind_.updates && kind_.update_recorded && !runner_.keeps_gradients();
  for (std::size_t i = 0; i < before_.size(); i++) {
    const auto& leaf = world_.leaves()[i];
    if (before_[i] < 0) continue;
    const bool goes = dropped && i < world_.optimizer_leaves();
    r.graph().gradients.push_back({std::int32_t(i), leaf.name, goes ? -1 : r.value_of(leaf.tensor.grad(), "a gradient"), before_[i]});
    if (step_.has_data) step_.eager.kept.push_back(goes ? at::Tensor() : leaf.tensor.grad());
  }
}

void RecordingWatch::finish_outputs(Recorder& r, EagerResult& eager) {
  auto& graph = r.graph();
  graph.loss = r.value_of(eager.loss, "the loss");
  for (const auto& t : eager.outputs) graph.outputs.push_back(r.value_of(t, "an output of the loss function"));
  // A body returns what it likes; a loss has one element.
  if (graph.loss >= 0 && eager.loss.numel() != 1) {
    graph.outputs.insert(graph.outputs.begin(), graph.loss);
    graph.loss = -1;
    eager.outputs.insert(eager.outputs.begin(), eager.loss);
    eager.loss = at::Tensor();
  }
  step_.visible_outputs = graph.outputs.size();
  graph.grad_norm = r.value_of(eager.grad_norm, "the gradient norm");
}

/// Tensors that somebody keeps are outputs, too: a plan puts its data into those that the host's code has kept.
void RecordingWatch::keep_escapes(EagerResult& eager) {
  std::vector<c10::StorageImpl*> exempt;
  auto spare = [&](const at::Tensor& t) {
    if (t.defined() && t.has_storage()) exempt.push_back(t.storage().unsafeGetStorageImpl());
  };
  spare(eager.loss);
  spare(eager.grad_norm);
  for (const auto& t : eager.outputs) spare(t);
  for (const auto& l : world_.leaves()) spare(l.tensor.grad());
  for (const auto& s : world_.present({}).state) spare(s.tensor);
  auto& recording = step_.recording;
  for (auto v : escapes(recording, exempt)) {
    const auto& value = recording.graph.values[std::size_t(v)];
    recording.graph.outputs.push_back(v);
    if (step_.has_data)
      step_.eager.outputs.push_back(make_tensor(value, c10::Storage(recording.storages[std::size_t(value.storage)].lock())));
  }
}

RecordedStep RecordingWatch::finish(EagerResult& eager) {
  auto& r = *recorder();
  finish_outputs(r, eager);
  finish_gradients(r);
  if (!eager.look.refusal.empty()) {
    r.refuse(eager.look.refusal);
    step_.final_refusal = true;
  }
  step_.recording = r.finish();
  if (whole_ && step_.recording.forward_end == 0) step_.recording.forward_end = step_.recording.graph.nodes.size();
  if (whole_)
    step_.full_reason = "the whole step is one piece of the caller's code";
  else if (!eager.look.host_code.empty())
    step_.full_reason = eager.look.host_code;
  else if (kind_.updates && kind_.update_recorded && !world_.formula())
    step_.full_reason = "the optimizer is not one that is known";
  step_.eager.loss = eager.loss;
  step_.eager.outputs = eager.outputs;
  step_.eager.grad_norm = eager.grad_norm;
  step_.outside.versions = version_deltas(known_, versions_);
  step_.outside.captured = step_.recording.captured;
  step_.outside.input_start = input_start_;
  if (!step_.recording.refusal.empty()) return std::move(step_);
  // A step that left its path behind the backward has no gradients from before the update.
  step_.has_data = step_.has_data && copied_all(step_.recording) && step_.eager.gradients.size() == step_.recording.graph.gradients.size();
  if (step_.has_data) take_data(step_.recording, generator_before_, step_.eager);
  keep_escapes(eager);
  return std::move(step_);
}

}  // namespace tandem
