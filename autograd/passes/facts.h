// What several passes ask of a graph, worked out in one place so that they agree.
#pragma once

#include "autograd/graph.h"
#include "autograd/op.h"

#include <vector>

namespace tandem {

struct StorageFacts {
  std::vector<char> written;  // some node writes it after it was made
  std::vector<char> escapes;  // it holds the loss, an output, a gradient or the norm
};
StorageFacts storage_facts(const Graph&);

/// The row of a node that only computes its results: known, not random, without effects, writes nothing, returns tensors only. Else
/// nullptr.
const OpRow* pure_row(const Node&);

bool reads_storage(const Graph&, const Node&, StorageId);

/// Per node: whether it depends on nothing that changes between runs, so that it may run once, at activation.
std::vector<char> foldable(const Graph&);

}  // namespace tandem
