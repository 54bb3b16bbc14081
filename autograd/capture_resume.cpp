// A recording that starts in the middle of a step, and copies of what a step writes.
#include "autograd/audit.h"
#include "autograd/capture.h"
#include "autograd/numbers.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstring>

namespace tandem {
namespace {

c10::Storage copy_of(const c10::Storage& s) {
  c10::Storage out(c10::Storage::use_byte_size_t(), s.nbytes(), c10::GetAllocator(s.device_type()), /*resizable=*/true);
  if (s.nbytes() > 0) std::memcpy(out.mutable_data(), s.data(), s.nbytes());
  return out;
}

}  // namespace

void Recorder::copy_outside(const std::vector<const Graph*>& recorded) {
  copies_ = true;
  for (const auto* g : recorded)
    for (const auto& n : g->nodes)
      for (auto s : n.writes) copied_.emplace(g->storages[std::size_t(s)].role, g->storages[std::size_t(s)].index);
}

void Recorder::note_alive() {
  Alive alive{recording_.graph.nodes.size(), {}};
  const auto& graph = recording_.graph;
  for (std::size_t s = 0; s < known_.size(); s++) {
    if (graph.storages[s].role != Role::internal || recording_.storages[s].expired()) continue;
    ValueId best = -1;
    for (auto v : known_[s].values)
      if (graph.values[std::size_t(v)].version == known_[s].version &&
          (best < 0 || bytes_of(graph.values[std::size_t(v)]) > bytes_of(graph.values[std::size_t(best)])))
        best = v;
    if (best >= 0) alive.values.push_back(best);
  }
  recording_.alive.push_back(std::move(alive));
}

bool copied_all(const Recording& r) {
  for (const auto& n : r.graph.nodes)
    for (auto s : n.writes) {
      const auto i = std::size_t(s);
      if (r.graph.storages[i].role == Role::internal) continue;
      if (i >= r.before.size() || r.before[i].unsafeGetStorageImpl() == r.outside[i].unsafeGetStorageImpl()) return false;
    }
  return true;
}

void Recorder::keep_outside(StorageId id, const c10::Storage& storage) {
  const auto s = std::size_t(id);
  recording_.outside.resize(std::max(s + 1, recording_.outside.size()));
  recording_.before.resize(recording_.outside.size());
  const auto& info = recording_.graph.storages[s];
  if (info.role == Role::internal) return;
  recording_.outside[s] = storage;
  recording_.before[s] = copied_.count({info.role, info.index}) ? copy_of(storage) : storage;
}

void Recorder::resume(const Prefix& prefix) {
  const auto& from = *prefix.recorded;
  auto& graph = recording_.graph;
  first_sequence_ = prefix.first_sequence;
  const auto named = named_by(from.graph, prefix.nodes);
  graph.nodes.assign(from.graph.nodes.begin(), from.graph.nodes.begin() + std::ptrdiff_t(prefix.nodes));
  set_numbers(graph, prefix.numbers);
  graph.values.assign(from.graph.values.begin(), from.graph.values.begin() + std::ptrdiff_t(named.values));
  graph.storages.assign(from.graph.storages.begin(), from.graph.storages.begin() + std::ptrdiff_t(named.storages));
  known_.resize(named.storages);
  for (std::size_t v = 0; v < named.values; v++) known_[std::size_t(graph.values[v].storage)].values.push_back(ValueId(v));
  for (const auto& n : graph.nodes) {
    for (auto s : n.writes) known_[std::size_t(s)].version++;
    for_each_value(n.results, [&](ValueId v) {
      auto& k = known_[std::size_t(graph.values[std::size_t(v)].storage)];
      if (k.producer < 0) k.producer = n.id;
    });
    for (auto s : n.writes) known_[std::size_t(s)].producer = n.id;
  }
  for (std::size_t s = 0; s < named.storages; s++) {
    auto* impl = prefix.storages[s];
    const auto handle = impl ? c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl) : c10::intrusive_ptr<c10::StorageImpl>();
    recording_.storages.emplace_back(handle);
    if (copies_) keep_outside(StorageId(s), c10::Storage(handle));
    if (!impl) continue;
    ids_[impl] = StorageId(s);
    if (graph.storages[s].role == Role::internal) alive_.push_back(StorageId(s));
  }
  for (const auto& c : prefix.captured)
    if (std::size_t(c.id) < named.storages) recording_.captured.push_back(c);
  for (const auto& a : from.alive)
    if (a.node < prefix.nodes) recording_.alive.push_back(a);
  for (const auto& [node, stack] : from.read_at)
    if (std::size_t(node) < prefix.nodes) recording_.read_at.emplace(node, stack);
  for (const auto& r : from.returned)
    if (r.node < prefix.nodes) recording_.returned.push_back(r);
  recording_.hashes.assign(prefix.nodes, 0);
  recording_.memory.assign(from.memory.begin(), from.memory.begin() + std::ptrdiff_t(std::min(prefix.nodes, from.memory.size())));
  recording_.memory.resize(prefix.nodes);
  recording_.forward_end = std::min(from.forward_end, prefix.nodes);
  recording_.first_update = std::min(from.first_update, prefix.nodes);
}

void Recorder::resumed() {
  if (audit_) generator_ = generator_hash();
}

}  // namespace tandem
