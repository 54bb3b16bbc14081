// When storages begin and end to matter.
#pragma once

#include "autograd/graph.h"

#include <vector>

namespace tandem {

/// Storages that must outlive the run: those of loss, outputs, gradients and the norm.
std::vector<char> escaping(const Graph& graph);

/// Per position in `order` (indices of nodes): internal storages whose last use it is. Escaping and folded storages are never released.
std::vector<std::vector<StorageId>> releases(const Graph& graph, const std::vector<std::size_t>& order);

}  // namespace tandem
