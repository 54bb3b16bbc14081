#include "trainers/compile_replay.h"

#include "autograd/autograd_graph.h"
#include "autograd/key.h"
#include "autograd/placeholder.h"

#include <c10/core/GradMode.h>

namespace tandem {

std::uint64_t fingerprint_of(const std::vector<at::Tensor>& outputs, std::uint64_t first_sequence, const ModuleTensors& world) {
  if (!c10::GradMode::is_enabled()) return 0;
  LeafSet lasting;
  for (const auto& l : world.leaves()) lasting.insert(l.tensor.unsafeGetTensorImpl());
  std::uint64_t hash = 0;
  for (const auto& t : outputs) {
    const bool graph = t.defined() && t.requires_grad() && t.grad_fn();
    hash = hash * 1099511628211ull + (graph ? autograd_fingerprint(t, first_sequence, lasting) : t.defined() && t.requires_grad());
  }
  return hash;
}

namespace {

std::unique_ptr<Recorder> unseen(ModuleTensors& world, const std::vector<at::Tensor>& inputs) {
  return std::make_unique<Recorder>(world.known(inputs), /*audit=*/false);
}

/// In-place ops of the function have moved counters; the plan moves them when it writes.
void put_back(const std::vector<KnownTensor>& known, const std::vector<std::uint32_t>& versions, const Replayer& replayer) {
  for (std::size_t i = 0; i < known.size(); i++) {
    auto counter = known[i].tensor.unsafeGetTensorImpl()->version_counter();
    if (counter.enabled() && counter.current_version() != versions[i]) counter.set_version(versions[i]);
  }
  for (auto c : replayer.captured())
    if (c.version.enabled()) c.version.set_version(c.version_at_start);
}

}  // namespace

CallReplay replay_call(const detail::Callee& callee, ModuleTensors& world, const std::vector<at::Tensor>& inputs,
                       const RecordedCall& recorded, const Tape& tape, const RunInputs& bound, bool writes) {
  CallReplay result;
  const auto known = writes ? world.known(inputs) : std::vector<KnownTensor>();
  const auto versions = versions_of(known);
  Replayer replayer(
      {&tape}, [&](const Tape&, RunInputs& out) { out.storages = bound.storages; }, [](const Tape&, std::size_t, std::size_t) {},
      [&](const Tape&, const std::string&) { return unseen(world, inputs); });
  const auto first_sequence = autograd_sequence();
  auto fits = [&](const Tape&) {
    const auto& outputs = recorded.recording.graph.outputs;
    if (result.out.tensors.size() != outputs.size() || result.out.counts != recorded.counts) return false;
    for (std::size_t i = 0; i < outputs.size(); i++)
      if (!replayer.stands_for(result.out.tensors[i], outputs[i])) return false;
    return fingerprint_of(result.out.tensors, first_sequence, world) == recorded.autograd;
  };
  try {
    ListenScope listen(replayer);
    result.out = callee(inputs);
    SilenceScope quiet;
    if (!replayer.diverged() && !replayer.ends(fits))
      replayer.diverge("the function returned something else than in the recorded calls, or its backward would run something else");
  } catch (const std::exception& e) {
    if (replayer.diverged()) throw;
    if (is_placeholder_read(e)) {
      result.why = "the function reads the memory of a tensor that it computes (data_ptr, accessor): it was called a second time, eager";
      replayer.unveil();
      put_back(known, versions, replayer);
      result.out = callee(inputs);
      return result;
    }
    replayer.diverge("the function threw");
    throw;
  }
  result.followed = !replayer.diverged();
  result.why = replayer.why();
  if (!result.followed) return result;
  result.out = {};
  replayer.unveil();
  put_back(known, versions, replayer);
  if (!replayer.held().empty()) {
    // The function keeps a tensor that the plan does not give: the nodes make its data, on copies of what they write.
    GeneratorScope generator(recorded.recording.graph, generator_state());
    replayer.run_nodes(tape.length(), private_copy(recorded.recording.graph, replayer.inputs()));
  }
  return result;
}

}  // namespace tandem
