#include "partitioner/validate_copies.h"

#include "autograd/op.h"

#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

namespace tandem {
namespace {

class CopyChecker {
 public:
  CopyChecker(const Graph& g, const Partition& p) : g_(g), p_(p) {}

  std::string run() && {
    for (const Node& n : g_.nodes) nodes_.emplace(n.id, &n);
    for (const Recomputed& r : p_.recomputed) pair(r);
    if (broken_.empty()) walk();
    if (broken_.empty() && bytes_ != p_.recomputed_bytes)
      fail("what is made again has {} bytes, the partition says {}", bytes_, p_.recomputed_bytes);
    return broken_;
  }

 private:
  struct Copied {
    StorageId of = -1;         // the memory that this one stands for
    std::int32_t version = 0;  // as far as copies have written it; another node's write makes a version that no copy may read
  };

  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    if (broken_.empty()) broken_ = fmt::format(format, std::forward<Args>(args)...);
  }

  const Node* node(NodeId id) const {
    const auto found = nodes_.find(id);
    return found == nodes_.end() ? nullptr : found->second;
  }

  void pair(const Recomputed& r) {
    const Node *n = node(r.node), *copy = node(r.as);
    if (!n || !copy) return fail("recomputed names node {}, the graph has none of that number", n ? r.as : r.node);
    if (n->side != Side::forward) return fail("{} is recomputed, but only forward nodes may be", describe(*n));
    if (copy->side != Side::backward) return fail("{} is recomputed as {}, expected a node of the backward", describe(*n), describe(*copy));
    const OpRow* row = find_op(n->op);
    if (n->effects != Effects{} || copy->effects != Effects{} || !row || row->kind == Kind::random)
      return fail("{} is recomputed, but it draws random numbers, has effects or is unknown", describe(*n));
    if (n->folded || copy->folded) return fail("{} is recomputed, but it runs once for all steps", describe(*n));
    if (!originals_.emplace(copy->id, n).second) return fail("node {} is listed twice as what recomputes a node", r.as);
    if (!recomputed_.insert(n).second) return fail("{} is recomputed twice", describe(*n));
    if (r.as <= last_) return fail("recomputed lists n{} after n{}, expected ascending numbers", r.as, last_);
    last_ = r.as;
  }

  void walk() {
    born_.assign(g_.storages.size(), false);
    for (std::size_t s = 0; s < g_.storages.size(); ++s) born_[s] = g_.storages[s].role != Role::internal;
    for (const Node& n : g_.nodes) {
      const auto found = originals_.find(n.id);
      if (found != originals_.end()) compare(*found->second, n);
      for_each_value(n.results, [&](ValueId v) { born_[g_.values[v].storage] = true; });
      if (!broken_.empty()) return;
    }
  }

  void compare(const Node& n, const Node& copy) {
    if (n.op != copy.op || n.stream != copy.stream || n.args.size() != copy.args.size() || n.results.size() != copy.results.size() ||
        n.writes.size() != copy.writes.size())
      return fail("{} is recomputed as {}, which is another call", describe(n), describe(copy));
    for (std::size_t i = 0; i < n.args.size(); ++i) compare_operands(n, copy, i);
    for (StorageId s : copy.writes) write(n, copy, s);
    for (std::size_t i = 0; i < n.results.size(); ++i) compare_results(n, copy, n.results[i], copy.results[i]);
  }

  static bool alike(const Argument& a, const Argument& b) {
    if (a.kind != b.kind || a.values.size() != b.values.size()) return false;
    return a.kind != Argument::Kind::constant || a == b;
  }

  static bool same_place(Value a, const Value& b) {
    a.storage = b.storage;
    return a == b;
  }

  void compare_operands(const Node& n, const Node& copy, std::size_t i) {
    if (!alike(n.args[i], copy.args[i])) return fail("{} is recomputed as {}, whose argument {} differs", describe(n), describe(copy), i);
    for (std::size_t k = 0; k < n.args[i].values.size(); ++k) {
      const ValueId a = n.args[i].values[k], b = copy.args[i].values[k];
      if (a == b) continue;
      const auto copied = a < 0 || b < 0 ? copied_.end() : copied_.find(g_.values[b].storage);
      const bool equal = copied != copied_.end() && copied->second.of == g_.values[a].storage &&
                         copied->second.version == g_.values[b].version && same_place(g_.values[a], g_.values[b]);
      if (!equal)
        fail("{} is recomputed as {}, which reads %{} instead of %{} or what was made again for it", describe(n), describe(copy), b, a);
    }
  }

  void write(const Node& n, const Node& copy, StorageId s) {
    const auto copied = copied_.find(s);
    if (copied == copied_.end()) return fail("{} is recomputed as {}, which writes s{}, that no copy made", describe(n), describe(copy), s);
    bool writes_it = false;
    for (StorageId original : n.writes) writes_it |= original == copied->second.of;
    if (!writes_it)
      fail("{} is recomputed as {}, which writes s{}, that stands for s{}", describe(n), describe(copy), s, copied->second.of);
    ++copied->second.version;
  }

  void compare_results(const Node& n, const Node& copy, const Argument& of, const Argument& again) {
    if (!alike(of, again) || of.kind == Argument::Kind::constant)
      return fail("{} is recomputed as {}, whose results differ or are numbers", describe(n), describe(copy));
    for (std::size_t k = 0; k < of.values.size(); ++k) {
      const ValueId a = of.values[k], b = again.values[k];
      if (a < 0 && b < 0) continue;
      if (a < 0 || b < 0 || !same_place(g_.values[a], g_.values[b]))
        return fail("{} is recomputed as {}, whose results differ or are numbers", describe(n), describe(copy));
      make(n, copy, g_.values[a], g_.values[b]);
    }
  }

  void make(const Node& n, const Node& copy, const Value& of, const Value& again) {
    const StorageId s = again.storage;
    if (const auto copied = copied_.find(s); copied != copied_.end()) {
      if (copied->second.of != of.storage)
        fail("{} is recomputed as {}, which returns s{}, that stands for s{}", describe(n), describe(copy), s, copied->second.of);
      return;
    }
    if (born_[s]) return fail("{} is recomputed as {}, whose result lies in s{}, that existed before", describe(n), describe(copy), s);
    if (g_.storages[s].bytes != g_.storages[of.storage].bytes)
      return fail("{} is recomputed as {}, whose result has {} bytes of memory instead of {}", describe(n), describe(copy),
                  g_.storages[s].bytes, g_.storages[of.storage].bytes);
    copied_[s] = {of.storage, 0};
    bytes_ += g_.storages[s].bytes;
  }

  const Graph& g_;
  const Partition& p_;
  std::unordered_map<NodeId, const Node*> nodes_, originals_;  // originals_: by the copy's number
  std::unordered_set<const Node*> recomputed_;
  std::unordered_map<StorageId, Copied> copied_;
  std::vector<char> born_;  // per storage: exists at this point of the walk
  NodeId last_ = -1;
  std::int64_t bytes_ = 0;
  std::string broken_;
};

}  // namespace

std::string wrong_copy(const Graph& g, const Partition& p) { return CopyChecker(g, p).run(); }

}  // namespace tandem
