// Structural checks of a Graph, run after capture and after each pass.
#pragma once

#include "autograd/graph.h"

#include <string>

namespace tandem {

/// Empty when the graph holds; otherwise one sentence that starts with the broken rule's label. Rules:
///  [ids]        every value, storage and scalar that is named exists; node ids are unique
///  [geometry]   sizes and strides have equal lengths, nothing negative, the view lies inside its storage
///  [version]    versions of a storage start at 0, go up by one with each node that writes it, and a value is read at the version that its
///               storage has at that point
///  [producer]   an internal storage is first named among the results of a node (its first version comes from there)
///  [effects]    a node with effects is not folded; a folded node reads only folded or nothing, and nobody writes what it made
///  [side]       sides do not go back from update; a forward node does not read what only a later one makes
///  [outputs]    loss, outputs and gradients are values at the last version of their storage (loss: one element)
std::string verify(const Graph&);

}  // namespace tandem
