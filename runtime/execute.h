// Runs a Plan on one set of bindings, again and again. In the steady state it allocates nothing but what library ops allocate themselves.
#pragma once

#include "autograd/node_call.h"
#include "codegen/jit/jit.h"
#include "runtime/blas_call.h"
#include "runtime/kernel_call.h"
#include "runtime/plan.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

class Executor {
 public:
  /// Compiles the kernels, prepares every call and runs the folded nodes. The plan must outlive the executor. Throws Error when kernels cannot be
  /// compiled.
  explicit Executor(const Plan& plan, const jit::Settings& jit = {});

  using Probe = std::function<void(std::size_t call, Slots& slots)>;  // after each call of the program
  /// Runs the step. When a node throws, its exception comes through; failed_call() then tells which, and value() still gives what was made.
  void run(const RunInputs& inputs, const Probe& probe = {});

  /// A tensor on the plan's memory; one that escapes is the caller's from now on, another is valid until the next run.
  at::Tensor value(ValueId v) { return v < 0 ? at::Tensor() : slots_.get(v); }
  /// Whether the value's memory holds it now: made in this run, not given to another yet.
  bool has(ValueId v) const;
  void end();  // gives back everything that the step made, and the caller's inputs

  std::int64_t failed_call() const { return failed_; }  // or -1
  const CallIndex& index() const { return index_; }
  std::vector<ValueId> made_by(std::size_t call) const;  // values that exist in memory after the call
  void time_calls(bool on) { timing_ = on; }
  const std::vector<double>& shortest_us() const { return shortest_us_; }  // per call, infinity where never timed
  const std::shared_ptr<const jit::Module>& module() const { return module_; }
  void poison(bool on) { poisoned_ = on; }  // for tests: fills the arena with NaN bytes before each run

 private:
  struct Action {
    enum class What : std::uint8_t { nothing, dispatch, blas, kernels };
    What what = What::nothing;
    std::size_t number = 0;              // of its NodeCall, BlasCall or KernelCall
    std::vector<StorageId> to_allocate;  // of homes own and escapes: memory that must be there before
    std::vector<StorageId> to_release;   // after
  };
  void prepare(std::size_t call);
  void place_arena();
  void run_folded();
  void allocate(StorageId s);
  void act(const Action& action, const std::vector<double>& scalars);

  const Plan& plan_;
  CallIndex index_;
  Slots slots_;
  std::shared_ptr<const jit::Module> module_;
  at::DataPtr arena_;
  std::vector<NodeCall> node_calls_;
  std::vector<BlasCall> blas_calls_;
  std::vector<KernelCall> kernel_calls_;
  std::vector<Action> actions_;  // per call
  std::vector<std::int32_t> first_use_, last_use_;
  std::vector<std::vector<c10::Storage>> escaped_;  // per storage: buffers that were handed out, used again once the caller has let go
  std::vector<double> shortest_us_;
  torch::jit::Stack stack_;
  std::int64_t failed_ = -1, reached_ = -1;
  bool timing_ = false, poisoned_ = false;
};

}  // namespace tandem
