// The hand-written digits of bench/data.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tandem::bench {

struct Digits {
  at::Tensor images;  // float32 [n, 8, 8], values 0 to 16
  at::Tensor labels;  // int64 [n], 0 to 9
};

/// The file that the build knows.
std::string digits_path();

/// Reads lines of 64 pixels and a label. Throws Error with the line of the first thing that is not as expected.
Digits load_digits(const std::string& path);

}  // namespace tandem::bench
