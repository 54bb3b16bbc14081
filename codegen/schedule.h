// In which pass over the row each instruction of a loop runs.
#pragma once

#include "codegen/loop.h"

#include <cstdint>
#include <vector>

namespace tandem {

/// A pass runs over all elements of a row. What a row reduction gives is known to the passes after it.
struct Pass {
  std::vector<std::int32_t> code;  // element values to compute, in order; loads among them
  std::vector<std::int32_t> kept;  // element values that an earlier pass left in the row buffer or in a result
  std::vector<std::int32_t> ends;  // row reductions, totals and stores of elements, in order
};

struct Schedule {
  std::vector<Scope> scopes;
  std::vector<std::int32_t> level;  // scope unit: known before this pass
  std::vector<bool> used;           // values that the kernel itself needs, the finish apart
  std::vector<bool> finish;         // instructions of the finish: totals, what is computed from them, what that needs
  std::vector<Pass> passes;
  std::vector<std::int32_t> buffer;  // per instruction: where its row is kept: nowhere, row_buffer, or the parameter it is stored to
  static constexpr std::int32_t nowhere = -1, row_buffer = -2;
};

/// How many bytes of row buffers a kernel may have on its stack.
constexpr std::int64_t row_buffer_bytes = 16 * 1024;

Schedule schedule(const Loop&);

}  // namespace tandem
