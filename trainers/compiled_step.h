// A plan at work on the user's own tensors, with the host-side effects of the step that it replaces.
#pragma once

#include "autograd/replay.h"
#include "runtime/chain.h"
#include "tandem/tandem.h"
#include "trainers/eager.h"
#include "trainers/recorded_step.h"

#include <memory>
#include <string>
#include <vector>

namespace tandem {

/// What a compiled step works on.
struct StepContext {
  World& world;
  EagerStepRunner& runner;
  const World::Present& present;
  const StepKind& kind;
  bool zeroed_to_none = true;
  Replayer* replay = nullptr;           // nullptr: trusted, the closure has not run
  std::vector<std::uint32_t> versions;  // World::versions() before the step
};

class CompiledStep {
 public:
  enum class Level : std::uint8_t { trusted, forward, full };

  CompiledStep(RecordedStep recorded, Parts parts, Chain chain, Level level, std::vector<Derived> derived);

  /// The storages that are known before the step, per storage of the graph. One sentence when one is not what it was; nothing has changed then.
  std::string bind_known(const World& world, const World::Present& present, RunInputs& out) const;
  /// Completes the bindings after the replay. One sentence when the plan cannot run on this step; nothing has changed then.
  std::string bind(const StepContext& step);

  /// Runs some parts for a host that waits for their results, see Replayer::RunParts.
  void run_parts(const StepContext& step, std::size_t first, std::size_t last);
  /// Runs the rest of the bound step: plan, gradients, version counters, step counters; without a replay zero_grad, too. An exception leaves what eager
  /// would leave.
  StepResult run(const StepContext& step);
  /// The same by the graph's nodes, one by one, for a step that kept a tensor which the plan does not deliver. Needs a replay.
  StepResult run_nodes(const StepContext& step);
  /// Sets the version counters to where they were before a replayed closure that is to be called again.
  void take_back_versions(const StepContext& step) const;
  /// Whether the plan delivers all of these storages.
  bool delivers(const std::vector<StorageId>& held) const;
  /// Whether what run() has thrown says something of the plan: memory ran out, or an op failed that never does for what a caller does.
  bool failed_by_itself() const;

  const RecordedStep& recorded() const { return *recorded_; }
  const Tape& tape() const { return tape_; }
  Level level() const { return level_; }
  Chain& chain() { return chain_; }

 private:
  void end();
  void bind_numbers(const StepContext& step);
  void run_part(std::size_t part, std::vector<c10::Storage>& carried);
  StepResult give_back(const StepContext& step);
  void clean_up_failure(const StepContext& step);
  void drop_placeholder_gradients(World& world);
  void deliver_gradients(World& world, const Node* failed);
  void advance_versions(const StepContext& step, const DueBumps& due) const;
  std::size_t params_started() const;
  at::Tensor value(ValueId Graph::*what);

  std::unique_ptr<RecordedStep> recorded_;  // its address stays: the tape points to it
  Tape tape_;
  Chain chain_;
  Level level_;
  std::vector<Derived> derived_;
  RunInputs inputs_;
  std::vector<char> delivered_;  // per storage of the graph: the caller gets it
  std::vector<double> update_numbers_;
  Chain::Held held_;
  std::size_t failed_part_ = 0;
};

const char* name_of(CompiledStep::Level level);

}  // namespace tandem
