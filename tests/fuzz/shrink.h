// Delta debugging: the smallest program that still fails.
#pragma once

#include "tests/fuzz/program.h"

#include <functional>

namespace tandem::fuzz {

/// Takes away steps, options, statements, losses, declarations, sizes, as long as `fails` holds. Calls it `budget` times at most.
Program shrink(Program, const std::function<bool(const Program&)>& fails, int budget = 400);

}  // namespace tandem::fuzz
