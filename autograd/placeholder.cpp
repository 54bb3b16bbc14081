#include "autograd/placeholder.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>

#include <string_view>
#include <utility>

namespace tandem {
namespace {

// LibTorch 2.11 has functions that set these marks, none that read or clear them. An explicit instantiation may name private members.
bool& throws_when_read(c10::StorageImpl& storage);
bool& throws_when_written(c10::StorageImpl& storage);
template <bool c10::StorageImpl::*read, bool c10::StorageImpl::*written>
struct Marks {
  friend bool& throws_when_read(c10::StorageImpl& storage) { return storage.*read; }
  friend bool& throws_when_written(c10::StorageImpl& storage) { return storage.*written; }
};
template struct Marks<&c10::StorageImpl::throw_on_immutable_data_ptr_, &c10::StorageImpl::throw_on_mutable_data_ptr_>;

}  // namespace

c10::Storage make_placeholder(std::int64_t bytes, c10::Device device) {
  auto impl = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), std::size_t(bytes), at::DataPtr(nullptr, device),
                                                    c10::GetAllocator(device.type()), /*resizable=*/true);
  // Without a message of its own: each would be a string of its own. LibTorch's own sentence is recognised below.
  impl->release_data_and_set_meta_custom_data_ptr_error_msg_(std::nullopt);
  impl->set_throw_on_mutable_data_ptr();
  return c10::Storage(std::move(impl));
}

bool is_unreadable(const c10::StorageImpl& s) { return throws_when_read(const_cast<c10::StorageImpl&>(s)); }

bool is_placeholder(const c10::StorageImpl& s) { return is_unreadable(s) && throws_when_written(const_cast<c10::StorageImpl&>(s)); }

void fill(c10::StorageImpl& placeholder, const c10::Storage& data) {
  auto* keeper = new c10::Storage(data);
  at::DataPtr shared(
      const_cast<void*>(data.data()), keeper, [](void* k) { delete static_cast<c10::Storage*>(k); }, data.device());
  throws_when_read(placeholder) = throws_when_written(placeholder) = false;
  placeholder.set_nbytes(data.nbytes());
  placeholder.set_data_ptr_noswap(std::move(shared));  // looks at the marks again
}

Veil::Veil(const c10::Storage& storage) : storage_(storage) {
  storage_.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(std::nullopt);
}

Veil::~Veil() {
  if (!storage_) return;
  auto& storage = *storage_.unsafeGetStorageImpl();
  throws_when_read(storage) = false;
  auto data = std::move(storage._mutable_data_ptr_no_checks());
  storage.set_data_ptr_noswap(std::move(data));  // looks at the marks again
}

bool is_placeholder_read(const std::exception& e) {
  return std::string_view(e.what()).find("Cannot access data pointer of Storage that is invalid") != std::string_view::npos;
}

}  // namespace tandem
