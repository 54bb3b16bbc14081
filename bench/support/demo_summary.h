// What the demo concludes from an eager and a compiled run of one model.
#pragma once

#include <tandem/tandem.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::bench {

struct StepLog {
  std::int64_t batch = 0;
  double ms = 0, loss = 0;
  bool compiled = false;
};

struct RunLog {
  std::vector<StepLog> steps;
  double test_accuracy = 0;  // after the latest epoch
};

/// Two runs from one seed over the same batches.
struct Comparison {
  RunLog eager, compiled;
  double eager_first_ms = 0, compiled_first_ms = 0;  // first steps of fresh networks, medians
  double parameter_difference = 0;                   // largest, buffers included; infinite where a value is NaN
  Report report;                                     // of the compiled run
};

/// The larger one, where NaN is larger than all.
double larger(double a, double b);

/// From which step on the compiled run is ahead, from measured figures of full batches; or why there is no such step.
std::string break_even(const Comparison& runs);

/// Lines of figures, both runs side by side.
std::string summary_table(const Comparison& runs);

/// Adds the losses and the time spent of both runs to the report, and the eager loop's median step.
void add_curves(Comparison& runs);

/// One sentence when a plan is not active or the runs differ by more than the plans' checks allow; else empty.
std::string fault_of(const Comparison& runs);

}  // namespace tandem::bench
