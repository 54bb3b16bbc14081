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

void place_as(const Graph& other, const Outside& there, Graph& graph, Outside& here, EagerStep& eager, std::size_t inputs) {
  const auto is_placed = [&](const Storage& s) { return s.role == Role::input && std::size_t(s.index) < inputs; };
  const auto shift = [&](const Storage& s) { return here.input_start[std::size_t(s.index)] - there.input_start[std::size_t(s.index)]; };
  std::vector<std::int64_t> bytes(inputs, -1);
  for (const auto& s : other.storages)
    if (is_placed(s)) bytes[std::size_t(s.index)] = s.bytes;
  for (auto& v : graph.values) {
    const auto& s = graph.storages[std::size_t(v.storage)];
    if (is_placed(s)) v.offset -= shift(s) / std::int64_t(c10::elementSize(v.dtype));
  }
  for (std::size_t s = 0; s < graph.storages.size(); s++) {
    auto& storage = graph.storages[s];
    if (!is_placed(storage)) continue;
    if (s < eager.before.storages.size()) eager.before.storages[s].shift += shift(storage);
    if (bytes[std::size_t(storage.index)] >= 0) storage.bytes = bytes[std::size_t(storage.index)];
  }
  std::copy_n(there.input_start.begin(), inputs, here.input_start.begin());
}

}  // namespace tandem
