#include "bench/support/workloads.h"

#include "autograd/support/error.h"
#include "bench/support/workload_builders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace tandem::bench {
namespace {

struct Entry {
  const char* name;
  Workload (*build)();
};

constexpr Entry entries[] = {
    {"mlp_tiny", mlp_tiny},   {"mlp_mnist", mlp_mnist}, {"resnet_cifar", resnet_cifar}, {"gpt_char", gpt_char}, {"gpt_wide", gpt_wide},
    {"lstm_cell", lstm_cell}, {"pinn", pinn},
};

}  // namespace

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.emplace_back(entry.name);
  return names;
}

void check_workload_name(const std::string& name) {
  for (const Entry& entry : entries) {
    if (name == entry.name) return;
  }
  throw Error(fmt::format("workload: expected one of {}, found '{}'", fmt::join(workload_names(), ", "), name));
}

Workload make_workload(const std::string& name) {
  check_workload_name(name);
  const Entry* entry = std::find_if(std::begin(entries), std::end(entries), [&](const Entry& e) { return name == e.name; });
  Workload workload = entry->build();
  workload.name = name;
  return workload;
}

}  // namespace tandem::bench
