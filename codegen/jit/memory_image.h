// Pages for code, constants and data of a loaded object: writable while they are filled, then each with its final rights (never both
// writable and executable).
#pragma once

#include <array>
#include <cstdint>

namespace tandem::jit {

enum class Region : std::uint8_t { code, constants, data };
constexpr std::size_t region_count = 3;

class MemoryImage {
 public:
  /// Maps all regions, one behind the other and within the reach of 32-bit offsets. Throws Error when the system refuses.
  explicit MemoryImage(const std::array<std::uint64_t, region_count>& bytes);
  ~MemoryImage();
  MemoryImage(const MemoryImage&) = delete;
  MemoryImage& operator=(const MemoryImage&) = delete;

  char* at(Region region, std::uint64_t offset) const { return base_ + begin_[static_cast<std::size_t>(region)] + offset; }
  void seal();  // gives the final rights; throws Error when the system refuses

 private:
  char* base_ = nullptr;
  std::array<std::uint64_t, region_count + 1> begin_{};  // of each region, and the end
};

/// An image larger than this is no kernel but a damaged object.
constexpr std::uint64_t largest_image = std::uint64_t{256} << 20;
constexpr std::uint64_t page = 4096;

inline std::uint64_t round_up(std::uint64_t value, std::uint64_t align) { return (value + align - 1) / align * align; }

}  // namespace tandem::jit
