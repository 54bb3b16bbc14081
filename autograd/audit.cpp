#include "autograd/audit.h"

#include <ATen/CPUGeneratorImpl.h>

#include <xxhash.h>

#include <functional>

namespace tandem {

std::uint64_t hash_of(const c10::Storage& storage) {
  if (!storage || storage.device_type() != c10::DeviceType::CPU || storage.nbytes() == 0 || !storage.data()) return 0;
  return XXH3_64bits(storage.data(), storage.nbytes());
}

std::uint64_t generator_hash() {
  // Read off the engine itself: a state tensor would be an allocation inside a step whose memory is measured.
  auto generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  auto* impl = at::check_generator<at::CPUGeneratorImpl>(generator);
  const auto engine = impl->engine().data();
  const auto normal_float = impl->next_float_normal_sample();
  const auto normal_double = impl->next_double_normal_sample();
  std::uint64_t hash = XXH3_64bits(engine.state_.data(), sizeof(engine.state_));
  hash = combine_hashes(hash, std::uint64_t(engine.next_) * 1000003u + std::uint64_t(engine.left_));
  hash = combine_hashes(hash, normal_float ? std::hash<float>()(*normal_float) + 1 : 0);
  return combine_hashes(hash, normal_double ? std::hash<double>()(*normal_double) + 1 : 0);
}

}  // namespace tandem
