#include "trainers/binding.h"

#include <fmt/format.h>

namespace tandem {
namespace {

bool counted(const at::Tensor& t) { return t.defined() && !t.is_inference() && t.layout() == at::kStrided && t.has_storage(); }

}  // namespace

std::uint32_t version_of(const at::Tensor& t) { return counted(t) ? std::uint32_t(t._version()) : 0; }

std::vector<std::uint32_t> versions_of(const std::vector<KnownTensor>& known) {
  std::vector<std::uint32_t> out;
  for (const auto& k : known) out.push_back(version_of(k.tensor));
  return out;
}

std::vector<Outside::VersionDelta> version_deltas(const std::vector<KnownTensor>& known, const std::vector<std::uint32_t>& before) {
  std::vector<Outside::VersionDelta> out;
  for (std::size_t i = 0; i < known.size(); i++) {
    if (!counted(known[i].tensor)) continue;
    // An input that is a view of a parameter or another input shares its counter: advance it once.
    bool shared = false;
    for (std::size_t j = 0; j < i && known[i].role == Role::input && !shared; j++)
      shared = counted(known[j].tensor) && known[j].tensor.is_alias_of(known[i].tensor);
    if (const auto by = std::uint32_t(known[i].tensor._version()) - before[i]; by && !shared)
      out.push_back({known[i].role, known[i].index, by, i});
  }
  return out;
}

std::vector<std::int64_t> starts_of(const std::vector<at::Tensor>& inputs) {
  std::vector<std::int64_t> out;
  for (const auto& t : inputs) out.push_back(counted(t) ? t.storage_offset() * std::int64_t(t.itemsize()) : 0);
  return out;
}

std::string bind_known(const Graph& graph, const Outside& outside, std::size_t inputs, const Resolve& resolve, RunInputs& out) {
  out.storages.resize(graph.storages.size());
  for (std::size_t s = 0; s < graph.storages.size(); s++) {
    const auto& info = graph.storages[s];
    if (info.role == Role::internal || info.role == Role::captured) continue;
    if (info.role == Role::input && std::size_t(info.index) >= inputs) continue;
    const auto t = resolve(info.role, info.index);
    if (!t.defined() || !t.has_storage())
      return fmt::format("{} '{}': expected a tensor as it was recorded, found none", name_of(info.role), info.name);
    auto& b = out.storages[s];
    b = {t.storage(), 0};
    if (info.role == Role::input) {
      b.shift = t.storage_offset() * std::int64_t(t.itemsize()) - outside.input_start[std::size_t(info.index)];
    } else if (std::int64_t(b.storage.nbytes()) != info.bytes) {
      return fmt::format("{} '{}': expected {} bytes as recorded, found {}", name_of(info.role), info.name, info.bytes, b.storage.nbytes());
    }
  }
  return "";
}

std::string bind_captured(const Graph& graph, const Outside& outside, const std::vector<at::Tensor>& inputs, RunInputs& out) {
  for (const auto& c : outside.captured) {
    auto& b = out.storages[std::size_t(c.id)];
    if (b.storage) continue;
    const auto& info = graph.storages[std::size_t(c.id)];
    auto alive = c.storage.lock();
    if (!alive) return "a tensor that was read when it was recorded is gone (" + info.name + "), expected it to live on";
    for (const auto& t : inputs)
      if (t.has_storage() && t.storage().unsafeGetStorageImpl() == alive.get())
        return "an input shares memory with a tensor that the function captured, expected separate memory as recorded";
    b = {c10::Storage(std::move(alive)), 0};
    if (std::int64_t(b.storage.nbytes()) != info.bytes)
      return fmt::format("{} '{}': expected {} bytes as recorded, found {}", name_of(info.role), info.name, info.bytes, b.storage.nbytes());
  }
  return "";
}

}  // namespace tandem
