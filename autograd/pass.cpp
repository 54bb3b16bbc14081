#include "autograd/pass.h"

#include "autograd/support/error.h"
#include "autograd/verify.h"

#include <fmt/format.h>

#include <chrono>

namespace tandem {
namespace {

struct Pass {
  const char* name;
  bool PassSwitches::*on;
  Graph (*run)(const Graph&);
};

constexpr Pass passes[] = {
    {"decompose", &PassSwitches::decompose, decompose},
    {"movement", &PassSwitches::movement, movement},
    {"cse", &PassSwitches::cse, cse},
    {"dce", &PassSwitches::dce, dce},
    {"fold", &PassSwitches::fold, fold},
};

}  // namespace

Graph run_passes(const Graph& g, const PassSwitches& switches, std::vector<PassRecord>* records) {
  Graph current = g;
  for (const Pass& pass : passes) {
    if (!(switches.*pass.on)) continue;
    const auto start = std::chrono::steady_clock::now();
    Graph next = pass.run(current);
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    if (std::string broken = verify(next); !broken.empty())
      throw InternalError(fmt::format("the graph that the pass {} made does not hold: {}", pass.name, broken));
    if (records) records->push_back({pass.name, current.nodes.size(), next.nodes.size(), spent.count()});
    current = std::move(next);
  }
  return current;
}

}  // namespace tandem
