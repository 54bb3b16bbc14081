// Puts a relocatable object into executable memory of this process. Needs no compiler and no linker.
#pragma once

#include "codegen/jit/jit.h"

namespace tandem::jit {

/// As load() of jit.h; the caller may still fill in how the object came to be.
std::unique_ptr<Module> load_object(const std::vector<char>& object);

}  // namespace tandem::jit
