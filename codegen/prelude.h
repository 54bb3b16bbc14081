// The C text that comes before all kernels: vector math and sums that lose little.
#pragma once

#include <string_view>

namespace tandem {

/// Functions of float are written so that a loop over them becomes vector code: no branch, no call. All give NaN for NaN and are right for infinities,
/// subnormals and both zeros. Largest errors over all floats, in units in the last place, with fused multiply-add: see prelude.cpp.
std::string_view c_prelude();

}  // namespace tandem
