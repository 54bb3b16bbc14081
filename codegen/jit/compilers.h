// The two compilers behind compile(): clang in this process (the plug-in), and the system's C compiler as a process.
#pragma once

#include "codegen/jit/jit.h"

#include <variant>

namespace tandem::jit {

struct CompiledObject {
  std::vector<char> bytes;
  std::string compiled_by;
};

/// Why a compiler is not there: the end of a sentence that starts with "expected".
struct Missing {
  std::string why;
};

/// The result, or Missing when there is no such compiler. Both throw Error when the text is refused.
std::variant<CompiledObject, Missing> compile_in_plugin(std::string_view text, const Settings& settings);
std::variant<CompiledObject, Missing> compile_by_system(std::string_view text, const Settings& settings);

}  // namespace tandem::jit
