#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace tandem::test {

struct NestCase {
  std::string op;
  std::vector<c10::IValue> arguments;
  std::string about;     // for messages
  bool inexact = false;  // ATen's own bits depend on its vector width or compiler here
};

/// Calls of every op of the table that has a loop.
std::vector<NestCase> nest_cases();

}  // namespace tandem::test
