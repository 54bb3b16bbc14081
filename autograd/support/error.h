// The three outcomes: wrong use (Error, public header), a refusal (never thrown: a sentence), a fault of ours (InternalError).
#pragma once

#include <stdexcept>
#include <string>

namespace tandem {

#ifndef TANDEM_ERROR  // the installed header stands alone and defines it too
#define TANDEM_ERROR
/// Wrong use of the library. The text is one sentence: what was expected, what was found, where.
struct Error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
#endif

/// A fault of this library. The text carries the node and asks for a report.
struct InternalError : std::logic_error {
  explicit InternalError(const std::string& what) : std::logic_error("tandem internal error, please report it: " + what) {}
};

}  // namespace tandem
