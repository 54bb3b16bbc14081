#include "trainers/recorded_step.h"

#include <algorithm>

namespace tandem {

void RecordedStep::drop_data() {
  eager = {};
  has_data = false;
  recording.outside.clear();
  recording.before.clear();
}

void place_as(const RecordedStep& there, RecordedStep& step) {
  auto& graph = step.recording.graph;
  const auto& other = there.recording.graph;
  const auto shift = [&](const Storage& s) {
    const auto i = std::size_t(s.index);
    return i < there.outside.input_start.size() ? step.outside.input_start[i] - there.outside.input_start[i] : 0;
  };
  for (auto& v : graph.values) {
    const auto& s = graph.storages[std::size_t(v.storage)];
    if (s.role == Role::input) v.offset -= shift(s) / std::int64_t(c10::elementSize(v.dtype));
  }
  for (std::size_t s = 0; s < graph.storages.size(); s++) {
    auto& storage = graph.storages[s];
    if (storage.role != Role::input) continue;
    if (s < step.eager.before.storages.size()) step.eager.before.storages[s].shift += shift(storage);
    if (s < other.storages.size() && other.storages[s].role == Role::input) storage.bytes = other.storages[s].bytes;
  }
  step.outside.input_start = there.outside.input_start;
}

}  // namespace tandem
