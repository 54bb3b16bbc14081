// Runs a text problem again: the graph, the plan and the data of a check that failed.
#include "autograd/support/error.h"
#include "autograd/text.h"
#include "runtime/problem.h"

#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <sstream>

namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) throw tandem::Error("replay: expected a readable text problem, found '" + path + "'");
  return text.str();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Replays a text problem that a failed check wrote. Exit code 0: the check passes now; 1: it fails again; 2: wrong use.");
  std::string path;
  bool show = false;
  app.add_option("file", path, "the text problem")->required();
  app.add_flag("--show", show, "print the graph, and the plan where there is one");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    const auto problem = tandem::parse_problem(read(path));
    if (show) std::cout << tandem::print(problem.graph) << (problem.plan ? tandem::print(*problem.plan) : "");
    std::cout << "recorded: " << problem.sentence << "\n";
    const auto verdict = tandem::replay(problem);
    std::cout << (verdict.passed ? "now:      the check passes" : "now:      " + verdict.sentence) << "\n";
    return verdict.passed ? 0 : 1;
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 2;
  }
}
