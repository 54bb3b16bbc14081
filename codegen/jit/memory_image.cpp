#include "codegen/jit/memory_image.h"

#include "autograd/support/error.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace tandem::jit {

MemoryImage::MemoryImage(const std::array<std::uint64_t, region_count>& bytes) {
  for (std::size_t i = 0; i < region_count; ++i) begin_[i + 1] = begin_[i] + round_up(bytes[i], page);
  if (begin_.back() == 0) begin_.back() = page;
  void* memory = mmap(nullptr, begin_.back(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(fmt::format("jit: expected {} bytes for code, found: {}", begin_.back(), std::strerror(errno)));
  base_ = static_cast<char*>(memory);
}

MemoryImage::~MemoryImage() { munmap(base_, begin_.back()); }

void MemoryImage::seal() {
  const std::array<int, region_count> rights{PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
  for (std::size_t i = 0; i < region_count; ++i) {
    const std::uint64_t bytes = begin_[i + 1] - begin_[i];
    if (bytes > 0 && mprotect(base_ + begin_[i], bytes, rights[i]) != 0) {
      throw Error(fmt::format("jit: expected the system to allow executable memory, found: {}", std::strerror(errno)));
    }
  }
}

}  // namespace tandem::jit
