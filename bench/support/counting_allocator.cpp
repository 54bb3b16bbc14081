#include "bench/support/counting_allocator.h"

#include "autograd/support/error.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace tandem::bench {
namespace {

// The size stands in front of the data. A context object would be simpler, but then data and context differ, and LibTorch (raw_allocate,
// copy-on-write) takes only blocks whose context is the data itself. One alignment unit keeps the data as aligned as the inner block.
constexpr std::size_t header = c10::gAlignment;
static_assert(header >= sizeof(std::int64_t));

CountingAllocator* instance = nullptr;  // never deleted: blocks may outlive main

}  // namespace

CountingAllocator& CountingAllocator::install() {
  static CountingAllocator& installed = []() -> CountingAllocator& {
    c10::Allocator* inner = c10::GetCPUAllocator();
    if (inner->raw_deleter() == nullptr) throw Error("counting allocator: expected a CPU allocator with raw_deleter(), found one without");
    instance = new CountingAllocator(*inner);
    c10::SetCPUAllocator(instance);
    if (c10::GetCPUAllocator() != instance) {
      throw Error("counting allocator: expected the CPU allocator to have priority 0, found one with a higher priority");
    }
    return *instance;
  }();
  return installed;
}

c10::DataPtr CountingAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &CountingAllocator::release, c10::Device(c10::DeviceType::CPU)};
  char* const base = static_cast<char*>(inner_.raw_allocate(header + bytes));
  const auto size = static_cast<std::int64_t>(bytes);
  std::memcpy(base, &size, sizeof size);

  allocations_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t live = live_.fetch_add(size, std::memory_order_relaxed) + size;
  std::int64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < live && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
  char* const data = base + header;
  return {data, data, &CountingAllocator::release, c10::Device(c10::DeviceType::CPU)};
}

void CountingAllocator::release(void* data) {
  if (data == nullptr) return;
  char* const base = static_cast<char*>(data) - header;
  std::int64_t size = 0;
  std::memcpy(&size, base, sizeof size);
  instance->live_.fetch_sub(size, std::memory_order_relaxed);
  instance->inner_.raw_deallocate(base);
}

}  // namespace tandem::bench
