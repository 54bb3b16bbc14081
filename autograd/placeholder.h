// Storages that stand for data which has not been computed. Reading one throws; filling one gives it data.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <exception>

namespace tandem {

c10::Storage make_placeholder(std::int64_t bytes, c10::Device device);
bool is_placeholder(const c10::StorageImpl& storage);
/// A placeholder, or memory behind a Veil.
bool is_unreadable(const c10::StorageImpl& storage);

/// Gives a placeholder the memory of `data`, which lives as long as one of them.
void fill(c10::StorageImpl& placeholder, const c10::Storage& data);

/// While it lives, reading or writing the memory through a data pointer throws as for a placeholder: an op that writes it is answered, but has not run.
class Veil {
 public:
  explicit Veil(const c10::Storage& storage);
  ~Veil();
  Veil(Veil&& other) noexcept = default;
  Veil& operator=(Veil&&) = delete;

 private:
  c10::Storage storage_;
};

/// Whether the exception says that a placeholder was read.
bool is_placeholder_read(const std::exception& e);

}  // namespace tandem
