// What a compiled step leaves behind on the host: gradients, version counters, step counters; also when it failed in the middle.
#include "autograd/key.h"
#include "autograd/placeholder.h"
#include "trainers/compiled_step.h"

#include <algorithm>
#include <cstdlib>

namespace tandem {
namespace {

/// OptimizerFormula names its numbers "adam.beta1[3]": the quantity and the parameter.
bool of_update(const std::string& name) { return !name.empty() && name.back() == ']'; }
std::size_t param_of(const std::string& name) { return std::size_t(std::atoll(name.c_str() + name.rfind('[') + 1)); }

}  // namespace

bool CompiledStep::failed_by_itself() const { return chain_.failed_by_itself(failed_part_); }

/// Gradients that the plan has made go where backward would have put them; after a failure only those that were complete.
void CompiledStep::deliver_gradients(World& world, const Node* failed) {
  for (std::size_t part = 0; part < chain_.size(); part++) {
    const auto& graph = chain_[part].plan->graph;
    auto& executor = chain_.executor(part);
    for (const auto& g : graph.gradients) {
      const auto v = failed ? g.before : g.value;
      // One that lies on memory of an earlier part is the step's own, too.
      if (v < 0 || (graph.storage_of(v).role != Role::internal && graph.storage_of(v).role != Role::carried)) continue;
      if (failed) {
        // Accumulated once the autograd node that made it is done; the failing node belongs to another one then.
        const Node* maker = nullptr;
        chain_.for_each_node(chain_.size(), failed_part_, [&](const Node& n, bool ran) {
          if (ran)
            for_each_value(n.results, [&](ValueId r) {
              if (r == v) maker = &n;
            });
        });
        if (!maker || !executor.has(v) || (failed->side == Side::backward && failed->ran_for == maker->ran_for)) continue;
      }
      auto gradient = executor.value(v).detach();
      if (chain_[part].plan->memory.homes[std::size_t(graph.values[std::size_t(v)].storage)] == Home::arena) gradient = gradient.clone();
      world.leaves()[std::size_t(g.leaf)].tensor.mutable_grad() = gradient;
    }
  }
}

/// The host has gone on to the end with gradients that were never computed.
void CompiledStep::drop_placeholder_gradients(World& world) {
  for (const auto& l : world.leaves())
    if (const auto& g = l.tensor.grad(); g.defined() && g.has_storage() && is_placeholder(*g.storage().unsafeGetStorageImpl()))
      l.tensor.mutable_grad().reset();
}

/// How many parameters' updates had begun when a node of the update side failed.
std::size_t CompiledStep::params_started() const {
  std::size_t end = 0;  // one past the last parameter, by position, whose numbers were used
  const auto& scalars = chain_[failed_part_].plan->graph.scalars;
  const auto* failed = chain_.failed_node(failed_part_);
  chain_.for_each_node(chain_.size(), failed_part_, [&](const Node& n, bool ran) {
    for (const auto& a : n.args)
      if ((ran || &n == failed) && a.scalar >= 0 && of_update(scalars[std::size_t(a.scalar)].name))
        end = std::max(end, param_of(scalars[std::size_t(a.scalar)].name) + 1);
  });
  const auto& has_grad = recorded_->has_grad;
  return std::size_t(std::count(has_grad.begin(), has_grad.begin() + std::ptrdiff_t(end), true));
}

void CompiledStep::advance_versions(const StepContext& step, const DueBumps& due) const {
  // In-place ops of a replayed closure have moved a counter already; after a failure perhaps farther than eager would have.
  auto advance = [](c10::VariableVersion counter, std::int64_t moved, std::int64_t wanted) {
    if (counter.enabled() && moved != wanted) counter.set_version(std::int64_t(counter.current_version()) - moved + wanted);
  };
  for (const auto& d : recorded_->outside.versions) {
    const auto t = step.world.resolve(d.role, d.index, step.present);
    if (!t.defined() || t.is_inference() || !t.has_storage()) continue;
    const auto moved = d.position < step.versions.size() ? std::int64_t(t._version()) - step.versions[d.position] : 0;
    const auto wanted = due ? due(d.role, d.index, d.by) : d.by;
    advance(t.unsafeGetTensorImpl()->version_counter(), moved, wanted);
  }
  const auto& recorded = recorded_->outside.captured;
  for (std::size_t i = 0; i < recorded.size(); i++) {
    const auto by = recorded[i].version_at_end - recorded[i].version_at_start;
    if (by == 0) continue;
    const CapturedStorage* met = nullptr;
    if (step.replay)
      for (const auto& c : step.replay->captured())
        if (c.id == recorded[i].id) met = &c;
    auto counter = met ? met->version : recorded[i].version;  // a handle on the same counter
    const auto moved = met ? std::int64_t(counter.current_version()) - met->version_at_start : 0;
    const auto wanted = due ? due(Role::captured, std::int32_t(i), by) : by;
    advance(counter, moved, wanted);
  }
}

void CompiledStep::take_back_versions(const StepContext& step) const {
  advance_versions(step, [](Role, std::int32_t, std::uint32_t) { return 0u; });
}

void CompiledStep::clean_up_failure(const StepContext& step) {
  const auto* failed = chain_.failed_node(failed_part_);
  if (!failed) return;
  SilenceScope quiet;
  if (level_ == Level::full) {
    drop_placeholder_gradients(step.world);
  } else {
    deliver_gradients(step.world, failed);
    if (step.kind.updates && step.kind.update_recorded && step.world.formula() && failed->side == Side::update)
      step.world.formula()->advance(recorded_->has_grad, params_started());
  }
  advance_versions(step, [&](Role role, std::int32_t index, std::uint32_t by) {
    return chain_.bumps_before(chain_.size(), failed_part_, role, index, by);
  });
}

}  // namespace tandem
