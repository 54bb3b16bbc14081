// Calls of one op, recorded as one graph of independent nodes and run as the product runs it: passes, partition, kernels, executor.
#pragma once

#include "tests/conformance/samples.h"

#include <string>
#include <vector>

namespace tandem::test {

struct TrialReport {
  std::vector<std::string> faults;  // sentences
  std::size_t samples = 0, in_kernels = 0, kernels = 0;
};

TrialReport try_out(const OpRow& row, const std::vector<Sample>& samples);

}  // namespace tandem::test
