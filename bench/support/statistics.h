// Figures of a sample of times. Both throw for an empty sample.
#pragma once

#include "autograd/support/error.h"

#include <algorithm>
#include <vector>

namespace tandem::bench {

inline double median(std::vector<double> sample) {
  if (sample.empty()) throw Error("median: expected at least one value, found none");
  const auto middle = sample.begin() + static_cast<std::ptrdiff_t>(sample.size() / 2);
  std::nth_element(sample.begin(), middle, sample.end());
  if (sample.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(sample.begin(), middle)) / 2;
}

inline double best(const std::vector<double>& sample) {
  if (sample.empty()) throw Error("best: expected at least one value, found none");
  return *std::min_element(sample.begin(), sample.end());
}

}  // namespace tandem::bench
