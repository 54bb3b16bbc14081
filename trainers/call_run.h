// One call at work on a path's plans: its forward, all at once or in parts between which the host goes on.
#pragma once

#include "autograd/replay.h"
#include "trainers/call_path.h"
#include "trainers/compile_again.h"

#include <memory>
#include <string>
#include <vector>

namespace tandem {

class CallRun {
 public:
  CallRun(const detail::Callee& callee, std::shared_ptr<ModuleTensors> world, const std::vector<at::Tensor>& inputs, bool measure)
      : callee_(callee), world_(std::move(world)), inputs_(inputs), measure_(measure) {}
  ~CallRun() { end(); }
  CallRun(const CallRun&) = delete;

  /// The storages that are known before the call. One sentence when one is not what it was.
  std::string bind_known(const CallPlan& plan, RunInputs& out) const;
  /// Completes the bindings. `replay`: nullptr where the function has not run. One sentence when the plans cannot run on this call.
  std::string bind(const std::shared_ptr<CallPlan>& plan, const Replayer* replay);

  /// Some parts for a host that waits for their results, see Replayer::RunParts. What they throw comes through, and leaves what eager would leave.
  void run_parts(const std::shared_ptr<CallPlan>& plan, Replayer& replay, std::size_t first, std::size_t last);
  /// The rest of the bound forward: results without an autograd edge, version counters.
  std::vector<at::Tensor> finish(Replayer* replay);
  /// Gives the results the edge to their backwards.
  void connect(std::vector<at::Tensor>& outputs, std::shared_ptr<std::recursive_mutex> mutex, std::shared_ptr<Observed> observed);

  /// For a part that throws while the function runs: counters that the host's own calls have moved go back before the plan's are counted.
  void put_back_by(std::function<void()> put_back) { put_back_ = std::move(put_back); }
  /// Whether what a part threw says something of the plan: an op failed that never does for what a caller does.
  bool failed_by_itself() const;

 private:
  void begin(const std::shared_ptr<CallPlan>& plan);
  void run_part(std::size_t part, std::vector<c10::Storage>& carried);
  void guarded_run(std::size_t first, std::size_t last, std::vector<c10::Storage>& carried);
  void advance_versions(bool failed) const;
  void end();

  const detail::Callee& callee_;
  std::shared_ptr<ModuleTensors> world_;
  const std::vector<at::Tensor>& inputs_;
  bool measure_;
  std::function<void()> put_back_;
  std::shared_ptr<CallPlan> plan_;
  RunInputs in_;
  std::vector<CapturedStorage> captured_;  // of this call, in the order of the graph's
  Chain::Held held_;
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<Again> again_;
  std::size_t part_ = 0;  // the one that runs
};

}  // namespace tandem
