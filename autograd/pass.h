// A pass is one pure function Graph -> Graph in a file of its own. This runs them in order, verified after each.
#pragma once

#include "autograd/graph.h"

#include <string>
#include <vector>

namespace tandem {

struct PassSwitches {
  bool decompose = false, movement = true, fold = true, cse = true, dce = true;
};

struct PassRecord {
  std::string pass;
  std::size_t nodes_before = 0, nodes_after = 0;
  double ms = 0;
};

Graph decompose(const Graph&);  // composite nodes into primitive ones, by the table in passes/decompose.cpp
Graph movement(const Graph&);   // cat, stack, backwards of slices: copies into views of the result, by the table in passes/movement.cpp
Graph fold(const Graph&);       // marks nodes that depend on nothing: they run once, at activation
Graph cse(const Graph&);        // merges equal pure nodes whose storages are never written
Graph dce(const Graph&);        // drops nodes that nothing needs, that write nothing that lives on, draw nothing and cannot throw

/// Runs the passes that are switched on, in the order decompose, movement, cse, dce, fold (decompose exposes equal parts, cse leaves the dead, fold needs
/// the final nodes). Throws InternalError with the pass and the broken rule when verify() fails after one.
Graph run_passes(const Graph&, const PassSwitches&, std::vector<PassRecord>* records = nullptr);

}  // namespace tandem
