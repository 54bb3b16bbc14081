// Records a small program (leaves and a loss) as TrainStep does: twice, the second time with a snapshot, so that the checks can be run on it.
#pragma once

#include "autograd/capture.h"
#include "autograd/text.h"
#include "runtime/check.h"
#include "runtime/lifetimes.h"
#include "runtime/plan.h"

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace tandem::test {

struct Program {
  std::vector<at::Tensor> leaves;  // gradients are compared
  std::function<at::Tensor()> loss;
  std::vector<at::Tensor> buffers = {};  // known by name; others are captured
};

struct Recorded {
  Recording recording;
  EagerStep eager;
  std::vector<Gradient> gradients;
};

inline RunInputs bind(const Program& p, const Recording& r) {
  RunInputs in;
  in.storages.resize(r.graph.storages.size());
  for (std::size_t s = 0; s < r.graph.storages.size(); s++) {
    const auto& info = r.graph.storages[s];
    if (info.role == Role::parameter) in.storages[s].storage = p.leaves[std::size_t(info.index)].storage();
    if (info.role == Role::buffer) in.storages[s].storage = p.buffers[std::size_t(info.index)].storage();
    if (info.role == Role::captured) in.storages[s].storage = c10::Storage(r.captured[std::size_t(info.index)].storage.lock());
  }
  return in;
}

/// One recorded step. `before`: an earlier recording of the same program, for the snapshot; nullptr: no EagerStep is made.
inline Recorded record(Program& p, const Recording* before = nullptr) {
  if (auto refusal = claim_key(); !refusal.empty()) throw std::runtime_error(refusal);
  Recorded out;
  std::vector<KnownTensor> known;
  for (auto& leaf : p.leaves) leaf.mutable_grad() = at::Tensor();
  for (std::size_t i = 0; i < p.leaves.size(); i++)
    known.push_back({Role::parameter, std::int32_t(i), "p" + std::to_string(i), p.leaves[i]});
  for (std::size_t i = 0; i < p.buffers.size(); i++)
    known.push_back({Role::buffer, std::int32_t(i), "b" + std::to_string(i), p.buffers[i]});
  if (before) {
    const auto live = bind(p, *before);
    out.eager.before = private_copy(before->graph, live);
    for (const auto& b : live.storages) out.eager.after.push_back(b.storage);
    out.eager.generator_before = generator_state();
  }
  Recorder recorder(known, /*audit=*/true);
  known.clear();
  at::Tensor loss;
  {
    ListenScope listen(recorder);
    loss = p.loss();
    recorder.set_side(Side::backward);
    if (loss.requires_grad()) loss.backward();
  }
  loss = loss.detach();
  recorder.graph().loss = recorder.value_of(loss, "the loss");
  for (std::size_t i = 0; i < p.leaves.size(); i++) {
    const auto g = p.leaves[i].grad();
    if (!g.defined()) continue;
    const auto v = recorder.value_of(g, "a gradient");
    recorder.graph().gradients.push_back({std::int32_t(i), "p" + std::to_string(i), v, v});
    out.eager.gradients.push_back(g);
    out.eager.kept.push_back(g);
  }
  out.recording = recorder.finish();
  out.eager.loss = loss;
  out.eager.generator_after = generator_state();
  return out;
}

/// Records until the second recording; empty when graph and plan pass both checks, the text form round-trips and the two recordings agree.
inline std::string fault_of(Program p, const PlanSwitches& switches = {}) {
  record(p);  // the first step may be a path of its own
  auto first = record(p);
  if (!first.recording.refusal.empty()) return first.recording.refusal;
  auto second = record(p, &first.recording);
  if (!second.recording.refusal.empty()) return second.recording.refusal;
  const auto& graph = second.recording.graph;
  if (auto d = first_difference(first.recording.graph, graph); !d.empty()) return "recordings differ: " + d;
  if (auto d = replaced(first.recording, second.recording); !d.empty()) return d;
  if (print(parse_graph(print(graph))) != print(graph)) return "the text form does not round-trip";
  if (auto v = check_capture(graph, second.eager, graph.nodes, second.recording.hashes); !v.passed) return v.sentence;
  const auto plan = make_plan(graph, switches);
  if (print(parse_plan(print(plan))) != print(plan)) return "the plan's text form does not round-trip";
  // Rounding to the alignment, and the partial sums of generated kernels, are all that a plan may add.
  std::int64_t slack = 0;
  for (const auto& b : plan.memory.blocks) slack += alignment + (b.storage < 0 ? b.bytes : 0);
  if (!switches.passes.decompose && plan.memory.peak_bytes > peak_of(memory_over_step(graph)) + slack)
    return "the plan's peak is above the graph's: " + std::to_string(plan.memory.peak_bytes) + " bytes, expected at most " +
           std::to_string(peak_of(memory_over_step(graph)) + slack);
  Executor executor(plan);
  const auto v = check_generation(graph, plan, executor, second.eager);
  return v.passed ? "" : v.sentence;
}

}  // namespace tandem::test
