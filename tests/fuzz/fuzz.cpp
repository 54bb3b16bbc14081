// Differential fuzzing by hand: random programs, eager against compiled.
//   fuzz --seeds 1..1000 --out problems        fuzz --minutes 30 --switches        fuzz problem.txt
#include "tests/fuzz/random_program.h"
#include "tests/fuzz/run.h"
#include "tests/fuzz/shrink.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace tandem::fuzz {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

struct Settings {
  std::string seeds = "1..100", out = ".";
  double minutes = 0;
  bool switches = false, verbose = false;
  int exact_every = 1;  // every n-th program runs without kernels too, bit for bit
  std::vector<std::string> files;
};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream s;
  s << file.rdbuf();
  return s.str();
}

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

Program program_of(std::uint64_t seed, const Settings& settings) {
  auto p = random_program(seed);
  Random r(seed);
  if (settings.switches) random_switches(p, r);
  return p;
}

/// What failed, with kernels and then exactly.
Finding both(const Program& p, bool exactly, Run* plain = nullptr) {
  auto r = run(p);
  if (plain) *plain = r;
  if (!r.finding.kind.empty() || !exactly) return r.finding;
  return run(p, true).finding;
}

/// Without numbers and quoted names, so that equal reasons count as one.
std::string kind_of_reason(const std::string& reason) {
  std::string s;
  for (const char c : reason.substr(0, 160))
    if (!std::isdigit(static_cast<unsigned char>(c))) s += c;
  return s;
}

Json one(std::uint64_t seed, const Settings& settings) {
  const auto p = program_of(seed, settings);
  const auto path = std::filesystem::path(settings.out) / fmt::format("seed-{}.txt", seed);
  write(path, print(p));  // stays behind when this process dies
  Run plain;
  auto finding = both(p, settings.exact_every > 0 && seed % std::uint64_t(settings.exact_every) == 0, &plain);
  Json j{{"seed", seed}, {"active", plain.active}, {"nodes", plain.nodes}, {"kernels", plain.kernels}, {"ops", plain.ops}};
  if (!plain.active) j["reason"] = kind_of_reason(plain.reason);
  std::filesystem::remove(path);
  if (finding.kind.empty()) return j;
  const auto small = shrink(p, [&](const Program& c) { return both(c, true).kind == finding.kind; });
  finding.sentence = both(small, true).sentence;
  write(path, fmt::format("# {}: {}\n{}", finding.kind, finding.sentence, print(small)));
  write(std::filesystem::path(settings.out) / fmt::format("seed-{}.whole.txt", seed), print(p));
  j["finding"] = {{"kind", finding.kind}, {"sentence", finding.sentence}, {"file", path.string()}};
  return j;
}

/// Runs seeds in a process of its own until `last`, writes a line of JSON for each; the parent survives a crash.
int child(std::uint64_t first, std::uint64_t last, const Settings& settings, int to) {
  for (auto seed = first; seed <= last; seed++) {
    const auto line = one(seed, settings).dump() + "\n";
    if (::write(to, line.data(), line.size()) != ssize_t(line.size())) return 1;
  }
  return 0;
}

struct Summary {
  std::int64_t programs = 0, active = 0, strong = 0, crashes = 0;
  std::map<std::string, std::vector<std::uint64_t>> reasons;  // with the seeds
  std::map<std::string, int> ops;
  Json findings = Json::array();

  void add(const Json& j) {
    programs++;
    active += j["active"].get<bool>();
    strong += j["active"].get<bool>() && j["nodes"].get<int>() >= 10 && j["kernels"].get<int>() >= 1;
    if (j.contains("reason")) reasons[j["reason"]].push_back(j["seed"]);
    for (const auto& op : j["ops"]) ops[op]++;
    if (j.contains("finding")) {
      findings.push_back(j);
      findings.back().erase("ops");
      std::cerr << j["seed"] << ": " << j["finding"]["kind"].get<std::string>() << ": " << j["finding"]["sentence"].get<std::string>()
                << std::endl;
    }
  }
  Json json(double seconds, std::uint64_t next) const {
    Json r = Json::object();
    for (const auto& [reason, seeds] : reasons) r[reason] = {{"programs", seeds.size()}, {"first_seed", seeds.front()}};
    return {{"programs", programs},        {"active", active},  {"active_with_10_nodes_and_a_kernel", strong},
            {"seconds", seconds},          {"next_seed", next}, {"crashes", crashes},
            {"different_ops", ops.size()}, {"stayed_eager", r}, {"findings", findings}};
  }
};

/// A block of seeds in a child; the seed after the last one that was finished.
std::uint64_t block(std::uint64_t first, std::uint64_t last, const Settings& settings, Summary& summary) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("expected a pipe, found none left");
  const auto pid = fork();
  if (pid == 0) {
    close(ends[0]);
    _exit(child(first, last, settings, ends[1]));
  }
  close(ends[1]);
  FILE* lines = fdopen(ends[0], "r");
  char* line = nullptr;
  std::size_t size = 0;
  auto next = first;
  while (getline(&line, &size, lines) > 0) {
    summary.add(Json::parse(line));
    next++;
  }
  free(line);
  fclose(lines);
  int status = 0;
  waitpid(pid, &status, 0);
  if (next > last) return next;
  summary.crashes++;
  summary.findings.push_back({{"seed", next}, {"finding", {{"kind", "died"}, {"sentence", fmt::format("status {}", status)}}}});
  std::cerr << next << ": died with status " << status << std::endl;
  return next + 1;
}

int run_files(const Settings& settings) {
  int failures = 0;
  for (const auto& file : settings.files) {
    const auto f = both(parse(read(file)), true);
    fmt::print("{}: {}\n", file, f.kind.empty() ? "equal" : f.kind + ": " + f.sentence);
    failures += !f.kind.empty();
  }
  return failures > 0;
}

int run_seeds(const Settings& settings) {
  constexpr std::uint64_t block_size = 100;
  const auto dots = settings.seeds.find("..");
  auto next = std::stoull(settings.seeds);
  const auto last = settings.minutes > 0        ? std::numeric_limits<std::uint64_t>::max()
                    : dots == std::string::npos ? next
                                                : std::stoull(settings.seeds.substr(dots + 2));
  std::filesystem::create_directories(settings.out);
  Summary summary;
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  while (next <= last && (settings.minutes == 0 || seconds() < settings.minutes * 60)) {
    next = block(next, std::min(last, next + block_size - 1), settings, summary);
    write(std::filesystem::path(settings.out) / "summary.json", summary.json(seconds(), next).dump(1));
  }
  std::cout << summary.json(seconds(), next).dump(1) << std::endl;
  return !summary.findings.empty();
}

}  // namespace
}  // namespace tandem::fuzz

int main(int argc, char** argv) {
  using namespace tandem::fuzz;
  Silent silent;
  c10::WarningUtils::set_warning_handler(&silent);
  Settings settings;
  CLI::App app("Random training programs, eager against compiled");
  app.add_option("--seeds", settings.seeds, "from..to")->capture_default_str();
  app.add_option("--minutes", settings.minutes, "for so long, from the first seed on");
  app.add_flag("--switches", settings.switches, "turn mechanisms off at random");
  app.add_option("--exact-every", settings.exact_every, "every n-th program also runs without kernels, bit for bit; 0: none")
      ->capture_default_str();
  app.add_option("--out", settings.out, "folder of problems and summary.json")->capture_default_str();
  app.add_flag("--show", settings.verbose, "print the programs instead of running them");
  app.add_option("files", settings.files, "programs to run instead");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!settings.verbose) return settings.files.empty() ? run_seeds(settings) : run_files(settings);
    const auto dots = settings.seeds.find("..");
    for (auto s = std::stoull(settings.seeds), last = std::stoull(settings.seeds.substr(dots + 2)); s <= last; s++)
      fmt::print("{}\n", print(program_of(s, settings)));
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "fuzz: " << e.what() << std::endl;
    return 2;
  }
}
