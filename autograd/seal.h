// Finds out whether the host's code takes a pointer to memory that recorded ops have made.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace tandem {

/// Sealed memory is copy-on-write with one owner: a pointer for writing (data_ptr, an accessor) ends that without a copy, and leaves a mark. Pointers for
/// reading only (const_data_ptr) leave none.
class Seals {
 public:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  Seals() = default;
  ~Seals() { open_all(); }
  Seals(const Seals&) = delete;
  Seals& operator=(const Seals&) = delete;

  /// Leaves alone what is sealed, what is not of the CPU, and memory with a deleter of the caller's.
  void seal(std::int32_t id, const c10::Storage& storage);
  /// Ends it, for an op that is to use the memory.
  void open(std::int32_t id);
  void open_all();
  /// The first storage whose seal is broken, or -1.
  std::int32_t broken();

 private:
  std::vector<std::pair<std::int32_t, WeakStorage>> sealed_;
};

}  // namespace tandem
