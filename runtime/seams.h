// Fault injection for tests: what the checks must catch is put in here, after capture and after planning.
#pragma once

#include "runtime/plan.h"

#include <functional>

namespace tandem {

struct Seams {
  std::function<void(Graph&)> captured = {};  // alters the captured graph before its check
  std::function<void(Plan&)> planned = {};    // alters the plan before its check
};

/// This thread's seams; empty functions do nothing.
Seams& seams();

}  // namespace tandem
