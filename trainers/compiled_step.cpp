#include "trainers/compiled_step.h"

#include "autograd/key.h"

#include <algorithm>
#include <cstdlib>

namespace tandem {
namespace {

/// OptimizerFormula names its numbers "adam.beta1[3]": the quantity and the parameter.
std::size_t param_of(const std::string& name) { return std::size_t(std::atoll(name.c_str() + name.rfind('[') + 1)); }

}  // namespace

CompiledStep::CompiledStep(Graph captured, Outside outside, std::vector<bool> has_grad, Plan plan, const jit::Settings& jit)
    : captured_(std::move(captured)), outside_(std::move(outside)), has_grad_(std::move(has_grad)),
      plan_(std::make_unique<Plan>(std::move(plan))), executor_(std::make_unique<Executor>(*plan_, jit)) {}

std::string CompiledStep::bind(World& world, const World::Present& present) {
  if (auto sentence = bind_outside(plan_->graph, outside_, world, present, inputs_); !sentence.empty()) return sentence;
  inputs_.scalars.clear();
  if (plan_->graph.scalars.empty()) return "";
  world.formula()->values(has_grad_, inputs_.scalars);
  if (inputs_.scalars.size() != plan_->graph.scalars.size())
    return "the optimizer's update uses another count of numbers than the recorded one";
  return "";
}

/// Gradients that the plan has made go where backward would have put them; after a failure only those that were complete.
void CompiledStep::deliver_gradients(World& world, std::int64_t failed) {
  const auto& graph = plan_->graph;
  for (const auto& g : graph.gradients) {
    const auto v = failed >= 0 ? g.before : g.value;
    if (v < 0 || graph.storages[graph.values[v].storage].role != Role::internal) continue;
    if (failed >= 0) {
      // Accumulated once the autograd node that made it is done; the failing node belongs to another one then.
      const Node* maker = nullptr;
      for (std::size_t i = 0; i < ran_.size(); i++)
        if (ran_[i])
          for_each_value(graph.nodes[i].results, [&](ValueId r) {
            if (r == v) maker = &graph.nodes[i];
          });
      const auto& failing = graph.nodes[std::size_t(failed)];
      if (!maker || !executor_->has(v) || (failing.side == Side::backward && failing.ran_for == maker->ran_for)) continue;
    }
    auto gradient = executor_->value(v).detach();
    if (plan_->memory.homes[std::size_t(graph.values[v].storage)] == Home::arena) gradient = gradient.clone();
    world.leaves()[std::size_t(g.leaf)].tensor.mutable_grad() = gradient;
  }
}

/// How many parameters' updates had begun when a node of the update side failed.
std::size_t CompiledStep::params_started(std::int64_t failed) const {
  const auto& graph = plan_->graph;
  std::size_t end = 0;  // one past the last parameter, by position, whose numbers were used
  for (std::size_t i = 0; i < ran_.size(); i++)
    for (const auto& a : graph.nodes[i].args)
      if ((ran_[i] || std::int64_t(i) == failed) && a.scalar >= 0)
        end = std::max(end, param_of(graph.scalars[std::size_t(a.scalar)].name) + 1);
  return std::size_t(std::count(has_grad_.begin(), has_grad_.begin() + std::ptrdiff_t(end), true));
}

/// Marks the nodes that ran before the failing call; the call's node. Generated kernels do not throw, so it is one node.
std::int64_t CompiledStep::note_failure(std::size_t call) {
  const auto& nodes = executor_->index().nodes;
  ran_.assign(plan_->graph.nodes.size(), false);
  for (std::size_t k = 0; k < call; k++)
    for (auto i : nodes[k]) ran_[i] = true;
  return std::int64_t(nodes[call].front());
}

/// By how much a version counter has moved when a node fails: a write counts once its op is through.
std::uint32_t CompiledStep::bumps_before(Role role, std::int32_t index, std::uint32_t by) const {
  const auto& graph = plan_->graph;
  std::uint32_t all = 0, through = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); i++)
    for (auto s : graph.nodes[i].writes) {
      const auto& storage = graph.storages[std::size_t(s)];
      if (storage.role != role || storage.index != index) continue;
      all++;
      through += ran_[i];
    }
  return through == all ? (all ? by : 0) : std::min(by, through);  // some kernels write without moving the counter
}

/// Nothing of the caller's stays pinned between steps.
void CompiledStep::end() {
  executor_->end();
  inputs_.storages.clear();
}

StepResult CompiledStep::run(World& world, EagerStepRunner& runner, const World::Present& present, const StepKind& kind,
                             bool zeroed_to_none) {
  if (kind.first_micro && zeroed_to_none) runner.zero_grad();
  const bool counts = kind.updates && kind.update_recorded && world.formula();
  try {
    executor_->run(inputs_);
  } catch (...) {
    if (const auto call = executor_->failed_call(); call >= 0) {
      SilenceScope quiet;
      const auto failed = note_failure(std::size_t(call));
      deliver_gradients(world, failed);
      if (counts && plan_->graph.nodes[std::size_t(failed)].side == Side::update)
        world.formula()->advance(has_grad_, params_started(failed));
      advance_versions(outside_, world, present,
                       [&](Role role, std::int32_t index, std::uint32_t by) { return bumps_before(role, index, by); });
    }
    end();
    throw;
  }
  StepResult result;
  result.compiled = true;
  const auto& graph = plan_->graph;
  auto give = [&](ValueId v) { return v < 0 ? at::Tensor() : executor_->value(v).detach(); };
  result.loss = give(graph.loss);
  for (auto v : graph.outputs) result.outputs.push_back(give(v));
  result.grad_norm = give(graph.grad_norm);
  deliver_gradients(world, -1);
  advance_versions(outside_, world, present);
  if (counts) world.formula()->advance(has_grad_, has_grad_.size());
  end();
  return result;
}

}  // namespace tandem
