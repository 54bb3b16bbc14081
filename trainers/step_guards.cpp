// Which entry a step belongs to.
#include "trainers/step_object.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {

Signature TrainStep::Impl::signature_of(const World::Present& present, const StepKind& kind) {
  Tensors tensors{*present.inputs, world.leaves(), world.buffers(), {}, {}};
  for (const auto& state : present.state) tensors.state.push_back(state.tensor);
  for (std::size_t i = 0; i < world.leaves().size(); i++) tensors.gradients.push_back(world.gradient(i, drops_gradients(kind)));
  auto s = observe(tensors);
  s.training = world.training();
  s.first_micro = kind.first_micro;
  s.updates = kind.updates || whole;
  if (kind.updates && kind.update_recorded) s.optimizer = world.formula() ? world.formula()->variant() : "replayed";
  return s;
}

/// One sentence about a step that no plan can stand for, whatever the loss function does.
std::string TrainStep::Impl::unsupported(const Signature& s) const {
  for (std::size_t i = 0; i < s.hooked.size(); i++)
    if (s.hooked[i] && options.replay == Replay::trusted)
      return "parameter '" + world.leaves()[i].name + "' has a gradient hook, expected none: hooks run host code that a plan would skip";
  for (std::size_t i = 0; i < s.inputs.size(); i++) {
    if (s.inputs[i].requires_grad && !whole)
      return fmt::format("input {} requires grad, expected inputs that do not: its gradient would belong to another tensor in each step",
                         i);
    if (s.inputs[i].zero) return fmt::format("input {} is a zero tensor without memory, expected one with memory", i);
    if (s.inputs[i].number) return fmt::format("input {} is a wrapped number, expected a tensor: recorded numbers are constants", i);
  }
  if (s.autocast) return "autocast is on, expected off: its weight cache lives on the host";
  if (s.inference_mode || !s.grad_mode) return "grad mode is off, expected on";
  if (s.anomaly) return "autograd's anomaly mode is on, expected off: it looks at every gradient on the host";
  return "";
}

/// False when more signatures come in turn than plans are kept: they would push each other out before their second recording, for ever.
bool TrainStep::Impl::make_room() {
  constexpr std::int64_t patience = 1000;  // steps
  if (std::int64_t(entries.size()) < options.max_plans) return true;
  const auto oldest = std::min_element(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  if (pushed_out >= 2 * options.max_plans && journal.steps - oldest->used < patience) return false;
  pushed_out += oldest->active().empty() && oldest->eager_reason.empty();
  journal.say("evicted", fmt::format("plan {} for {}: {} plans are kept at most", oldest->id, oldest->guard, options.max_plans));
  if (latest == &*oldest) latest = nullptr;
  for (const auto& p : oldest->paths)
    if (latest_path == &p) latest_path = nullptr;
  entries.erase(oldest);
  return true;
}

/// Where this signature's plan is or will be; nullptr when there is no room for one.
Entry* TrainStep::Impl::entry_for(const Signature& signature) {
  for (auto& e : entries)
    if (e.signature == signature) return &e;
  const bool again = std::any_of(entries.begin(), entries.end(), [](Entry& e) { return !e.active().empty(); });
  if (again && latest) {
    const auto why = "no plan fits: " + difference(latest->signature, signature, world.leaves(), world.buffers());
    if (options.fail_on_recompile) throw Error("Options::fail_on_recompile: expected a step that a plan fits, found none: " + why);
    journal.recompiles++;
    journal.say("recompile", why);
  }
  if (!make_room()) return nullptr;
  entries.emplace_back();
  auto& e = entries.back();
  e.signature = signature;
  e.id = next_id++;
  e.guard = describe(signature);
  e.eager_reason = unsupported(signature);
  return &e;
}

}  // namespace tandem
