// What is behind a TrainStep.
#pragma once

#include "trainers/watch.h"

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <vector>

namespace torch::optim {
class LBFGS;
}

namespace tandem {

struct TrainStep::Impl {
  /// `model` and `optimizer` are nullptr where the loss function is the whole step.
  Impl(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer* optimizer, std::vector<detail::LossFunction> loss,
       Options options);

  StepResult run(const detail::Inputs& inputs);
  Report report() const;
  bool flush();

  void check_inputs(const detail::Inputs& inputs) const;
  StepResult run_part(const detail::Inputs& inputs, const StepKind& kind);
  StepResult run_lbfgs(const detail::Inputs& inputs, const StepKind& kind);
  StepResult run_plain(const detail::Inputs& inputs, const StepKind& kind);
  StepResult run_recorded(Entry& entry, const World::Present& present, const StepKind& kind, Path* shadowed);
  StepResult run_replayed(Entry& entry, const World::Present& present, const StepKind& kind, const std::vector<Path*>& active);
  StepResult run_trusted(Entry& entry, const World::Present& present, const StepKind& kind, Path& path);
  StepResult run_plan(Entry& entry, Path& path, const StepContext& step);
  StepResult rerun(Entry& entry, const World::Present& present, const StepKind& kind, Path& path, const Replayer& replayer);
  Error raw_read(Entry& entry, Path& path, const Replayer& replayer);
  StepResult take_recording(Entry& entry, RecordingWatch& watch, EagerResult& eager, const StepKind& kind, Path* shadowed);
  void name_numbers(RecordedStep& step, const std::vector<Number>& numbers, const StepKind& kind);
  void adopt_leaves(Recorder& recorder, EagerResult& eager);
  void update_alone();

  bool drops_gradients(const StepKind& kind) const { return !whole && kind.first_micro && options.zero_grad_to_none; }
  Signature signature_of(const World::Present& present, const StepKind& kind);
  std::string unsupported(const Signature& signature) const;

  /// One step at a time, on a thread and in an object. Throws Error otherwise.
  class Running {
   public:
    explicit Running(Impl& step);
    ~Running();

   private:
    Impl& step_;
    std::unique_lock<std::recursive_mutex> lock_;
  };
  bool make_room();
  Entry* entry_for(const Signature& signature);

  Options options;
  std::vector<detail::LossFunction> loss;
  bool whole;
  World world;
  EagerStepRunner runner;
  torch::optim::LBFGS* lbfgs;
  bool update_recorded;
  std::string off;  // why nothing is recorded at all
  std::list<Entry> entries;
  Entry* latest = nullptr;
  Path* latest_path = nullptr;
  std::int64_t next_id = 1, micro = 0;
  int adoptions = 0;
  std::int64_t pushed_out = 0;  // entries that went before they came to a plan
  Journal journal;
  std::atomic<bool> busy = false;
  std::recursive_mutex reporting;  // a report waits for the step of another thread, not for that of its own
};

}  // namespace tandem
