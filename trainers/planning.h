// What TrainStep and compile() share when they make plans: switches out of the options, and the text problem of a check that failed.
#pragma once

#include "autograd/capture.h"
#include "codegen/jit/jit.h"
#include "runtime/problem.h"
#include "tandem/options.h"
#include "trainers/journal.h"

#include <cstdint>

namespace tandem {

constexpr std::int64_t first_shadow = 16;  // compiled steps before the first shadow step; twice as many each time

PlanSwitches switches_of(const Options& options);
jit::Settings jit_of(const Options& options);

/// Adds what one plan is made of to the report: nodes folded and skipped, calls, kernels, memory.
void add_plan(PlanReport& report, const Plan& plan);
/// The host read of a node between two parts. `unit`: a step or a call.
GraphBreak break_at(const Recording& recording, std::size_t node, const char* unit, std::int64_t carried_bytes);

/// Into Options::problem_dir, if that is set, and into the report. `unit`: what the journal counts, for the file's name.
void write_problem(const Problem& problem, const Options& options, std::int64_t plan, const char* unit, Journal& journal);

}  // namespace tandem
