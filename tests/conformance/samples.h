// Calls with which each row of the op table is tried, derived from the op's schema; from a table of texts where a row needs its own.
#pragma once

#include "autograd/op.h"
#include "tests/conformance/call.h"

#include <string>
#include <string_view>
#include <vector>

namespace tandem::test {

struct Sample {
  Values arguments;
  std::string about;
  bool plain = false;  // the usual call: float32, contiguous; where the row has a formula, a kernel must be generated
};

/// Only calls that the op takes. None: no generator covers the row.
std::vector<Sample> samples_of(const OpRow& row);

/// The row's own texts, see call_text.h; empty where the schema is enough.
std::vector<std::string> own_texts(std::string_view op);

}  // namespace tandem::test
