// Looks on at one step: makes a recording of it, or follows known paths and records where the step leaves them.
#pragma once

#include "trainers/entry.h"

#include <functional>
#include <memory>
#include <vector>

namespace tandem {

class RecordingWatch : public StepObserver {
 public:
  RecordingWatch(World& world, EagerStepRunner& runner, const World::Present& present, const StepKind& kind, bool drops_gradients,
                 bool whole);

  /// A host read of what the step computes is an Error.
  void fullgraph() { fullgraph_ = true; }
  /// See Recorder; without it such a read is a refusal.
  void expect_pointers(const PointerReads& pointers) { pointers_ = &pointers; }
  /// Records from the start. `like`: see Recorder::copy_outside; nothing is copied where it is empty.
  void record(bool audit, const std::vector<const Graph*>& like);

  OpListener& listener() override { return *recorder_; }
  void set_side(Side side) override;
  bool closure_returned(std::vector<at::Tensor>& returned, std::uint64_t first_sequence) override;
  void before_update() override;
  void begin_optimizer() override;

  /// The step is over. Tensors of the step that nobody but the caller of this function needs must be gone, but for those in `eager`.
  RecordedStep finish(EagerResult& eager);
  const std::vector<std::uint32_t>& versions() const { return versions_; }
  double ms() const { return watch_.ms(); }                        // since the step began
  const std::vector<Number>& numbers() const { return numbers_; }  // of the optimizer
  virtual Recorder* recorder() { return recorder_.get(); }         // nullptr while nothing is recorded

 protected:
  std::unique_ptr<Recorder> make_recorder(bool audit, const std::vector<const Graph*>& like);

  World& world_;
  EagerStepRunner& runner_;
  const World::Present& present_;
  const StepKind& kind_;
  bool drops_gradients_, whole_, fullgraph_ = false;
  const PointerReads* pointers_ = nullptr;
  std::vector<std::uint32_t> versions_;  // before the step
  std::vector<std::int64_t> input_start_;
  std::vector<KnownTensor> known_;
  std::vector<ValueId> before_;  // per leaf, its gradient when the update begins
  std::vector<Number> numbers_;
  RecordedStep step_;

 private:
  void finish_gradients(Recorder& recorder);
  void finish_outputs(Recorder& recorder, EagerResult& eager);
  void keep_escapes(EagerResult& eager);

  Stopwatch watch_;
  at::Tensor generator_before_;
  std::unique_ptr<Recorder> recorder_;
};

class ReplayWatch : public RecordingWatch {
 public:
  using RecordingWatch::RecordingWatch;

  /// `paths`: active ones, the likeliest first. `like`: what has been recorded, see record(). `bind`:
  /// completes the bindings of a path that was followed to its end; false when its plan cannot run. `run_parts`: see Replayer.
  void replay(const std::vector<Path*>& paths, std::vector<const Graph*> like, std::function<bool(Path&)> bind,
              std::function<void(Path&, std::size_t first, std::size_t last)> run_parts);
  OpListener& listener() override { return *replayer_; }
  bool closure_returned(std::vector<at::Tensor>& returned, std::uint64_t first_sequence) override;
  void before_update() override;
  void begin_optimizer() override;
  /// The host has gone through the whole step.
  void step_returned(const EagerResult& eager);

  /// A step that leaves the known paths is an Error before anything of it has run.
  void fail_on_recompile() { fail_on_recompile_ = true; }
  bool refused() const { return refused_; }
  /// Whether the closure may be called again: the optimizer's own counters have not moved.
  bool may_start_over() const { return !whole_ && !updates_; }

  Replayer& replayer() { return *replayer_; }
  /// The path that was followed to its end.
  Path& path() { return path_of(replayer_->tape()); }
  Recorder* recorder() override { return replayer_->diverged() ? &replayer_->recorder() : nullptr; }

 private:
  Path& path_of(const Tape& tape) const;

  std::vector<Path*> paths_;
  std::vector<const Graph*> like_;
  std::function<bool(Path&)> bind_;
  bool fail_on_recompile_ = false, refused_ = false, updates_ = false;
  std::unique_ptr<Replayer> replayer_;
};

}  // namespace tandem
