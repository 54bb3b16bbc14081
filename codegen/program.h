// What a step runs, in order: calls of library ops, views made from their geometry, and generated kernels.
#pragma once

#include "autograd/graph.h"
#include "partitioner/partition.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// Source text of one generated kernel.
struct Kernel {
  std::string name, source;
  bool operator==(const Kernel&) const = default;
};

struct Call {
  enum class Kind : std::uint8_t {
    library,  // the node's op through the dispatcher
    view,     // nothing runs: the results are made from their geometry
    once,     // as library, but at activation
    kernel,   // a generated kernel; generate() makes none yet, every node has a library call
  };
  Kind kind = Kind::library;
  NodeId node = -1;               // kernel: the last node that it covers, for reports
  std::int32_t kernel = -1;       // kind kernel: index into Program::kernels
  std::vector<ValueId> operands;  // kind kernel: its parameters in order
  bool operator==(const Call&) const = default;
};

struct Program {
  std::vector<Kernel> kernels;
  std::vector<Call> calls;
  bool operator==(const Program&) const = default;
};

/// One call per node, in the order of the groups. Throws InternalError when validate() refuses the partition.
Program generate(const Graph&, const Partition&);

std::string print(const Program&);
Program parse_program(std::string_view text);  // throws Error "text line L: expected X, found Y"

const char* name_of(Call::Kind);

}  // namespace tandem
