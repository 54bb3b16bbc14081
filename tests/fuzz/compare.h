// Whether two steps left the same.
#pragma once

#include "tests/fuzz/eager_side.h"

#include <functional>
#include <string>

namespace tandem::fuzz {

/// Empty, or one sentence about the first difference: names, geometry, bits.
std::string bits_apart(const Left& found, const Left& expected);

/// The same with floating numbers within rounding. Where they are farther apart than plain rounding makes likely, the step is repeated by `judge`, in
/// double and with random roundings: allowed is twice the error of `expected` plus the spread that roundings cause.
std::string values_apart(const Left& found, const Left& expected, const std::function<Left(const Judge&)>& judge);

}  // namespace tandem::fuzz
