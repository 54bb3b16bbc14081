// build/bench/step: eager against compiled training steps, for one workload or for all.
#include "autograd/support/error.h"
#include "bench/support/step_figures.h"
#include "bench/support/workloads.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace {

constexpr int failed = 1, wrong_use = 2;

/// LibTorch's OpenMP threads spin at their barriers: a neighbour that takes a core away makes small steps many times slower.
void warn_about_load() {
  double load = 0;
  if (getloadavg(&load, 1) == 1 && load > 0.5) {
    fmt::print(stderr, "step: the load average is {:.2f}; other processes make LibTorch's threads wait, so do not trust these times\n",
               load);
  }
}

int run(const std::vector<std::string>& names, std::int64_t steps, tandem::Replay replay, bool json) {
  int status = 0;
  if (!json) fmt::print("{}", tandem::bench::table_head());
  for (const std::string& name : names) {
    try {
      const tandem::bench::StepFigures figures = tandem::bench::measure_step(name, steps, replay);
      fmt::print("{}", json ? tandem::bench::to_json(figures) + "\n" : tandem::bench::table_row(figures));
    } catch (const std::exception& error) {
      fmt::print(stderr, "step: {}: {}\n", name, error.what());
      status = failed;
    }
    std::fflush(stdout);
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  std::string workload = "all";
  std::int64_t steps = 60;
  int threads = 0;
  bool json = false;
  auto replay = tandem::Replay::automatic;
  CLI::App app("Times eager and compiled training steps in turn.");
  app.add_option("--workload", workload, fmt::format("all, or one of {}", fmt::join(tandem::bench::workload_names(), ", ")));
  app.add_option("--steps", steps, "timed steps of each kind (60)")->check(CLI::Range(1, 1'000'000));
  app.add_option("--threads", threads, "threads of LibTorch (its own default)")->check(CLI::Range(1, 1024));
  const std::map<std::string, tandem::Replay> levels{
      {"automatic", tandem::Replay::automatic}, {"full", tandem::Replay::full}, {"trusted", tandem::Replay::trusted}};
  app.add_option("--replay", replay, "what the host does in a compiled step: automatic, full or trusted (automatic)")
      ->transform(CLI::CheckedTransformer(levels));
  app.add_flag("--json", json, "one JSON object per line");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : wrong_use;
  }

  std::vector<std::string> names = tandem::bench::workload_names();
  if (workload != "all") {
    try {
      tandem::bench::check_workload_name(workload);
    } catch (const tandem::Error& error) {
      fmt::print(stderr, "step: {}\n", error.what());
      return wrong_use;
    }
    names = {workload};
  }
  if (threads > 0) at::set_num_threads(threads);
  warn_about_load();
  return run(names, steps, replay, json);
}
