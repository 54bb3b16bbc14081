#include "autograd/pass.h"
#include "autograd/passes/facts.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace tandem {
namespace {

std::size_t hash_of(const Argument& a) {
  std::size_t h = c10::hash_combine(static_cast<std::size_t>(a.kind), static_cast<std::size_t>(a.scalar));
  for (ValueId v : a.values) h = c10::hash_combine(h, static_cast<std::size_t>(v));
  if (a.scalar < 0)
    if (auto* i = std::get_if<std::int64_t>(&a.constant)) h = c10::hash_combine(h, static_cast<std::size_t>(*i));
  return h;
}

std::size_t hash_of(const Node& n) {
  std::size_t h = std::hash<std::string>()(n.op);
  for (const Argument& a : n.args) h = c10::hash_combine(h, hash_of(a));
  return h;
}

bool same_call(const Node& a, const Node& b) { return a.op == b.op && a.stream == b.stream && a.args == b.args; }

bool same_geometry(Value a, const Value& b) {
  a.storage = b.storage;
  a.version = b.version;
  return a == b;
}

std::vector<ValueId> results_of(const Node& n) {
  std::vector<ValueId> list;
  for (const Argument& a : n.results) list.insert(list.end(), a.values.begin(), a.values.end());
  return list;
}

class Merger {
 public:
  explicit Merger(const Graph& g) : facts_(storage_facts(g)), constant_(foldable(g)), out_(g), on_storage_(g.storages.size()) {
    out_.made_by = "cse";
    out_.nodes.clear();
    renamed_.resize(g.values.size());
    for (std::size_t v = 0; v < g.values.size(); ++v) {
      renamed_[v] = static_cast<ValueId>(v);
      on_storage_[g.values[v].storage].push_back(static_cast<ValueId>(v));
    }
  }

  void visit(Node n, bool constant) {
    rename(n.args);
    rename(n.results);
    if (may_merge(n)) {
      std::vector<std::size_t>& equal_hash = seen_[hash_of(n)];
      for (std::size_t earlier : equal_hash)
        if (same_call(out_.nodes[earlier], n) && unite(out_.nodes[earlier], kept_constant_[earlier] && constant, n)) return;
      equal_hash.push_back(out_.nodes.size());
    }
    out_.nodes.push_back(std::move(n));
    kept_constant_.push_back(constant);
  }

  const std::vector<char>& constant() const { return constant_; }
  Graph take() && { return std::move(out_); }

 private:
  using StoragePairs = std::vector<std::pair<StorageId, StorageId>>;

  void rename(std::vector<Argument>& list) const {
    for (Argument& a : list)
      for (ValueId& v : a.values)
        if (v >= 0) v = renamed_[v];
  }

  /// Pure, and each result is a view or on a storage of its own that nobody writes and nobody sees after the step.
  bool may_merge(const Node& n) const {
    if (!pure_row(n)) return false;
    bool may = true;
    for_each_value(n.results, [&](ValueId v) {
      const StorageId s = out_.values[v].storage;
      may &= reads_storage(out_, n, s) || (out_.storages[s].role == Role::internal && !facts_.written[s] && !facts_.escapes[s]);
    });
    return may;
  }

  /// Lets `later`'s results be those of `earlier`; false, and nothing changed, where they are not alike. A merge of memory over two sides
  /// would keep it alive in between, so it is left to what is made once for all runs; views have no memory of their own.
  bool unite(const Node& earlier, bool both_constant, const Node& later) {
    const std::vector<ValueId> kept = results_of(earlier), dropped = results_of(later);
    if (earlier.results.size() != later.results.size() || kept.size() != dropped.size()) return false;
    StoragePairs storages;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if ((kept[i] < 0) != (dropped[i] < 0)) return false;
      if (kept[i] < 0) continue;
      const Value &a = out_.values[kept[i]], &b = out_.values[dropped[i]];
      if (!same_geometry(a, b) || a.version != b.version) return false;
      if (a.storage != b.storage && !pair_storages(storages, a.storage, b.storage)) return false;
    }
    if (!storages.empty() && earlier.side != later.side && !both_constant) return false;
    for (const auto& [from, to] : storages) move_values(from, to);
    for (std::size_t i = 0; i < kept.size(); ++i)
      if (dropped[i] >= 0) renamed_[dropped[i]] = kept[i];
    return true;
  }

  bool pair_storages(StoragePairs& pairs, StorageId kept, StorageId dropped) const {
    const Storage &a = out_.storages[kept], &b = out_.storages[dropped];
    if (a.bytes != b.bytes || a.device != b.device) return false;
    for (const auto& [from, to] : pairs)
      if (from == dropped || to == kept) return from == dropped && to == kept;
    pairs.emplace_back(dropped, kept);
    return true;
  }

  /// Values on `from` become values on `to`: those that exist there already by another name, the others by changing their storage.
  void move_values(StorageId from, StorageId to) {
    for (ValueId v : on_storage_[from]) {
      Value moved = out_.values[v];
      moved.storage = to;
      auto twin = std::find_if(on_storage_[to].begin(), on_storage_[to].end(), [&](ValueId other) { return out_.values[other] == moved; });
      if (twin != on_storage_[to].end()) {
        renamed_[v] = *twin;
      } else {
        out_.values[v] = moved;
        on_storage_[to].push_back(v);
      }
    }
    on_storage_[from].clear();
  }

  StorageFacts facts_;
  std::vector<char> constant_;  // per node of the input
  Graph out_;
  std::vector<char> kept_constant_;  // per node of out_
  std::vector<ValueId> renamed_;
  std::vector<std::vector<ValueId>> on_storage_;
  std::unordered_map<std::size_t, std::vector<std::size_t>> seen_;  // hash of the call -> nodes of out_
};

}  // namespace

Graph cse(const Graph& g) {
  Merger merger(g);
  for (std::size_t i = 0; i < g.nodes.size(); ++i) merger.visit(g.nodes[i], merger.constant()[i]);
  return std::move(merger).take();
}

}  // namespace tandem
