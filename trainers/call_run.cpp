#include "trainers/call_run.h"

#include "trainers/compile_edge.h"

#include <algorithm>

namespace tandem {

std::string CallRun::bind_known(const CallPlan& plan, RunInputs& out) const {
  return tandem::bind_known(
      plan.captured(), plan.call().outside, inputs_.size(),
      [&](Role role, std::int32_t index) { return world_->resolve(role, index, inputs_); }, out);
}

std::string CallRun::bind(const std::shared_ptr<CallPlan>& plan, const Replayer* replay) {
  begin(plan);
  captured_ = plan->call().outside.captured;
  if (replay) {
    in_ = replay->inputs();
    for (const auto& met : replay->captured())
      for (auto& c : captured_)
        if (c.id == met.id) {
          const auto by = c.version_at_end - c.version_at_start;
          c = met;
          c.version_at_end = c.version_at_start + by;
        }
  } else {
    in_ = {};
    if (auto why = bind_known(*plan, in_); !why.empty()) return why;
    for (const auto& s : plan->captured().scalars) in_.scalars.push_back(s.recorded);
  }
  plan->derive_numbers(in_.scalars);
  return bind_captured(plan->captured(), plan->call().outside, inputs_, in_);
}

void CallRun::begin(const std::shared_ptr<CallPlan>& plan) {
  if (plan_ == plan) return;
  end();
  plan_ = plan;
  held_ = plan->chain().nothing_held();
  outputs_.assign(plan->call().differentiable.size(), {});
  const auto before = std::exchange(again_, nullptr);
  if (!plan->backwards().empty()) again_ = std::make_shared<Again>(callee_, world_, plan, inputs_, before.get());
  for (std::size_t i = 0; i < plan->chain().size(); i++) plan->chain().executor(i).time_calls(measure_);
}

void CallRun::run_part(std::size_t part, std::vector<c10::Storage>& carried) {
  part_ = part;
  auto& chain = plan_->chain();
  const auto& link = chain[part];
  for (const auto& c : link.takes) held_[c.place] = carried[std::size_t(c.storage)];
  chain.run(part, in_, held_);
  for (const auto& c : link.hands_on) carried[std::size_t(c.storage)] = held_[c.place];
  const auto& graph = link.plan->graph;
  for (std::size_t i = 0; i < link.first_handed; i++) {
    const auto v = graph.outputs[i];
    if (v < 0) continue;
    const auto t = chain.executor(part).value(v);
    carried[std::size_t(graph.values[std::size_t(v)].storage)] = t.storage();
    if (i < outputs_.size()) outputs_[i] = t;
  }
}

void CallRun::guarded_run(std::size_t first, std::size_t last, std::vector<c10::Storage>& carried) {
  if (again_) again_->copy(in_);
  try {
    for (auto part = first; part < last; part++)
      if (!plan_->parts().parts[part].host) run_part(part, carried);
  } catch (...) {
    if (put_back_) put_back_();
    if (plan_->chain().failed_node(part_)) advance_versions(true);
    end();
    throw;
  }
}

void CallRun::run_parts(const std::shared_ptr<CallPlan>& plan, Replayer& replay, std::size_t first, std::size_t last) {
  bind(plan, &replay);  // captured tensors that the host has not shown yet are read by later parts
  guarded_run(first, last, replay.carried());
}

std::vector<at::Tensor> CallRun::finish(Replayer* replay) {
  std::vector<c10::Storage> none;
  if (!replay) none.resize(plan_->captured().storages.size());
  auto& carried = replay ? replay->carried() : none;
  guarded_run(replay ? replay->parts_run() : 0, plan_->forwards(), carried);
  const auto& g = plan_->captured();
  for (std::size_t i = 0; i < outputs_.size(); i++)
    if (const auto v = g.outputs[i]; v >= 0 && !outputs_[i].defined())  // the host's own, or made by another path's part
      outputs_[i] = make_tensor(g.values[std::size_t(v)], carried[std::size_t(g.values[std::size_t(v)].storage)]);
  auto& chain = plan_->chain();
  for (std::size_t m = plan_->forwards(); m < chain.size(); m++)
    for (const auto& c : chain[m].takes)
      if (!held_[c.place]) held_[c.place] = carried[std::size_t(c.storage)];
  if (replay)
    for (auto s : replay->held())
      if (carried[std::size_t(s)]) replay->fill(s, carried[std::size_t(s)]);
  advance_versions(false);
  return std::move(outputs_);
}

void CallRun::connect(std::vector<at::Tensor>& outputs, std::shared_ptr<std::recursive_mutex> mutex, std::shared_ptr<Observed> observed) {
  if (!again_) return;
  again_->follow_up(captured_, in_.scalars);
  tandem::connect({plan_, std::move(mutex), std::move(observed), std::move(held_), {}, in_.scalars, again_}, *world_, inputs_, in_,
                  captured_, outputs);
}

/// By how much the counters of what the call wrote move: after a failure a write counts once its op is through.
void CallRun::advance_versions(bool failed) const {
  auto due = [&](Role role, std::int32_t index, std::uint32_t by) {
    return failed ? plan_->chain().bumps_before(plan_->forwards(), part_, role, index, by) : by;
  };
  for (const auto& d : plan_->call().outside.versions) {
    const auto t = world_->resolve(d.role, d.index, inputs_);
    if (!t.defined() || t.is_inference()) continue;
    for (auto n = due(d.role, d.index, d.by); n > 0; n--) t.unsafeGetTensorImpl()->bump_version();
  }
  for (std::size_t i = 0; i < captured_.size(); i++) {
    auto counter = captured_[i].version;  // a handle on the same counter
    const auto by = captured_[i].version_at_end - captured_[i].version_at_start;
    for (auto n = by ? due(Role::captured, std::int32_t(i), by) : 0; n > 0; n--) counter.bump();
  }
}

bool CallRun::failed_by_itself() const { return plan_ && plan_->chain().failed_by_itself(part_); }

/// Nothing of the caller's stays pinned between calls.
void CallRun::end() {
  if (!plan_) return;
  for (std::size_t part = 0; part < plan_->forwards(); part++) plan_->chain().executor(part).end();
}

}  // namespace tandem
