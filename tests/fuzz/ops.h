// The ops that random programs call: the rows of the op table, and whatever else the dispatcher has.
#pragma once

#include "autograd/op.h"

#include <ATen/core/function_schema.h>

#include <string>
#include <vector>

namespace tandem::fuzz {

struct Callable {
  std::string name;
  const c10::FunctionSchema* schema = nullptr;
  const OpRow* row = nullptr;  // absent: opaque to the library
  bool writes = false;         // its first argument, in place
};

/// The rows of one kind that can be called with values, numbers and lists of them.
const std::vector<Callable>& rows_of(Kind);
/// Ops without a row whose results are tensors of sizes that do not depend on values.
const std::vector<Callable>& other_ops();
/// Throws what the dispatcher throws for an unknown name.
Callable callable(const std::string& name);

}  // namespace tandem::fuzz
