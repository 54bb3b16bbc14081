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

void add_plan(PlanReport& r, const Plan& plan) {
  for (const auto& n : plan.graph.nodes) r.nodes_folded += n.folded;
  for (const auto& c : plan.program.calls) {
    r.nodes_skipped += c.kind == Call::Kind::view;
    r.launches += std::int64_t(c.launches.size());
    r.library_calls += c.kind == Call::Kind::library;
    r.barriers += c.kind == Call::Kind::library || c.kind == Call::Kind::kernel;
  }
  r.groups += std::int64_t(plan.partition.groups.size());
  r.arena_bytes += plan.memory.arena_bytes;
  r.kernels += std::int64_t(plan.program.kernels.size());
}

GraphBreak break_at(const Recording& recording, std::size_t node, const char* unit, std::int64_t carried_bytes) {
  const auto& n = recording.graph.nodes[node];
  const auto name = describe(n);
  const auto at = recording.read_at.find(n.id);
  return {name,
          fmt::format("the host reads what {} gives: the {} runs up to here first, and hands {} bytes on from part to part", name, unit,
                      carried_bytes),
          at == recording.read_at.end() ? "" : call_site(at->second)};
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
