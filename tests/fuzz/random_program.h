// Random programs that run in eager, are deterministic and train something.
#pragma once

#include "tests/fuzz/program.h"
#include "tests/fuzz/random.h"

namespace tandem::fuzz {

/// The same for the same seed (and the same LibTorch).
Program random_program(std::uint64_t seed);

/// Turns some mechanisms off, or on where they are off by default.
void random_switches(Program&, Random&);

/// Empty when eager runs all steps, twice with the same bits and with finite numbers; else why not.
std::string fault_of(const Program&);

}  // namespace tandem::fuzz
