// How a step is treated.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace tandem {

#ifndef TANDEM_ERROR
#define TANDEM_ERROR
/// Wrong use of the library. The text is one sentence: what was expected, what was found, where.
struct Error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
#endif

/// What the caller's code does in a compiled step.
enum class Replay : std::uint8_t {
  automatic,  ///< the closure runs, each op is compared with the recorded one and none is computed; where it takes more to be sound, as full
  full,       ///< closure, backward and optimizer run so: hooks, custom functions and any optimizer are seen
  trusted,    ///< nothing runs: for closures that depend on their arguments only. Shadow steps still look
};

/// How a step is treated. A plain struct for designated initialisers. Every mechanism has one switch; guards and checks have none.
struct Options {
  bool compile = true;  ///< false: every step runs eager, nothing is recorded

  std::optional<double> clip_grad_norm = {};   ///< as torch::nn::utils::clip_grad_norm_(max_norm), without its host read; > 0
  double clip_norm_type = 2.0;                 ///< p of the norm, > 0; infinity gives the largest absolute value
  std::optional<double> clip_grad_value = {};  ///< as torch::nn::utils::clip_grad_value_; >= 0; applied after the norm

  std::int64_t accumulate = 1;    ///< micro-batches per update; gradients are summed as repeated backward() does
  bool keep_grads = false;        ///< leave .grad defined after the update; otherwise it is undefined after each update
  bool zero_grad_to_none = true;  ///< as Optimizer::zero_grad(set_to_none); false keeps and zeroes the gradients in place

  Replay replay = Replay::automatic;  ///< what the host does in a compiled step, see Replay
  bool fullgraph = false;             ///< a graph break (the host reads a number that the step computes) is an Error with op and place
  bool fail_on_recompile = false;     ///< a step that no plan fits, once one is active, is an Error with the guard that failed
  std::int64_t shadow_every = 0;  ///< every n-th compiled step runs eager and must agree with the plan; >= 2. 0: the 16th, 32nd, 64th, ...
  std::int64_t max_plans = 8;     ///< guards with a plan, per step object; the least used goes first; more in turn than this run eager
  std::int64_t max_paths = 8;     ///< sequences of ops (branches, loop counts) per guard; more than this run eager
  std::string problem_dir = {};   ///< where a failed check writes its replayable text problem; empty: kept in the report only

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

}  // namespace tandem
