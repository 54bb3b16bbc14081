#include "autograd/interpret.h"

#include "autograd/key.h"
#include "autograd/liveness.h"

#include <numeric>

namespace tandem {

Interpreter::Interpreter(const Graph& graph) : graph_(graph), slots_(graph) {
  calls_.reserve(graph.nodes.size());
  for (const auto& n : graph.nodes) calls_.emplace_back(graph, n);
  std::vector<std::size_t> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  releases_ = releases(graph, order);
}

void Interpreter::begin(const RunInputs& inputs) {
  slots_.release_internal();
  slots_.bind(inputs);
  scalars_ = inputs.scalars;
}

void Interpreter::step(std::size_t node) {
  ReplayScope below;
  calls_[node].run(slots_, scalars_, stack_);
}

void Interpreter::release_after(std::size_t node) {
  for (auto s : releases_[node]) slots_.release(s);
}

void Interpreter::run(const RunInputs& inputs, const Probe& probe) {
  begin(inputs);
  for (std::size_t i = 0; i < calls_.size(); i++) {
    step(i);
    if (probe) probe(i, slots_);
    release_after(i);
  }
}

}  // namespace tandem
