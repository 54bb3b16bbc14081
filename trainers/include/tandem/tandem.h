// Tandem: a training-step compiler for LibTorch. This is the whole public interface.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tandem {

#ifndef TANDEM_ERROR
#define TANDEM_ERROR
/// Wrong use of the library. The text is one sentence: what was expected, what was found, where.
struct Error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
#endif

/// How a step is treated. A plain struct for designated initialisers. Every mechanism has one switch; guards and checks have none.
struct Options {
  bool compile = true;  ///< false: every step runs eager, nothing is recorded

  std::optional<double> clip_grad_norm = {};   ///< as torch::nn::utils::clip_grad_norm_(max_norm), without its host read; > 0
  double clip_norm_type = 2.0;                 ///< p of the norm, > 0; infinity gives the largest absolute value
  std::optional<double> clip_grad_value = {};  ///< as torch::nn::utils::clip_grad_value_; >= 0; applied after the norm

  std::int64_t accumulate = 1;     ///< micro-batches per update; gradients are summed as repeated backward() does
  bool keep_grads = false;         ///< leave .grad defined after the update; otherwise it is undefined after each update
  bool zero_grad_to_none = true;   ///< as Optimizer::zero_grad(set_to_none); false keeps and zeroes the gradients in place
  std::int64_t shadow_every = 16;  ///< every n-th compiled step runs eager, recorded, and must agree with the plan; >= 2
  std::int64_t max_plans = 8;      ///< plans kept per step object; the least used goes first; more in turn than this run eager
  std::string problem_dir = {};    ///< where a failed check writes its replayable text problem; empty: kept in the report only

  bool fold = true;        ///< run nodes that depend on nothing once, at activation
  bool cse = true;         ///< merge equal pure nodes
  bool dce = true;         ///< drop nodes that nothing needs and that cannot throw
  bool decompose = false;  ///< split composite nodes into primitive ones
  bool skip_views = true;  ///< make views from their geometry instead of calling the view op

  bool partition = true;    ///< choose which activations are saved and which are recomputed; off: eager's own choice
  bool fuse = true;         ///< generate kernels for chains of nodes; off: every node is a call of LibTorch, bit-equal to eager
  bool fuse_update = true;  ///< one launch for the update of all parameters
  bool jit = true;          ///< compile kernels in this process; off: by the system's C compiler
  bool blas = true;         ///< call BLAS directly for matrix products
  bool arena = true;        ///< plan the memory of the whole step as one block; off: allocate as eager does
};

/// One curve of a report's page. `x` and `y` have equal lengths.
struct Curve {
  std::string chart, name;
  std::vector<double> x, y;
};

/// One sentence about something that happened. Kinds: recorded, activated, recompile, fallback, refused, retired, check-failed, evicted.
struct Event {
  std::int64_t step = 0;  ///< number of the call, from 1
  std::string kind, sentence;
};

/// A call of an active plan (a library op, or generated kernels with the nodes that they cover) and the shortest time it took, in microseconds.
struct NodeTime {
  std::string node, side;
  double us = 0;
};

/// What is known of one plan (one combination of shapes, flags and optimizer formula).
struct PlanReport {
  std::int64_t id = 0;
  std::string guard;  ///< the inputs that it was made for, e.g. "float32 [32, 20], int64 [32]"
  bool active = false;
  std::string reason;  ///< why it is not active; empty when it is
  std::int64_t steps = 0;
  std::int64_t nodes_forward = 0, nodes_backward = 0, nodes_update = 0, nodes_folded = 0, nodes_skipped = 0, groups = 0;
  std::int64_t kernels = 0, launches = 0,
               library_calls = 0;                           ///< distinct generated kernels; their runs per step; calls of LibTorch and BLAS
  std::int64_t barriers = 0;                                ///< calls after which all threads wait for each other
  std::int64_t saved_bytes = 0;                             ///< made by the forward, read by backward or update
  std::int64_t recomputed_nodes = 0, recomputed_bytes = 0;  ///< forward nodes that run again for the backward, and their results
  std::int64_t arena_bytes = 0;                             ///< of the block that holds the step's planned memory
  std::string compiler;                                     ///< what compiled the kernels
  double max_error_ratio = 0;                          ///< largest error over the allowed one; 0 where bit-equal to eager, <= 1 when passed
  double record_ms = 0, compile_ms = 0, check_ms = 0;  ///< the recorded steps as a whole; passes, planning and compiling; both checks
  std::int64_t eager_peak_bytes = 0, compiled_peak_bytes = 0, check_peak_bytes = 0;  ///< tensor bytes above what lives between steps
  std::vector<double> eager_memory, compiled_memory;                                 ///< the same after each node of one step
  std::vector<NodeTime> nodes;
};

/// The truth about a step object: what is compiled, what is not and why, time and bytes.
struct Report {
  bool active = false;    ///< the latest step ran a plan, or the next one with the same inputs will
  std::string reason;     ///< one sentence when not active
  std::string optimizer;  ///< class, and whether its update is part of the plan
  std::int64_t steps = 0, eager_steps = 0, compiled_steps = 0, shadow_steps = 0, recompiles = 0;
  double first_step_ms = 0, eager_ms = 0, compiled_ms = 0;  ///< medians of the latest 256; eager: unrecorded steps only, else 0
  std::vector<PlanReport> plans;
  std::vector<Event> events;
  std::vector<std::string> problems;  ///< text problems of failed checks, see bench/replay
  std::vector<Curve> curves;          ///< extra curves for the page, the caller's own

  std::string to_string() const;
  std::string to_json() const;
  /// Writes one page that opens without a network. Throws Error when `path` cannot be written.
  void write_html(const std::string& path) const;
};

struct StepResult {
  at::Tensor loss;                  ///< the step's loss, detached
  std::vector<at::Tensor> outputs;  ///< the loss function's further tensors, detached
  at::Tensor grad_norm;             ///< 0-dim total norm before clipping; undefined without clip_grad_norm or without an update
  bool compiled = false;            ///< a plan ran
  bool updated = false;             ///< the optimizer stepped (false inside an accumulation)
};

namespace detail {
using Inputs = std::vector<at::Tensor>;
using LossFunction = std::function<std::vector<at::Tensor>(const Inputs&)>;
inline constexpr std::size_t max_inputs = 8;

template <class F, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, decltype((void(I), std::declval<const at::Tensor&>()))...>;
}

inline std::vector<at::Tensor> as_list(at::Tensor loss) { return {std::move(loss)}; }
template <class... T>
std::vector<at::Tensor> as_list(std::tuple<T...> t) {
  return std::apply([](auto&&... v) { return std::vector<at::Tensor>{at::Tensor(v)...}; }, std::move(t));
}
inline std::vector<at::Tensor> as_list(std::pair<at::Tensor, at::Tensor> p) { return {std::move(p.first), std::move(p.second)}; }
inline std::vector<at::Tensor> as_list(std::vector<at::Tensor> v) { return v; }

/// Erases the loss function's type; `arities` gets bit n for each number n of tensors that it can be called with.
template <std::size_t N = 0, class F>
void add_arities(const std::shared_ptr<F>& f, std::vector<LossFunction>& table) {
  if constexpr (takes<F>(std::make_index_sequence<N>())) {
    table.push_back([f](const Inputs& in) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) { return as_list((*f)(in[I]...)); }
      (std::make_index_sequence<N>());
    });
  } else {
    table.emplace_back();
  }
  if constexpr (N < max_inputs) add_arities<N + 1>(f, table);
}

template <class F>
std::vector<LossFunction> erase(F f) {
  std::vector<LossFunction> table;
  add_arities(std::make_shared<F>(std::move(f)), table);
  return table;
}

template <class M>
std::shared_ptr<torch::nn::Module> module_of(M& model) {
  if constexpr (requires { model.ptr(); }) {  // a ModuleHolder such as torch::nn::Sequential
    return model.is_empty() ? std::shared_ptr<torch::nn::Module>() : std::shared_ptr<torch::nn::Module>(model.ptr());
  } else if constexpr (std::is_base_of_v<torch::nn::Module, M>) {
    return std::shared_ptr<torch::nn::Module>(std::shared_ptr<void>(), &model);  // the caller keeps it alive
  } else {
    return model;
  }
}
}  // namespace detail

/// Replaces one training step: zero_grad, forward, backward, clipping, update.
///
/// The first steps run eager and are recorded. Once two recordings agree and the recorded graph was proved equal to eager on the caller's own
/// batch, the graph replaces the eager step; otherwise the step stays eager and `report()` says why. State stays in the caller's module and
/// optimizer: learning rates, betas, checkpoints and schedulers keep working.
///
/// The loss function must not depend on host state (a member that changes, a counter): a plan does not call it. Every `shadow_every`-th step
/// calls it again and must agree. Branches on the shapes or train flags are safe: each combination gets a plan of its own.
class TrainStep {
 public:
  /// `model`: a ModuleHolder, a shared_ptr to a Module or a Module&. `loss`: a callable of 0 to 8 tensors that returns the loss (one element,
  /// requires grad), or a tuple, pair or vector of the loss and further tensors. Throws Error for options that make no sense.
  template <class Model, class Loss>
  TrainStep(Model& model, torch::optim::Optimizer& optimizer, Loss loss, Options options = {})
      : TrainStep(detail::module_of(model), optimizer, detail::erase(std::move(loss)), std::move(options)) {}

  TrainStep(TrainStep&&) noexcept;
  TrainStep& operator=(TrainStep&&) noexcept;
  ~TrainStep();

  /// Runs one step (with `accumulate` = k: one micro-batch; every k-th call updates). Throws Error for wrong use before anything has changed;
  /// what eager would throw comes through unchanged, and leaves what eager leaves.
  template <class... T>
  StepResult operator()(const T&... inputs) {
    return run(detail::Inputs{at::Tensor(inputs)...});
  }
  StepResult run(const detail::Inputs& inputs);

  /// Applies the update of an incomplete accumulation now; does nothing when there is none. Returns whether it updated.
  bool flush();

  Report report() const;

 private:
  TrainStep(std::shared_ptr<torch::nn::Module> model, torch::optim::Optimizer& optimizer, std::vector<detail::LossFunction> loss,
            Options options);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "0.1.0"
const char* version();

}  // namespace tandem
