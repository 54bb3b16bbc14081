#include "runtime/undo.h"

#include "runtime/outcome.h"

#include <algorithm>
#include <cstring>

namespace tandem {

void Undo::keep(const c10::Storage& storage) {
  constexpr std::size_t enough = std::size_t{16} << 20;  // statistics and counters; more would show in the step's peak
  auto* impl = storage.unsafeGetStorageImpl();
  if (std::any_of(before_.begin(), before_.end(), [&](const auto& kept) { return kept.first.unsafeGetStorageImpl() == impl; })) return;
  bytes_ += storage.nbytes();
  lost_ |= bytes_ > enough || !storage.device().is_cpu();
  if (lost_) return;
  const auto* data = static_cast<const char*>(storage.data());
  before_.emplace_back(storage, std::vector<char>(data, data + storage.nbytes()));
}

void Undo::keep(const Tape& tape, std::size_t first, std::size_t last, const RunInputs& inputs) {
  const auto& parts = tape.parts().parts;
  const auto& graph = tape.graph();
  const bool read = last < parts.size() && parts[last].host;
  for (auto n = parts[first].begin; n < parts[read ? last : last - 1].end && !lost_; n++) {
    const auto& node = graph.nodes[n];
    lost_ |= node.side == Side::update;
    if (node.effects.random && !generator_.defined()) generator_ = generator_state();
    for (auto s : node.writes) {
      if (graph.storages[std::size_t(s)].role == Role::internal) continue;
      const auto& storage = inputs.storages[std::size_t(s)].storage;
      storage ? keep(storage) : void(lost_ = true);
    }
  }
  if (lost_) before_.clear();
}

bool Undo::take_back() {
  if (lost_) return false;
  for (const auto& [storage, bytes] : before_) std::memcpy(storage.unsafeGetStorageImpl()->mutable_data(), bytes.data(), bytes.size());
  if (generator_.defined()) set_generator(generator_);
  return true;
}

}  // namespace tandem
