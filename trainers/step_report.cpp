#include "trainers/step_object.h"

#include <cmath>

namespace tandem {
namespace {

constexpr const char* being_recorded = "it is being recorded: two recordings must agree first";
constexpr const char* crowded =
    "more combinations of shapes and flags come in turn than Options::max_plans keeps, expected fewer: this one runs eager";

void add_times(CompiledStep& step, PlanReport& report) {
  for (std::size_t part = 0; part < step.chain().size(); part++) {
    const auto& link = step.chain()[part];
    const auto& us = link.executor->shortest_us();
    for (std::size_t k = 0; k < us.size(); k++) {
      if (!std::isfinite(us[k])) continue;
      const auto side = link.plan->graph.nodes[link.executor->index().nodes[k].front()].side;
      report.nodes.push_back({describe_call(*link.plan, k), name_of(side), us[k]});
    }
  }
}

void add_path(Report& r, const Entry& e, const Path& path, bool is_latest) {
  if (path.state == Path::State::recording && path.recordings <= 1 && e.refusals == 0 && !is_latest) return;
  r.plans.push_back(path.report);
  auto& p = r.plans.back();
  p.active = path.state == Path::State::active;
  p.replay_us = path.replay_us.median();
  p.guard_us = path.guard_us.median();
  p.reason = path.state == Path::State::eager ? path.reason : p.active ? "" : e.reason.empty() ? being_recorded : e.reason;
  if (path.step) add_times(*path.step, p);
}
}  // namespace

Report TrainStep::Impl::report() const {
  Report r;
  journal.fill(r);
  auto& w = const_cast<World&>(world);
  r.optimizer = w.formula()       ? w.formula()->name() + (update_recorded ? ", its update is part of the plan" : ", eager behind the plan")
                : update_recorded ? "unknown to Tandem, replayed in each step"
                                  : "unknown to Tandem, eager behind the plan";
  if (whole) r.optimizer = "the caller's own, replayed in each step";
  if (lbfgs) r.optimizer = "LBFGS, eager behind the plan";
  for (const auto& e : entries) {
    for (const auto& p : e.paths) add_path(r, e, p, &p == latest_path);
    // Step 1, in which the optimizer makes its state, is a path of its own and comes once: no plan to speak of.
    const bool empty = e.paths.empty() && (!e.eager_reason.empty() || e.refusals > 0 || &e == latest);
    if (!empty) continue;
    auto& p = r.plans.emplace_back();
    p.id = e.id;
    p.guard = e.guard;
    p.reason = e.why();
  }
  r.active = off.empty() && latest && latest_path && latest_path->state == Path::State::active;
  if (!r.active) {
    r.reason = !off.empty() ? off : latest ? latest->why() : r.steps == 0 ? "no step has run yet" : crowded;
    if (r.reason.empty()) r.reason = being_recorded;
  }
  return r;
}

}  // namespace tandem
