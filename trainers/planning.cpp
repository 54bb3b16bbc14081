#include "trainers/planning.h"

#include <fmt/format.h>

#include <fstream>

namespace tandem {

PlanSwitches switches_of(const Options& o) {
  return {{o.decompose, o.fuse, o.fold, o.cse, o.dce}, {o.skip_views, o.partition, o.fuse, o.fuse_update}, {o.arena, o.blas}};
}

jit::Settings jit_of(const Options& o) {
  jit::Settings settings;
  if (!o.jit) settings.compiler = jit::Compiler::system;
  return settings;
}

void write_problem(const Problem& problem, const Options& options, std::int64_t plan, const char* unit, Journal& journal) {
  constexpr std::size_t report_problem_bytes = 1 << 20, max_problems = 8;
  auto text = print(problem);
  if (!options.problem_dir.empty()) {
    const auto path = fmt::format("{}/tandem-problem-plan{}-{}{}.txt", options.problem_dir, plan, unit, journal.steps);
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (file.flush())
      journal.say("check-failed", "the text problem was written to " + path);
    else
      journal.say("check-failed", "expected a writable folder for the text problem, found '" + options.problem_dir + "'");
  }
  if (text.size() > report_problem_bytes)
    text =
        problem.sentence + "\n(text problem of " + std::to_string(text.size()) + " bytes: set Options::problem_dir to have it written)\n";
  if (journal.problems.size() >= max_problems) journal.problems.erase(journal.problems.begin());
  journal.problems.push_back(std::move(text));
}

}  // namespace tandem
