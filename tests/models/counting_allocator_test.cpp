#include "bench/support/counting_allocator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace {

using tandem::bench::Allocated;
using tandem::bench::CountingAllocator;

TEST(CountingAllocator, CountsTheBytesOfATensorWhileItLives) {
  CountingAllocator& counter = CountingAllocator::install();
  const std::int64_t live = counter.live_bytes(), allocations = counter.allocations();
  {
    const at::Tensor t = at::empty({10, 10}, at::kFloat);
    EXPECT_EQ(counter.live_bytes() - live, 400);
    EXPECT_EQ(counter.allocations() - allocations, 1);
  }
  EXPECT_EQ(counter.live_bytes(), live);
  EXPECT_EQ(counter.allocations() - allocations, 1);
}

TEST(CountingAllocator, PeakIsTheHighestSumAtOneTime) {
  CountingAllocator& counter = CountingAllocator::install();
  const Allocated one_by_one = count_allocations(counter, [] {
    at::empty({100}, at::kByte);
    at::empty({300}, at::kByte);
    at::empty({200}, at::kByte);
  });
  EXPECT_EQ(one_by_one.peak_bytes, 300);
  EXPECT_EQ(one_by_one.allocations, 3);
  const Allocated together = count_allocations(counter, [] {
    const at::Tensor a = at::empty({100}, at::kByte), b = at::empty({300}, at::kByte);
    at::empty({200}, at::kByte);
  });
  EXPECT_EQ(together.peak_bytes, 600);
}

TEST(CountingAllocator, ABlockOfTheAllocatorBeforeItIsNotCounted) {
  CountingAllocator& counter = CountingAllocator::install();
  const std::int64_t live = counter.live_bytes();
  c10::DataPtr older = c10::GetDefaultCPUAllocator()->allocate(4000);
  EXPECT_EQ(counter.live_bytes(), live);
  older.clear();
  EXPECT_EQ(counter.live_bytes(), live);
}

TEST(CountingAllocator, EmptyTensorsCountNothing) {
  CountingAllocator& counter = CountingAllocator::install();
  const Allocated nothing = count_allocations(counter, [] { at::empty({0}, at::kFloat); });
  EXPECT_EQ(nothing.peak_bytes, 0);
  EXPECT_EQ(nothing.allocations, 0);
}

TEST(CountingAllocator, DataStaysAsAlignedAsLibTorchPromises) {
  CountingAllocator::install();
  for (const std::int64_t bytes : {1, 63, 64, 65, 4096, 1 << 20}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at::empty({bytes}, at::kByte).data_ptr()) % c10::gAlignment, 0u) << bytes << " bytes";
  }
}

TEST(CountingAllocator, RawBlocksAndClonesAreCountedToo) {
  CountingAllocator& counter = CountingAllocator::install();
  const std::int64_t live = counter.live_bytes();
  void* const raw = c10::GetCPUAllocator()->raw_allocate(123);
  EXPECT_EQ(counter.live_bytes() - live, 123);
  {
    const c10::DataPtr copy = c10::GetCPUAllocator()->clone(raw, 123);
    EXPECT_TRUE(c10::GetCPUAllocator()->is_simple_data_ptr(copy));
    EXPECT_EQ(counter.live_bytes() - live, 246);
  }
  c10::GetCPUAllocator()->raw_deallocate(raw);
  EXPECT_EQ(counter.live_bytes(), live);
}

TEST(CountingAllocator, CountsStayExactWhenThreadsAllocateAtOnce) {
  CountingAllocator& counter = CountingAllocator::install();
  constexpr int threads = 4, rounds = 2000;
  const std::int64_t live = counter.live_bytes();
  const Allocated allocated = count_allocations(counter, [] {
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; t++) {
      workers.emplace_back([] {
        for (int i = 0; i < rounds; i++) at::empty({8}, at::kByte);
      });
    }
    for (std::thread& worker : workers) worker.join();
  });
  EXPECT_EQ(allocated.allocations, threads * rounds);
  EXPECT_GE(allocated.peak_bytes, 8);
  EXPECT_LE(allocated.peak_bytes, 8 * threads);
  EXPECT_EQ(counter.live_bytes(), live);
}

TEST(CountingAllocator, InstallingAgainGivesTheSameOne) { EXPECT_EQ(&CountingAllocator::install(), &CountingAllocator::install()); }

}  // namespace
