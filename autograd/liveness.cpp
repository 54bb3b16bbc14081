#include "autograd/liveness.h"

#include <algorithm>

namespace tandem {

std::size_t Graph::update_begin() const {
  return std::size_t(std::find_if(nodes.begin(), nodes.end(), [](const Node& n) { return n.side == Side::update; }) - nodes.begin());
}

std::vector<char> escaping(const Graph& graph) {
  std::vector<char> out(graph.storages.size(), false);
  auto mark = [&](ValueId v) {
    if (v >= 0) out[graph.values[v].storage] = true;
  };
  mark(graph.loss);
  mark(graph.grad_norm);
  for (auto v : graph.outputs) mark(v);
  for (const auto& g : graph.gradients) mark(g.value);  // not `before`: a gradient that the update drops ends with it
  return out;
}

std::vector<std::vector<StorageId>> releases(const Graph& graph, const std::vector<std::size_t>& order) {
  auto held = escaping(graph);
  for (const auto& n : graph.nodes)
    if (n.folded) for_each_value(n.results, [&](ValueId v) { held[graph.values[v].storage] = true; });
  std::vector<std::int64_t> last(graph.storages.size(), -1);
  for (std::size_t k = 0; k < order.size(); k++) {
    auto use = [&](ValueId v) { last[graph.values[v].storage] = std::int64_t(k); };
    for_each_value(graph.nodes[order[k]].args, use);
    for_each_value(graph.nodes[order[k]].results, use);
  }
  std::vector<std::vector<StorageId>> out(order.size());
  // Gradients live until the update begins, used or not: a check looks at them there.
  std::int64_t boundary = -1;
  for (std::size_t k = 0; k < order.size(); k++)
    if (graph.nodes[order[k]].side != Side::update) boundary = std::int64_t(k);
  for (const auto& g : graph.gradients)
    if (g.before >= 0 && last[graph.values[g.before].storage] >= 0)
      last[graph.values[g.before].storage] = std::max(last[graph.values[g.before].storage], boundary);
  for (std::size_t s = 0; s < last.size(); s++)
    if (last[s] >= 0 && graph.storages[s].role == Role::internal && !held[s]) out[last[s]].push_back(StorageId(s));
  return out;
}

}  // namespace tandem
