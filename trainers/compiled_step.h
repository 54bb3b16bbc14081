// A plan at work on the user's own tensors, with the host-side effects of the step that it replaces.
#pragma once

#include "runtime/check.h"
#include "runtime/execute.h"
#include "tandem/tandem.h"
#include "trainers/binding.h"
#include "trainers/eager.h"

#include <memory>
#include <string>
#include <vector>

namespace tandem {

class CompiledStep {
 public:
  CompiledStep(Graph captured, Outside outside, std::vector<bool> has_grad, Plan plan, const jit::Settings& jit);

  /// One sentence when the plan cannot run on this step; nothing has changed then.
  std::string bind(World& world, const World::Present& present);

  /// Runs the bound step: zero_grad, plan, gradients, version counters, step counters. An exception leaves what eager would leave.
  StepResult run(World& world, EagerStepRunner& runner, const World::Present& present, const StepKind& kind, bool zeroed_to_none);

  const Graph& captured() const { return captured_; }
  const Outside& outside() const { return outside_; }
  const Plan& plan() const { return *plan_; }
  Executor& executor() { return *executor_; }

 private:
  void end();
  std::int64_t note_failure(std::size_t call);
  void deliver_gradients(World& world, std::int64_t failed);
  std::size_t params_started(std::int64_t failed) const;
  std::uint32_t bumps_before(Role role, std::int32_t index, std::uint32_t by) const;

  Graph captured_;
  Outside outside_;
  std::vector<bool> has_grad_;
  std::unique_ptr<Plan> plan_;  // its address stays: the executor points to it
  std::unique_ptr<Executor> executor_;
  RunInputs inputs_;
  std::vector<char> ran_;  // per node of the plan's graph, after a failure
};

}  // namespace tandem
