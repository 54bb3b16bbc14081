#include "trainers/compiled_step.h"

#include "autograd/key.h"

#include <algorithm>

namespace tandem {

const char* name_of(CompiledStep::Level level) {
  return level == CompiledStep::Level::trusted ? "trusted" : level == CompiledStep::Level::forward ? "forward" : "full";
}

CompiledStep::CompiledStep(RecordedStep recorded, Parts parts, Chain chain, Level level, std::vector<Derived> derived)
    : recorded_(std::make_unique<RecordedStep>(std::move(recorded))),
      tape_(recorded_->recording, level == Level::full ? recorded_->recording.graph.nodes.size() : recorded_->recording.forward_end,
            std::move(parts)),
      chain_(std::move(chain)), level_(level), derived_(std::move(derived)) {
  const auto& g = recorded_->recording.graph;
  delivered_.assign(g.storages.size(), false);
  auto deliver = [&](ValueId v) {
    if (v >= 0) delivered_[std::size_t(g.values[std::size_t(v)].storage)] = true;
  };
  for (auto v : g.outputs) deliver(v);
  for (auto v : tape_.parts().alive) deliver(v);
  for (const auto& x : g.gradients) deliver(x.value);
  deliver(g.grad_norm);
  deliver(g.loss);
  held_ = chain_.nothing_held();
}

std::string CompiledStep::bind_known(const World& world, const World::Present& present, RunInputs& out) const {
  return tandem::bind_known(
      recorded_->recording.graph, recorded_->outside, present.inputs->size(),
      [&](Role role, std::int32_t index) { return world.resolve(role, index, present); }, out);
}

std::string CompiledStep::bind(const StepContext& step) {
  const auto& graph = recorded_->recording.graph;
  if (step.replay) {
    inputs_ = step.replay->inputs();
  } else {
    inputs_.storages.assign(graph.storages.size(), {});
    if (auto why = bind_known(step.world, step.present, inputs_); !why.empty()) return why;
    inputs_.scalars.clear();
    for (const auto& s : graph.scalars) inputs_.scalars.push_back(s.recorded);
  }
  if (auto why = bind_captured(graph, recorded_->outside, *step.present.inputs, inputs_); !why.empty()) return why;
  bind_numbers(step);
  return "";
}

/// Where the host does not make the update's calls, its numbers are computed as the optimizer computes them; those of the backward follow from the
/// closure's.
void CompiledStep::bind_numbers(const StepContext& step) {
  if (level_ == Level::full) return;
  if (auto* formula = step.world.formula(); formula && step.kind.updates && step.kind.update_recorded) {
    update_numbers_.clear();
    formula->values(recorded_->has_grad, update_numbers_);
    std::copy(update_numbers_.begin(), update_numbers_.end(), inputs_.scalars.begin());
  }
  for (const auto& d : derived_)
    inputs_.scalars[std::size_t(tape_.scalar_of(d.number))] = derive(d.how, inputs_.scalars[std::size_t(tape_.scalar_of(d.from))]);
}

bool CompiledStep::delivers(const std::vector<StorageId>& held) const {
  return std::all_of(held.begin(), held.end(), [&](StorageId s) { return delivered_[std::size_t(s)]; });
}

void CompiledStep::run_part(std::size_t part, std::vector<c10::Storage>& carried) {
  failed_part_ = part;
  const auto& link = chain_[part];
  for (const auto& c : link.takes) held_[c.place] = carried[std::size_t(c.storage)];
  chain_.run(part, inputs_, held_);
  for (const auto& c : link.hands_on) carried[std::size_t(c.storage)] = held_[c.place];
  // What the host may hold, and what the step gives back.
  const auto& graph = link.plan->graph;
  auto carry = [&](ValueId v) {
    if (v >= 0) carried[std::size_t(graph.values[std::size_t(v)].storage)] = chain_.executor(part).value(v).storage();
  };
  for (std::size_t i = 0; i < link.first_handed; i++) carry(graph.outputs[i]);
  carry(graph.loss);
  carry(graph.grad_norm);
  if (level_ == Level::full)
    for (const auto& g : graph.gradients) carry(g.value);
}

void CompiledStep::run_parts(const StepContext& step, std::size_t first, std::size_t last) {
  inputs_ = step.replay->inputs();
  bind_captured(recorded_->recording.graph, recorded_->outside, *step.present.inputs, inputs_);
  bind_numbers(step);
  try {
    for (auto part = first; part < last; part++)
      if (!tape_.parts().parts[part].host) run_part(part, step.replay->carried());
  } catch (...) {
    clean_up_failure(step);
    end();
    throw;
  }
}

StepResult CompiledStep::run(const StepContext& step) {
  if (!step.replay && step.kind.first_micro && step.zeroed_to_none) step.runner.zero_grad();
  if (step.replay) step.replay->unveil();
  std::vector<c10::Storage> none;
  if (!step.replay) none.resize(delivered_.size());
  auto& carried = step.replay ? step.replay->carried() : none;
  try {
    for (auto part = step.replay ? step.replay->parts_run() : 0; part < chain_.size(); part++) run_part(part, carried);
  } catch (...) {
    clean_up_failure(step);
    end();
    throw;
  }
  auto result = give_back(step);
  if (step.replay)
    for (auto s : step.replay->held())
      if (carried[std::size_t(s)]) step.replay->fill(s, carried[std::size_t(s)]);
  advance_versions(step, {});
  end();
  return result;
}

/// A value that one of the parts makes.
at::Tensor CompiledStep::value(ValueId Graph::*what) {
  for (std::size_t i = 0; i < chain_.size(); i++)
    if (const auto v = chain_[i].plan->graph.*what; v >= 0) return chain_.executor(i).value(v).detach();
  return {};
}

StepResult CompiledStep::give_back(const StepContext& step) {
  StepResult result;
  result.compiled = true;
  if (level_ == Level::full) return result;  // the host has its tensors, they are filled
  result.loss = value(&Graph::loss);
  result.grad_norm = value(&Graph::grad_norm);
  result.outputs.resize(recorded_->visible_outputs);
  for (std::size_t i = 0; i < chain_.size(); i++) {
    const auto& graph = chain_[i].plan->graph;
    const bool host = step.replay && tape_.parts().parts[i].host;  // the host has made these itself
    for (std::size_t k = 0; k < result.outputs.size(); k++) {
      const auto v = graph.outputs[k];
      if (v < 0) continue;
      const auto& value = graph.values[std::size_t(v)];
      result.outputs[k] =
          host ? make_tensor(value, step.replay->carried()[std::size_t(value.storage)]) : chain_.executor(i).value(v).detach();
    }
  }
  deliver_gradients(step.world, nullptr);
  if (step.kind.updates && step.kind.update_recorded && step.world.formula())
    step.world.formula()->advance(recorded_->has_grad, recorded_->has_grad.size());
  return result;
}

StepResult CompiledStep::run_nodes(const StepContext& step) {
  const auto& graph = recorded_->recording.graph;
  StepResult result;
  result.compiled = true;
  std::vector<at::Tensor> gradients(graph.gradients.size());
  // Placeholders of what the step gives back, so that they are filled as the others.
  auto give = [&](ValueId v) { return v < 0 ? at::Tensor() : step.replay->stand_in(v); };
  if (level_ != Level::full) {
    result.loss = give(graph.loss);
    for (std::size_t i = 0; i < recorded_->visible_outputs; i++) result.outputs.push_back(give(graph.outputs[i]));
    result.grad_norm = give(graph.grad_norm);
    for (std::size_t i = 0; i < gradients.size(); i++)
      if (const auto v = graph.gradients[i].value; v >= 0 && graph.storage_of(v).role == Role::internal) gradients[i] = give(v);
  }
  step.replay->run_nodes(graph.nodes.size(), inputs_);
  if (level_ != Level::full) {
    for (std::size_t i = 0; i < gradients.size(); i++)
      if (gradients[i].defined()) step.world.leaves()[std::size_t(graph.gradients[i].leaf)].tensor.mutable_grad() = gradients[i];
    if (step.kind.updates && step.kind.update_recorded && step.world.formula())
      step.world.formula()->advance(recorded_->has_grad, recorded_->has_grad.size());
  }
  advance_versions(step, {});
  end();
  return result;
}

/// Nothing of the caller's stays pinned between steps.
void CompiledStep::end() {
  chain_.end();
  inputs_.storages.clear();
  std::fill(held_.begin(), held_.end(), c10::Storage());
}

}  // namespace tandem
