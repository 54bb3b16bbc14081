// The dtype in which eager computes a node that has a formula.
#pragma once

#include "autograd/formula.h"
#include "autograd/graph.h"

#include <optional>
#include <string>

namespace tandem {

/// Float or Double; nullopt, with one sentence in *why, when eager computes in another dtype and the difference could be seen.
std::optional<c10::ScalarType> compute_dtype(const Graph& graph, const Node& node, const Formula& formula, std::string* why);

}  // namespace tandem
