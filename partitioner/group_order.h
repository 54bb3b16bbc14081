// In which order the groups of one side run, and which kernels run together.
#pragma once

#include "partitioner/dependencies.h"

#include <cstdint>
#include <vector>

namespace tandem {

struct Unordered {
  std::vector<std::int32_t> members;  // nodes, ascending
  bool is_kernel = false;
};

struct Ordered {
  std::size_t group = 0;
  bool joined = false;  // a kernel that depends on none of the kernels before it, back to the first that is not joined
};

/// A group runs where its last member stands, or earlier where something waits for it. Views run before everything else that may run, so that
/// they come before their readers. `kernels_first`: kernels run as soon as they may while kernels run, so that as many as possible are joined.
std::vector<Ordered> in_order(const std::vector<Unordered>& groups, const Dependencies& dependencies, const std::vector<Part>& parts,
                              bool kernels_first);

}  // namespace tandem
