// What an exception says, without LibTorch's backtrace.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace tandem {

inline std::string sentence_of(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  return error ? error->what_without_backtrace() : e.what();
}

}  // namespace tandem
