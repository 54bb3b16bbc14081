#include "partitioner/dependencies.h"

#include "autograd/op.h"

#include <algorithm>
#include <unordered_map>

namespace tandem {
namespace {

struct Memory {
  std::int32_t writer = -1;           // of the present version; -1: it was there before
  std::vector<std::int32_t> readers;  // of the present version
};

class Finder {
 public:
  Finder(const Graph& g, std::size_t begin, const std::vector<Part>& parts) : g_(g), begin_(begin), parts_(parts) {}

  Dependencies run() && {
    out_.before.resize(parts_.size());
    out_.sources.resize(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i] != Part::absent) add(static_cast<std::int32_t>(i));
    for (auto* lists : {&out_.before, &out_.sources})
      for (auto& list : *lists) {
        std::sort(list.begin(), list.end());
        list.erase(std::unique(list.begin(), list.end()), list.end());
      }
    return std::move(out_);
  }

 private:
  StorageId storage(ValueId v) const { return g_.values[static_cast<std::size_t>(v)].storage; }

  void depend(std::int32_t node, std::int32_t on) {
    if (on >= 0 && on != node) out_.before[static_cast<std::size_t>(node)].push_back(on);
  }

  void write(std::int32_t i, StorageId s) {
    Memory& m = memory_[s];
    depend(i, m.writer);
    for (std::int32_t reader : m.readers) depend(i, reader);
    m.writer = i;
    m.readers.clear();
  }

  void add(std::int32_t i) {
    const Part part = parts_[static_cast<std::size_t>(i)];
    const Node& n = g_.nodes[begin_ + static_cast<std::size_t>(i)];
    for_each_value(n.args, [&](ValueId v) {
      Memory& m = memory_[storage(v)];
      depend(i, m.writer);
      if (m.writer >= 0) out_.sources[static_cast<std::size_t>(i)].push_back(m.writer);
      m.readers.push_back(i);
    });
    if (part == Part::view) return;
    for (StorageId s : n.writes) write(i, s);
    keep_exceptions(i, n);
    for_each_value(n.results, [&](ValueId v) {
      if (!known(n, storage(v))) write(i, storage(v));
    });
    if (part != Part::ordered) return;
    depend(i, last_ordered_);
    last_ordered_ = i;
  }

  /// When a node throws, what outlives the step has been written by all nodes before it and by none after it.
  void keep_exceptions(std::int32_t i, const Node& n) {
    for (StorageId s : n.writes) {
      if (g_.storages[static_cast<std::size_t>(s)].role == Role::internal) continue;
      depend(i, last_throwing_);
      lasting_writes_.push_back(i);
    }
    const OpRow* row = find_op(n.op);
    if (row && !n.effects.opaque && !may_throw(row->kind)) return;
    for (std::int32_t w : lasting_writes_) depend(i, w);
    lasting_writes_.clear();
    last_throwing_ = i;
  }

  /// Whether the node did not make the storage anew.
  bool known(const Node& n, StorageId s) const {
    if (std::binary_search(n.writes.begin(), n.writes.end(), s)) return true;
    bool read = false;
    for_each_value(n.args, [&](ValueId v) { read |= storage(v) == s; });
    return read;
  }

  const Graph& g_;
  std::size_t begin_;
  const std::vector<Part>& parts_;
  std::unordered_map<StorageId, Memory> memory_;
  std::int32_t last_ordered_ = -1;
  std::int32_t last_throwing_ = -1;
  std::vector<std::int32_t> lasting_writes_;  // since then
  Dependencies out_;
};

}  // namespace

Dependencies dependencies_of(const Graph& graph, std::size_t begin, const std::vector<Part>& parts) {
  return Finder(graph, begin, parts).run();
}

}  // namespace tandem
