#include "trainers/recorded_step.h"

#include "autograd/slots.h"

#include <algorithm>

namespace tandem {

void RecordedStep::drop_data() {
  eager = {};
  has_data = false;
  recording.outside.clear();
  recording.before.clear();
}

void take_data(Recording& recording, const at::Tensor& generator_before, EagerStep& eager) {
  for (auto& s : recording.before) eager.before.storages.push_back({std::move(s), 0});
  eager.after = std::move(recording.outside);
  eager.before.storages.resize(recording.graph.storages.size());
  eager.after.resize(recording.graph.storages.size());
  eager.generator_before = generator_before;
  eager.generator_after = generator_state();
}

void place_as(const Graph& other, const Outside& there, Graph& graph, Outside& here, EagerStep& eager) {
  const auto shift = [&](const Storage& s) {
    const auto i = std::size_t(s.index);
    return i < std::min(there.input_start.size(), here.input_start.size()) ? here.input_start[i] - there.input_start[i] : 0;
  };
  for (auto& v : graph.values) {
    const auto& s = graph.storages[std::size_t(v.storage)];
    if (s.role == Role::input) v.offset -= shift(s) / std::int64_t(c10::elementSize(v.dtype));
  }
  for (std::size_t s = 0; s < graph.storages.size(); s++) {
    auto& storage = graph.storages[s];
    if (storage.role != Role::input) continue;
    if (s < eager.before.storages.size()) eager.before.storages[s].shift += shift(storage);
    if (s < other.storages.size() && other.storages[s].role == Role::input) storage.bytes = other.storages[s].bytes;
  }
  here.input_start = there.input_start;
}

}  // namespace tandem
