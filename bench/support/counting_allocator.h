// Counts what LibTorch asks of its CPU allocator, so that eager and compiled steps are measured by the same ruler.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>

namespace tandem::bench {

/// Passes every request on to the allocator that was there before. Thread-safe; a request costs a few atomic operations more.
///
/// Only blocks that came through it are counted, when they are made and when they are freed; older ones go back to their own allocator unseen.
/// Bytes are those asked for, without rounding.
class CountingAllocator final : public c10::Allocator {
 public:
  /// Puts the one instance in front of the present CPU allocator, for the rest of the process. Later calls return the same instance.
  static CountingAllocator& install();

  std::int64_t live_bytes() const { return live_.load(std::memory_order_relaxed); }
  std::int64_t peak_bytes() const { return peak_.load(std::memory_order_relaxed); }  // highest live_bytes() since reset_peak()
  std::int64_t allocations() const { return allocations_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(live_bytes(), std::memory_order_relaxed); }

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  explicit CountingAllocator(c10::Allocator& inner) : inner_(inner) {}
  static void release(void* data);

  c10::Allocator& inner_;
  std::atomic<std::int64_t> live_{0}, peak_{0}, allocations_{0};
};

/// What one call of a function asked for.
struct Allocated {
  std::int64_t peak_bytes = 0;  // above what lived before the call
  std::int64_t allocations = 0;
};

template <class F>
Allocated count_allocations(CountingAllocator& counter, F&& call) {
  const std::int64_t live = counter.live_bytes(), allocations = counter.allocations();
  counter.reset_peak();
  call();
  return {counter.peak_bytes() - live, counter.allocations() - allocations};
}

}  // namespace tandem::bench
