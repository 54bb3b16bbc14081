// The seam in the dispatcher: a boxed fallback on DispatchKey::Fake sees every op below autograd and above kernel decomposition.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string>

namespace tandem {

class OpListener {
 public:
  virtual ~OpListener() = default;
  /// Sees one op with its arguments on the stack; must replace them by the results (see redispatch). Runs with the key switched off.
  virtual void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) = 0;
};

/// Runs the op itself.
void redispatch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);

/// Registers the fallback at the first call. Empty, or one sentence when somebody else holds the key.
std::string claim_key();

/// Switches listening on for this thread and, through LibTorch's thread-local state, for the ops of the autograd engine's threads; only this
/// thread's ops reach the listener.
class ListenScope {
 public:
  explicit ListenScope(OpListener& listener);
  ~ListenScope();
  ListenScope(const ListenScope&) = delete;

 private:
  OpListener* outer_;
  c10::impl::IncludeDispatchKeyGuard key_;
};

/// Switches listening off for this thread while it lives: for work of our own inside a recorded step.
class SilenceScope {
 public:
  SilenceScope() : key_(c10::DispatchKey::Fake) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard key_;
};

/// Everything below autograd, with nobody listening: how recorded nodes are run again. Grad mode is on as in a forward, also where the nodes run from
/// within a backward or an update: some kernels give what a backward needs (LSTM's workspace) in this mode only.
class ReplayScope {
 public:
  ReplayScope();

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
  c10::AutoGradMode grad_mode_;
};

}  // namespace tandem
