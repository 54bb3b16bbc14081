#include "runtime/lifetimes.h"

#include "autograd/liveness.h"
#include "runtime/outcome.h"

#include <algorithm>
#include <numeric>

namespace tandem {
namespace {

std::vector<double> timeline(const Graph& graph, const std::vector<std::size_t>& order,
                             const std::vector<std::vector<StorageId>>& releases) {
  std::vector<char> alive(graph.storages.size(), false);
  std::vector<double> out;
  double live = 0;
  for (std::size_t k = 0; k < order.size(); k++) {
    const auto& n = graph.nodes[order[k]];
    for_each_value(n.results, [&](ValueId v) {
      const auto s = graph.values[v].storage;
      if (n.folded || alive[s] || graph.storages[s].role != Role::internal) return;
      alive[s] = true;
      live += double(graph.storages[s].bytes);
    });
    out.push_back(live);
    for (auto s : releases[k])
      if (alive[s]) live -= double(graph.storages[s].bytes);
  }
  return out;
}

}  // namespace

std::vector<double> memory_over_step(const Plan& plan) { return live_bytes(plan.graph, plan.program, plan.memory); }

std::vector<double> memory_over_step(const Graph& graph) {
  std::vector<std::size_t> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  return timeline(graph, order, releases(graph, order));
}

std::int64_t peak_of(const std::vector<double>& t) { return t.empty() ? 0 : std::int64_t(*std::max_element(t.begin(), t.end())); }

std::int64_t check_bytes(const Graph& captured, const Plan& plan, bool with_reference) {
  std::int64_t written = 0, outside = 0, gradients = 0;
  for (auto s : written_outside(captured)) written += captured.storages[s].bytes;
  for (const auto& s : captured.storages)
    if (s.role != Role::internal) outside += s.bytes;
  for (const auto& g : captured.gradients)
    if (g.before >= 0) gradients += bytes_of(captured.values[g.before]);
  const auto held = written + gradients;  // the snapshot and eager's gradients, for the whole check
  const auto run = written + gradients;   // private copies and the run's own gradients
  const auto native = peak_of(memory_over_step(captured));
  auto peak = std::max(native, plan.memory.peak_bytes);
  // Four runs in double, each beside a native one; three of the four outcomes are kept.
  if (with_reference) peak += native + 2 * native + 2 * outside + 3 * 2 * (written + gradients);
  return held + run + peak;
}

}  // namespace tandem
