#include "autograd/pass.h"
#include "autograd/passes/facts.h"

namespace tandem {
namespace {

constexpr std::int64_t largest_folded = 1 << 20;  // bytes of one node's results: they are kept for the plan's life

bool may_run_once(Kind kind) {
  return kind == Kind::factory || kind == Kind::pointwise || kind == Kind::view || kind == Kind::copy || kind == Kind::reduction;
}

/// `constant`: per storage, whether a foldable node made it.
bool depends_on_nothing(const Graph& g, const Node& n, const std::vector<char>& constant) {
  bool nothing = true;
  for (const Argument& a : n.args) nothing &= a.scalar < 0;
  for_each_value(n.args, [&](ValueId v) { nothing &= constant[g.values[v].storage] != 0; });
  return nothing;
}

}  // namespace

std::vector<char> foldable(const Graph& g) {
  const StorageFacts facts = storage_facts(g);
  std::vector<char> nodes(g.nodes.size(), false), constant(g.storages.size(), false);
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    const OpRow* row = pure_row(n);
    if (!row || !may_run_once(row->kind) || !depends_on_nothing(g, n, constant)) continue;
    bool kept_safe = true;
    std::int64_t bytes = 0;
    for_each_value(n.results, [&](ValueId v) {
      const StorageId s = g.values[v].storage;
      kept_safe &= g.storages[s].role == Role::internal && !facts.written[s] && !facts.escapes[s];
      if (!constant[s]) bytes += g.storages[s].bytes;
    });
    if (!kept_safe || bytes > largest_folded) continue;
    nodes[i] = true;
    for_each_value(n.results, [&](ValueId v) { constant[g.values[v].storage] = true; });
  }
  return nodes;
}

Graph fold(const Graph& g) {
  Graph out = g;
  out.made_by = "fold";
  const std::vector<char> once = foldable(g);
  for (std::size_t i = 0; i < out.nodes.size(); ++i) out.nodes[i].folded = once[i];
  return out;
}

}  // namespace tandem
