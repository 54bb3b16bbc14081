// The recorder's audits, and what two recordings or a recording and the living say about each other.
#include "autograd/audit.h"
#include "autograd/capture.h"
#include "autograd/op.h"
#include "autograd/text.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem {
namespace {

std::string place(const Graph& graph, StorageId id, std::int32_t producer) {
  const auto& s = graph.storages[id];
  if (s.role != Role::internal) return std::string(name_of(s.role)) + " '" + s.name + "'";
  return producer < 0 ? "storage s" + std::to_string(id) : "the result of " + describe(graph.nodes[producer]);
}

}  // namespace

void Recorder::audit_before(const Node& node) {
  if (node.effects.random && generator_hash() != generator_)
    return refuse("the random generator was moved by hand before " + describe(node) + ", expected it where the last random op left it");
  for_each_value(node.args, [&](ValueId v) {
    const auto id = recording_.graph.values[v].storage;
    auto& k = known_[id];
    const auto alive = recording_.storages[id].lock();
    if (!alive || refused()) return;
    const auto hash = hash_of(c10::Storage(alive));
    if (k.hashed && k.hash != hash)
      refuse(place(recording_.graph, id, k.producer) + " was changed outside the recorded ops before " + describe(node) +
             " (raw memory access, or another thread)");
    k.hash = hash;
    k.hashed = true;
  });
}

void Recorder::audit_after(const Node& node) {
  if (node.effects.random) generator_ = generator_hash();
  std::uint64_t all = 0;
  auto look = [&](ValueId v, bool result) {
    const auto id = recording_.graph.values[v].storage;
    auto& k = known_[id];
    const auto alive = recording_.storages[id].lock();
    if (!alive) return;
    const auto hash = hash_of(c10::Storage(alive));
    const bool written = std::binary_search(node.writes.begin(), node.writes.end(), id);
    if (!result && !written && k.hashed && k.hash != hash)
      refuse(describe(node) + " wrote " + place(recording_.graph, id, k.producer) +
             ", which neither its schema nor the op table says: expected a row for it in autograd/ops.def");
    k.hash = hash;
    k.hashed = true;
    if (result || written) all = combine_hashes(all, hash);
  };
  for_each_value(node.args, [&](ValueId v) { look(v, false); });
  for_each_value(node.results, [&](ValueId v) { look(v, true); });
  recording_.hashes.push_back(all);
}

void Recorder::open_seals(const Node& node) {
  for (auto id = seals_.broken(); id >= 0 && !refused(); id = seals_.broken()) note_pointer(id);
  for_each_value(node.args, [&](ValueId v) { seals_.open(recording_.graph.values[std::size_t(v)].storage); });
}

/// A replay would answer with memory that holds nothing: it has to stop at the node that makes it.
void Recorder::note_pointer(StorageId id) {
  seals_.open(id);
  const auto& made_by = recording_.graph.nodes[std::size_t(known_[std::size_t(id)].producer)];
  const auto what = "a pointer that the host takes (data_ptr, accessor) to the result of " + describe(made_by);
  if (forbids_reads_) forbid(what, call_stack());
  if (!pointers_ || !made_by.writes.empty()) return refuse("expected ops, item() or to(), found " + what);
  recording_.pointers.emplace(made_by.id, made_by.op);
}

/// Nobody converts a result to double and leaves it at that, but printing does: it reads it.
void Recorder::find_dead_conversions() {
  const auto& g = recording_.graph;
  std::vector<char> used(g.storages.size(), false);
  for (const auto& n : g.nodes) for_each_value(n.args, [&](ValueId v) { used[std::size_t(g.values[std::size_t(v)].storage)] = true; });
  for (const auto& n : g.nodes) {
    const auto* row = find_op(n.op);
    if (!row || row->kind != Kind::copy || n.effects.host_read || !n.writes.empty() || !n.ran_for.empty()) continue;
    if (n.results.size() != 1 || n.results[0].values.size() != 1 || n.args[0].values.size() != 1) continue;
    const auto &to = g.values[std::size_t(n.results[0].values[0])], &from = g.values[std::size_t(n.args[0].values[0])];
    const auto s = std::size_t(to.storage);
    if (to.dtype == at::kDouble && from.dtype != at::kDouble && !used[s] && recording_.storages[s].expired())
      recording_.pointers.emplace(n.id, n.op);
  }
}

/// What the host fills itself and what it was given by a read is its own.
void Recorder::seal(const Node& node) {
  auto one = [&](ValueId v) {
    const auto id = recording_.graph.values[std::size_t(v)].storage;
    const auto& k = known_[std::size_t(id)];
    if (recording_.graph.storages[std::size_t(id)].role != Role::internal || k.factory >= 0) return;
    if (k.producer < 0 || recording_.graph.nodes[std::size_t(k.producer)].effects.host_read) return;
    if (const auto alive = recording_.storages[std::size_t(id)].lock()) seals_.seal(id, c10::Storage(alive));
  };
  for_each_value(node.args, one);
  for_each_value(node.results, one);
}

void Recorder::measure_memory(const Node& node) {
  const auto& graph = recording_.graph;
  for_each_value(node.results, [&](ValueId v) {
    const auto s = graph.values[v].storage;
    if (graph.storages[s].role == Role::internal && known_[s].producer == node.id &&
        std::find(alive_.begin(), alive_.end(), s) == alive_.end())
      alive_.push_back(s);
  });
  std::erase_if(alive_, [&](StorageId s) { return recording_.storages[s].expired(); });
  double bytes = 0;
  for (auto s : alive_) bytes += double(graph.storages[s].bytes);
  recording_.memory.push_back(bytes);
}

Recording Recorder::finish() {
  if (audit_ && !refused() && generator_hash() != generator_) {
    const auto& nodes = recording_.graph.nodes;
    recording_.generator_moved = true;
    if (std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.effects.random; }))
      refuse("the random generator moved outside the recorded random ops, expected it where the last of them left it");
  }
  for (auto id = seals_.broken(); id >= 0 && !refused(); id = seals_.broken()) note_pointer(id);
  seals_.open_all();
  if (audit_ && pointers_ && !forbids_reads_ && !refused()) find_dead_conversions();
  if (refused()) recording_.pointers.clear();
  if (!recording_.pointers.empty()) {
    const auto& [node, op] = *recording_.pointers.begin();
    refuse("the host reads the result of node " + std::to_string(node) + " " + op + " through a pointer (data_ptr, accessor, printing)");
  }
  for (auto& c : recording_.captured) c.version_at_end = c.version.enabled() ? c.version.current_version() : 0;
  if (recording_.graph.nodes.empty()) refuse("no op was recorded, expected the step to run LibTorch ops on the calling thread");
  return std::move(recording_);
}

std::vector<ValueId> escapes(const Recording& recording, const std::vector<c10::StorageImpl*>& exempt) {
  const auto& graph = recording.graph;
  std::vector<ValueId> best(graph.storages.size(), -1);
  for (std::size_t v = 0; v < graph.values.size(); v++) {
    const auto& value = graph.values[v];
    auto& b = best[std::size_t(value.storage)];
    auto better = [&](const Value& other) {
      return value.version != other.version ? value.version > other.version : bytes_of(value) > bytes_of(other);
    };
    if (b < 0 || better(graph.values[std::size_t(b)])) b = ValueId(v);
  }
  std::vector<ValueId> out;
  for (std::size_t s = 0; s < recording.storages.size(); s++) {
    if (graph.storages[s].role != Role::internal) continue;
    const auto alive = recording.storages[s].lock();
    if (alive && std::find(exempt.begin(), exempt.end(), alive.get()) == exempt.end()) out.push_back(best[s]);
  }
  return out;
}

bool is_host_made(const Node& node) {
  const auto* row = node.effects.host_read ? find_op(node.op) : nullptr;
  return row && row->kind == Kind::factory;
}

/// Memory that holds nothing yet gets a pattern, so that whatever the host writes is seen.
void Recorder::note_factory(const Node& node) {
  constexpr int pattern = 0xcb;
  const auto* row = find_op(node.op);
  for_each_value(node.results, [&](ValueId v) {
    const auto id = recording_.graph.values[v].storage;
    auto& k = known_[id];
    const auto alive = recording_.storages[id].lock();
    if (k.producer != node.id || k.version != 0 || !alive || alive->device_type() != c10::DeviceType::CPU) return;
    c10::Storage storage(alive);
    if (row->formula == "arbitrary" && storage.nbytes() > 0) std::memset(storage.mutable_data(), pattern, storage.nbytes());
    k.factory = node.id;
    k.factory_hash = hash_of(storage);
  });
}

/// At the first use of what a factory made: was it the host that filled it?
void Recorder::find_host_made(StorageId id) {
  auto& graph = recording_.graph;
  auto& k = known_[std::size_t(id)];
  const auto factory = std::exchange(k.factory, -1);
  const auto alive = recording_.storages[std::size_t(id)].lock();
  if (!alive || hash_of(c10::Storage(alive)) == k.factory_hash) return;
  graph.nodes[std::size_t(factory)].effects.host_read = true;
  auto& s = graph.storages[std::size_t(id)];
  s.role = Role::captured;
  s.index = std::int32_t(recording_.captured.size());
  s.name = "captured " + std::to_string(s.index);
  recording_.captured.push_back({id, recording_.storages[std::size_t(id)], c10::VariableVersion(0), 0, 0});
  k.hashed = false;
  if (copies_) keep_outside(id, c10::Storage(alive));
}

std::string escaped(const Recording& recording, const std::vector<c10::StorageImpl*>& exempt) {
  const auto& graph = recording.graph;
  for (auto v : escapes(recording, exempt))
    for (const auto& n : graph.nodes) {
      bool made = false;
      for_each_value(n.results, [&](ValueId r) { made |= graph.values[r].storage == graph.values[v].storage; });
      if (made)
        return "somebody keeps the result of " + describe(n) +
               " alive after the end, expected only what is returned, and gradients: a plan would not refresh it";
    }
  return "";
}

Computed computed(const Recording& recording) {
  Computed out{recording.graph, {}};
  const auto& nodes = recording.graph.nodes;
  for (std::size_t i = 0; i < recording.hashes.size(); i++)
    if (!is_host_made(nodes[i])) out.hashes.push_back(recording.hashes[i]);
  std::erase_if(out.graph.nodes, is_host_made);
  return out;
}

bool misses(const Graph& graph, const PointerReads& pointers) {
  return std::any_of(pointers.begin(), pointers.end(), [&](const auto& p) {
    const auto i = std::size_t(p.first);
    return i < graph.nodes.size() && graph.nodes[i].op == p.second && !graph.nodes[i].effects.host_read;
  });
}

std::string host_read(const Graph& graph) {
  for (const auto& n : graph.nodes) {
    if (!n.effects.host_read) continue;
    if (is_host_made(n))
      return "the closure fills the memory of a tensor on the host (" + describe(n) +
             "), expected none where it is not called in each step";
    const bool number =
        std::any_of(n.results.begin(), n.results.end(), [](const Argument& r) { return r.kind == Argument::Kind::constant; });
    if (number)
      return "the loss function reads a tensor on the host in " + describe(n) +
             ", expected none: what it does next may depend on the number";
    return "the sizes of what " + describe(n) + " returns depend on its operands' values, expected sizes that follow from sizes";
  }
  return "";
}

std::string late_capture(const Recording& r) {
  std::vector<char> shown(r.graph.storages.size(), false);
  for (std::size_t n = 0; n < r.graph.nodes.size(); n++)
    for (const auto& a : r.graph.nodes[n].args)
      for (auto v : a.values) {
        if (v < 0) continue;
        const auto s = std::size_t(r.graph.values[std::size_t(v)].storage);
        shown[s] |= n < r.forward_end;
        if (!shown[s] && r.graph.storages[s].role == Role::captured)
          return describe(r.graph.nodes[n]) + " reads a tensor that the closure does not show";
      }
  return "";
}

std::string replaced(const Recording& before, const Recording& now) {
  for (std::size_t i = 0; i < now.captured.size() && i < before.captured.size(); i++) {
    const auto& a = before.captured[i];
    const auto& b = now.captured[i];
    if (a.storage._unsafe_get_target() == b.storage._unsafe_get_target() && !b.storage.expired()) continue;
    for (const auto& n : now.graph.nodes) {
      bool reads = false;
      for_each_value(n.args, [&](ValueId v) { reads |= now.graph.values[v].storage == b.id; });
      if (reads)
        return describe(n) +
               " reads a tensor that no recorded op made and that is another one in each step (a state tensor that is replaced, "
               "made on another thread or from host memory), expected the same tensor";
    }
  }
  return "";
}

}  // namespace tandem
