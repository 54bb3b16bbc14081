#include "autograd/support/call_site.h"

#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>

namespace tandem {
namespace {

/// Demangled names of templates begin with what they return: the name ends at its arguments and begins behind the last space. What is too long stays
/// mangled: a wrapper around the caller's lambda.
bool is_library(std::string_view function) {
  constexpr std::array<std::string_view, 6> spaces = {"tandem::", "at::", "c10::", "torch::", "std::", "__gnu"};
  auto name = function.substr(0, function.find_first_of("(<"));
  name = name.substr(name.rfind(' ') + 1);
  return function.rfind("_Z", 0) == 0 || std::any_of(spaces.begin(), spaces.end(), [&](auto s) { return name.rfind(s, 0) == 0; });
}

/// The program or library that holds an address; "" where nobody knows.
std::string file_of(void* address) {
  const auto found = torch::unwind::libraryFor(address);
  return found ? found->first : "";
}

/// LibTorch has the most symbols to read and no frame of interest.
bool is_libtorch(const std::string& file) {
  const auto name = file.substr(file.rfind('/') + 1);
  return name.rfind("libtorch", 0) == 0 || name.rfind("libc10", 0) == 0;
}

}  // namespace

CallStack call_stack() {
  try {
    return torch::unwind::unwind();
  } catch (const std::exception&) {  // not on this processor or system
    return {};
  }
}

std::string call_site(const CallStack& stack) {
  try {
    CallStack own;
    std::copy_if(stack.begin(), stack.end(), std::back_inserter(own), [](void* a) { return !is_libtorch(file_of(a)); });
    const auto frames = torch::unwind::symbolize(own, torch::unwind::Mode::fast);
    for (std::size_t i = 0; i < frames.size(); i++) {
      const auto& [file, function, line] = frames[i];
      if (function.empty() || function == "??" || is_library(function)) continue;
      // Without debug information they are a program or library, and an offset.
      return file == file_of(own[i]) || file == "??" ? function : function + " at " + file + ":" + std::to_string(line);
    }
  } catch (const std::exception&) {  // what it says is a help, not a result
  }
  return "";
}

}  // namespace tandem
