#include "autograd/placeholder.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>

#include <string_view>
#include <utility>

namespace tandem {

c10::Storage make_placeholder(std::int64_t bytes, c10::Device device) {
  auto impl = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), std::size_t(bytes), at::DataPtr(nullptr, device),
                                                    c10::GetAllocator(device.type()), /*resizable=*/true);
  // Without a message of its own: each would be a string of its own. LibTorch's own sentence is recognised below.
  impl->release_data_and_set_meta_custom_data_ptr_error_msg_(std::nullopt);
  impl->set_throw_on_mutable_data_ptr();
  return c10::Storage(std::move(impl));
}

bool is_placeholder(const c10::StorageImpl& s) { return s.throw_on_mutable_data_ptr() && s.throw_on_immutable_data_ptr(); }

void fill(c10::StorageImpl& placeholder, const c10::Storage& data) {
  auto* keeper = new c10::Storage(data);
  at::DataPtr shared(
      const_cast<void*>(data.data()), keeper, [](void* k) { delete static_cast<c10::Storage*>(k); }, data.device());
  // Swapping takes the marks of a placeholder away with the pointer.
  c10::StorageImpl filled(c10::StorageImpl::use_byte_size_t(), data.nbytes(), std::move(shared), c10::GetAllocator(data.device_type()),
                          /*resizable=*/true);
  placeholder.swap_data_ptr(filled);
}

Veil::Veil(const c10::Storage& storage) : storage_(storage) {
  storage_.unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(std::nullopt);
}

Veil::~Veil() {
  if (storage_) storage_.unsafeGetStorageImpl()->clear_data_ptr_access_error_msg_();
}

bool is_placeholder_read(const std::exception& e) {
  return std::string_view(e.what()).find("Cannot access data pointer of Storage that is invalid") != std::string_view::npos;
}

}  // namespace tandem
