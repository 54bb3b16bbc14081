// Compares what a kernel made with what ATen makes of the same call.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace tandem::test {

/// How a result may differ from eager's.
enum class Rule {
  bits,     // not at all, NaN payloads included
  numbers,  // not at all, but any NaN is any other
  rounded,  // by twice eager's own largest error against float64, and some units in the last place
};

/// The largest errors of eager's own numbers, absolute and relative.
struct OwnError {
  double absolute = 0, relative = 0;
};
OwnError own_error(const at::Tensor& eager, const at::Tensor& reference);

struct Judged {
  at::Tensor eager, ours;
  at::Tensor other;      // what ATen makes of the same numbers elsewhere (by its vector code): as good as eager's
  at::Tensor reference;  // in float64; undefined: eager is the reference
  OwnError own;
  bool single = false;   // computed in float32, whatever the result's dtype
  double magnitude = 0;  // largest finite number that goes into a sum
};

/// Empty, or a sentence about the first element that differs.
std::string difference(const Judged& judged, Rule rule);

}  // namespace tandem::test
