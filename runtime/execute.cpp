#include "runtime/execute.h"

#include "autograd/key.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <unordered_map>

namespace tandem {

Executor::Executor(const Plan& plan)
    : plan_(plan), slots_(plan.graph), shortest_us_(plan.graph.nodes.size(), std::numeric_limits<double>::infinity()) {
  std::unordered_map<NodeId, std::size_t> index;
  for (const auto& n : plan.graph.nodes) {
    index[n.id] = calls_.size();
    calls_.emplace_back(plan.graph, n);
  }
  for (const auto& c : plan.program.calls) node_at_.push_back(index.at(c.node));
  ReplayScope below;
  for (std::size_t k = 0; k < node_at_.size(); k++) {
    if (plan.program.calls[k].kind != Call::Kind::once) continue;
    const auto& n = plan.graph.nodes[node_at_[k]];
    calls_[node_at_[k]].run(slots_, {}, stack_);
    for_each_value(n.results, [&](ValueId v) { slots_.keep(plan.graph.values[v].storage); });
  }
}

void Executor::call(std::size_t index, const std::vector<double>& scalars) {
  if (!timing_) return calls_[index].run(slots_, scalars, stack_);
  const auto start = std::chrono::steady_clock::now();
  calls_[index].run(slots_, scalars, stack_);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  shortest_us_[index] = std::min(shortest_us_[index], took.count());
}

void Executor::run(const RunInputs& inputs, const Probe& probe) {
  slots_.release_internal();
  slots_.bind(inputs);
  failed_ = -1;
  ReplayScope below;
  const auto& calls = plan_.program.calls;
  for (std::size_t k = 0; k < calls.size(); k++) {
    if (calls[k].kind == Call::Kind::library) {
      try {
        call(node_at_[k], inputs.scalars);
      } catch (...) {
        failed_ = std::int64_t(node_at_[k]);
        throw;
      }
    }
    if (probe) probe(node_at_[k], slots_);
    for (auto s : plan_.releases[k]) slots_.release(s);
  }
}

}  // namespace tandem
