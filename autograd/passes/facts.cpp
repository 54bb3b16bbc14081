#include "autograd/passes/facts.h"

namespace tandem {

StorageFacts storage_facts(const Graph& g) {
  StorageFacts facts{std::vector<char>(g.storages.size(), false), std::vector<char>(g.storages.size(), false)};
  for (const Node& n : g.nodes)
    for (StorageId s : n.writes) facts.written[s] = true;
  auto escape = [&](ValueId v) {
    if (v >= 0) facts.escapes[g.values[v].storage] = true;
  };
  escape(g.loss);
  escape(g.grad_norm);
  for (ValueId v : g.outputs) escape(v);
  for (const Gradient& gradient : g.gradients) {
    escape(gradient.value);
    escape(gradient.before);
  }
  return facts;
}

const OpRow* pure_row(const Node& n) {
  if (n.effects != Effects{} || !n.writes.empty()) return nullptr;
  for (const Argument& a : n.results)
    if (a.kind == Argument::Kind::constant) return nullptr;
  const OpRow* row = find_op(n.op);
  return row && row->kind != Kind::random ? row : nullptr;
}

bool reads_storage(const Graph& g, const Node& n, StorageId s) {
  bool found = false;
  for_each_value(n.args, [&](ValueId v) { found |= g.values[v].storage == s; });
  return found;
}

}  // namespace tandem
