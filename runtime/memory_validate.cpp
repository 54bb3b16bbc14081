// Knows nothing of plan_memory(): it walks the calls and asks for each touched storage whether it can be where the memory plan says.
#include "autograd/liveness.h"
#include "runtime/memory.h"

#include <fmt/format.h>

#include <unordered_map>

namespace tandem {
namespace {

class Validator {
 public:
  Validator(const Graph& g, const Program& p, const Memory& m) : g_(g), p_(p), m_(m), block_of_(g.storages.size(), -1) {}

  std::string run() && {
    if (m_.homes.size() != g_.storages.size())
      return fmt::format("memory: expected a home for each of {} storages, found {}", g_.storages.size(), m_.homes.size());
    for (const Node& n : g_.nodes) {
      node_at_[n.id] = &n;
      if (n.folded) for_each_value(n.results, [&](ValueId v) { folded_.emplace(g_.values[v].storage, true); });
    }
    for (std::size_t i = 0; i < m_.blocks.size() && broken_.empty(); ++i) check_block(i);
    for (std::size_t k = 0; k < p_.calls.size() && broken_.empty(); ++k) check_call(std::int32_t(k));
    const auto escapes = escaping(g_);
    for (std::size_t s = 0; s < escapes.size() && broken_.empty(); ++s)
      if (escapes[s] && (m_.homes[s] == Home::arena || m_.homes[s] == Home::own || m_.homes[s] == Home::none) &&
          touched_.count(StorageId(s)))
        fail("memory: s{} is handed to the caller, but its home is {}", s, name_of(m_.homes[s]));
    return broken_;
  }

 private:
  template <class... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    if (broken_.empty()) broken_ = fmt::format(format, std::forward<Args>(args)...);
  }

  void check_block(std::size_t i) {
    const Block& b = m_.blocks[i];
    const auto end = std::int32_t(p_.calls.size());
    if (b.first < 0 || b.last < b.first || b.last >= end)
      return fail("memory: block {} is in use in calls {} to {}, there are {}", i, b.first, b.last, end);
    if (b.offset < 0 || b.offset % alignment || b.offset + b.bytes > m_.arena_bytes)
      return fail("memory: block {} lies at {} with {} bytes, expected an aligned place in an arena of {}", i, b.offset, b.bytes,
                  m_.arena_bytes);
    for (std::size_t k = 0; k < i; ++k) {
      const Block& o = m_.blocks[k];
      if (b.first <= o.last && o.first <= b.last && b.offset < o.offset + o.bytes && o.offset < b.offset + b.bytes)
        return fail("memory: blocks {} and {} are in use at the same time and overlap", k, i);
    }
    if (b.storage < 0) {
      if (b.first != b.last) fail("memory: block {} is a workspace, expected it to be in use in one call", i);
      if (!workspace_at_.emplace(b.first, i).second) fail("memory: call {} has two workspaces", b.first);
      return;
    }
    if (b.storage >= StorageId(g_.storages.size()))
      return fail("memory: block {} is of s{}, there are {} storages", i, b.storage, g_.storages.size());
    if (m_.homes[b.storage] != Home::arena)
      return fail("memory: s{} has a block, but its home is {}", b.storage, name_of(m_.homes[b.storage]));
    if (b.bytes < g_.storages[b.storage].bytes)
      return fail("memory: s{} has {} bytes, its block {}", b.storage, g_.storages[b.storage].bytes, b.bytes);
    if (block_of_[b.storage] >= 0) return fail("memory: s{} has two blocks", b.storage);
    block_of_[b.storage] = std::int64_t(i);
  }

  void check_call(std::int32_t k) {
    const Call& call = p_.calls[k];
    const auto found = node_at_.find(call.node);
    if (found == node_at_.end()) return fail("memory: call {} names node {}, the graph has none of that number", k, call.node);
    if (call.kind == Call::Kind::library) {
      for_each_value(found->second->args, [&](ValueId v) { touch(k, v); });
      for_each_value(found->second->results, [&](ValueId v) { touch(k, v); });
    }
    for (const Launch& l : call.launches)
      for (ValueId v : l.operands) {
        touch(k, v);
        if (m_.homes[g_.values[v].storage] == Home::op && !touched_.count(g_.values[v].storage))
          fail("memory: s{} is made by a kernel in call {}, but its home is op", g_.values[v].storage, k);
      }
    if (found->second->side != Side::update)
      for (const Gradient& grad : g_.gradients)
        if (grad.before >= 0 && touched_.count(g_.values[grad.before].storage)) covered(k, g_.values[grad.before].storage);
    check_workspace(k, call);
  }

  void touch(std::int32_t k, ValueId v) {
    const StorageId s = g_.values[v].storage;
    if (g_.storages[s].role != Role::internal || folded_.count(s)) return;
    if (m_.homes[s] == Home::none || m_.homes[s] == Home::outside)
      return fail("memory: call {} touches s{}, but its home is {}", k, s, name_of(m_.homes[s]));
    touched_.emplace(s, true);
    covered(k, s);
  }

  void covered(std::int32_t k, StorageId s) {
    if (m_.homes[s] != Home::arena) return;
    if (block_of_[s] < 0) return fail("memory: s{} is in the arena, but has no block", s);
    const Block& b = m_.blocks[std::size_t(block_of_[s])];
    if (k < b.first || k > b.last) fail("memory: call {} needs s{}, whose block is in use in calls {} to {}", k, s, b.first, b.last);
  }

  void check_workspace(std::int32_t k, const Call& call) {
    const auto need = workspace_bytes(p_, call);
    const auto found = workspace_at_.find(k);
    const auto bytes = found == workspace_at_.end() ? 0 : m_.blocks[found->second].bytes;
    if (bytes < need) fail("memory: call {} needs a workspace of {} bytes, found {}", k, need, bytes);
  }

  const Graph& g_;
  const Program& p_;
  const Memory& m_;
  std::vector<std::int64_t> block_of_;
  std::unordered_map<NodeId, const Node*> node_at_;
  std::unordered_map<StorageId, bool> folded_, touched_;
  std::unordered_map<std::int32_t, std::size_t> workspace_at_;
  std::string broken_;
};

}  // namespace

std::string validate(const Graph& g, const Program& p, const Memory& m) { return Validator(g, p, m).run(); }

}  // namespace tandem
