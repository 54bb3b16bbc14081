// What a recording cannot see by itself: writes behind the dispatcher's back, undeclared writes, a generator moved by hand.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tandem {

/// A content hash of a storage's bytes (XXH3, 64 bits); 0 for storages without memory on the CPU.
std::uint64_t hash_of(const c10::Storage& storage);

/// Adds one hash to a list's hash; the order counts.
constexpr std::uint64_t combine_hashes(std::uint64_t all, std::uint64_t next) { return all * 1099511628211ull + next; }

/// A hash of the default CPU generator's state: its position and seed.
std::uint64_t generator_hash();

}  // namespace tandem
