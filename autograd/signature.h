// What the schema of an op calls its arguments.
#pragma once

#include "autograd/graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct Parameter {
  std::string name;
  bool optional = false;  // None or an undefined tensor may be passed
};

/// In the order of Node::args. Empty when LibTorch does not know the op. The reference stays valid; thread-safe.
const std::vector<Parameter>& parameters_of(std::string_view op);

/// The node's argument of that name, or nullptr.
const Argument* argument_of(const Node& node, std::string_view name);

}  // namespace tandem
