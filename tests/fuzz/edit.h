// Programs made smaller: what shrinking and repairing are made of.
#pragma once

#include "tests/fuzz/program.h"

namespace tandem::fuzz {

/// Without what nothing uses: declarations, layers.
Program tidy(Program);
/// Without statement i and all that depends on it.
Program without(const Program&, std::size_t i);
/// Without statement i; whoever used its first result uses its first operand instead. Unchanged when it has none.
Program bypassed(const Program&, std::size_t i);
/// Statement i's first result comes from outside.
Program cut_off(const Program&, std::size_t i, const Outside& instead);

}  // namespace tandem::fuzz
