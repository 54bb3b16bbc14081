// A loop as C text: C11 without headers, for clang and gcc.
#pragma once

#include "codegen/loop.h"

#include <string>
#include <string_view>

namespace tandem {

struct Emitted {
  std::string source;  // the functions of Kernel, see program.h
  std::int64_t unit_elements = 1;
  std::int64_t partial_bytes = 0;
};

/// The functions `name` and, where the loop has totals, `name`_finish. Equal loops give equal texts but for the name.
Emitted emit(const Loop& loop, std::string_view name);

}  // namespace tandem
