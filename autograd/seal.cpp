#include "autograd/seal.h"

#include <c10/core/impl/COW.h>

#include <algorithm>

namespace tandem {
namespace {

namespace cow = c10::impl::cow;

bool is_sealed(const c10::StorageImpl& s) { return cow::is_cow_data_ptr(s.data_ptr()); }

void end(const Seals::WeakStorage& weak) {
  if (const auto storage = weak.lock(); storage && is_sealed(*storage)) storage->mutable_data();
}

}  // namespace

void Seals::seal(std::int32_t id, const c10::Storage& storage) {
  auto& impl = *storage.unsafeGetStorageImpl();
  const bool memory = storage.device_type() == c10::DeviceType::CPU && storage.nbytes() > 0 && storage.data() && storage.allocator();
  if (!memory || is_sealed(impl) || !cow::has_simple_data_ptr(impl)) return;
  cow::lazy_clone_storage(impl);  // the clone goes at once
  sealed_.emplace_back(id, storage.getWeakStorageImpl());
}

void Seals::open(std::int32_t id) {
  const auto found = std::find_if(sealed_.begin(), sealed_.end(), [&](const auto& s) { return s.first == id; });
  if (found == sealed_.end()) return;
  end(found->second);
  sealed_.erase(found);
}

void Seals::open_all() {
  for (const auto& [id, storage] : sealed_) end(storage);
  sealed_.clear();
}

std::int32_t Seals::broken() {
  std::erase_if(sealed_, [](const auto& s) { return s.second.expired(); });
  for (const auto& [id, weak] : sealed_)
    if (const auto storage = weak.lock(); storage && !is_sealed(*storage)) return id;
  return -1;
}

}  // namespace tandem
