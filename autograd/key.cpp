#include "autograd/key.h"

#include <torch/library.h>

#include <mutex>

namespace tandem {
namespace {

thread_local OpListener* listener = nullptr;

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard off(c10::DispatchKey::Fake);
  if (listener)
    listener->on_op(op, keys, *stack);
  else
    redispatch(op, keys, *stack);
}

}  // namespace

void redispatch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake), &stack);
}

std::string claim_key() {
  static std::once_flag once;
  static std::string refusal;
  std::call_once(once, [] {
    try {
      // Leaked on purpose: a step object that is destroyed at exit may outlive any static of ours.
      static auto* library = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::Fake, __FILE__, __LINE__);
      library->fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    } catch (const std::exception&) {
      refusal = "recording needs LibTorch's dispatch key 'Fake', expected it to be free, found another library's fallback on it";
    }
  });
  return refusal;
}

ListenScope::ListenScope(OpListener& l) : outer_(listener), key_(c10::DispatchKey::Fake) { listener = &l; }
ListenScope::~ListenScope() { listener = outer_; }

ReplayScope::ReplayScope()
    : guard_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
             c10::DispatchKeySet(c10::DispatchKey::Fake)),
      grad_mode_(true) {}

}  // namespace tandem
