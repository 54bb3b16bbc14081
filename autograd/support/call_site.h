// Where in the caller's program a recorded call was made.
#pragma once

#include <string>
#include <vector>

namespace tandem {

/// Return addresses of this thread, innermost first. Some microseconds.
using CallStack = std::vector<void*>;
CallStack call_stack();

/// The innermost frame that is neither Tandem's, LibTorch's nor the standard library's, as far as symbols and debug information tell:
/// "user::Loss::operator()(at::Tensor) at loss.cpp:16", or the function alone, or "". Reads debug information: tens of milliseconds.
std::string call_site(const CallStack& stack);

}  // namespace tandem
