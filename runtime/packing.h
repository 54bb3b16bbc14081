// Offsets for intervals that overlap in time: dynamic storage allocation, as in "MiniMalloc" (ASPLOS 2023) and the list heuristics that it cites.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// Bytes that are in use from call `first` through call `last`.
struct Interval {
  std::int32_t first = 0, last = 0;
  std::int64_t bytes = 0;
};

struct Packing {
  std::vector<std::int64_t> offsets;  // per interval, multiples of `alignment`
  std::int64_t bytes = 0;             // the end of the highest one
};

constexpr std::int64_t alignment = 64;  // a cache line, and a vector of AVX-512

/// The best of several greedy orders, each placed at the lowest free offset, improved by local search; stops at the bound highest_load().
Packing pack(const std::vector<Interval>& intervals);

/// Most bytes in use at one time, sizes rounded up to the alignment: no packing is smaller.
std::int64_t highest_load(const std::vector<Interval>& intervals);

/// Empty when no two intervals that overlap in time overlap in memory, all lie in [0, bytes) and are aligned; otherwise one sentence. Compares every
/// pair: it knows nothing of how the packing was made.
std::string validate(const Packing& packing, const std::vector<Interval>& intervals);

}  // namespace tandem
