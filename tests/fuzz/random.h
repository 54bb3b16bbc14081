// Random choices that are the same on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace tandem::fuzz {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t n) { return n <= 1 ? 0 : std::int64_t(engine_() % std::uint64_t(n)); }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool chance(double p) { return double(engine_() >> 11) * 0x1p-53 < p; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[std::size_t(below(std::int64_t(from.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tandem::fuzz
