// A program run eager and through TrainStep in lockstep.
#pragma once

#include "tandem/tandem.h"
#include "tests/fuzz/program.h"

#include <string>
#include <vector>

namespace tandem::fuzz {

struct Finding {
  /// Empty: none. "invalid": the program throws in eager. "wrong": results differ. "crash": TrainStep threw. "check": a check of the library
  /// failed, so nothing wrong was used, yet the library had made it. "retired": a shadow step disagreed. "internal": a plan was refused
  /// because it is not sound. "judge": the program threw in the run that judges rounding, a fault of this tool.
  std::string kind;
  std::string sentence;
};

struct Run {
  Finding finding;
  bool active = false;                                      // a plan ran
  std::int64_t compiled_steps = 0, nodes = 0, kernels = 0;  // of the largest plan that ran
  std::vector<std::string> ops;                             // in its statements
  std::string reason;                                       // why it was not active
};

/// All steps. `exact`: without generated kernels, and then every bit must be equal.
Run run(const Program&, bool exact = false);

/// The program's options; throws std::invalid_argument for a name that is none.
Options options_of(const Program&);
/// Names of the switches of mechanisms, which must not change any result.
std::vector<std::string> switch_names();

}  // namespace tandem::fuzz
