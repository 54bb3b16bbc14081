// What a step runs, in order: calls of library ops, views made from their geometry, and generated kernels.
#pragma once

#include "autograd/graph.h"
#include "partitioner/partition.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// A generated C function
///   void name(void* const* p, const double* s, long begin, long end, long chunk)
/// over units begin..end of its outermost loop. p: its operands, then, where `partial_bytes` > 0, its workspace. Where `partial_bytes` > 0, each chunk
/// leaves partial sums in its own part of the workspace, and `name`_finish(p, s, chunks) combines them in order after all chunks.
struct Kernel {
  std::string name;
  std::string loop;                // its loop nest in text form
  std::string source;              // C text of its functions, without the prelude
  std::int64_t unit_elements = 1;  // elements of the iteration space per unit, for the choice of threads
  std::int64_t partial_bytes = 0;  // workspace per chunk
  bool operator==(const Kernel&) const = default;
};

/// One run of a kernel. Kernels are shared: equal loops over other memory are other launches of the same kernel.
struct Launch {
  std::int32_t kernel = -1;  // index into Program::kernels
  std::int64_t units = 0,
               chunks = 1;  // chunk c has units [units*c/chunks, units*(c+1)/chunks); fixed, so that sums do not depend on the threads
  std::vector<ValueId> operands;      // p[i] is the address of this value's first element
  std::vector<std::int32_t> scalars;  // s[i] is this run-time scalar
  std::vector<NodeId> nodes;          // what it covers
  bool operator==(const Launch&) const = default;
};

struct Call {
  enum class Kind : std::uint8_t {
    library,  // the node's op through the dispatcher or BLAS
    view,     // nothing runs: the results are made from their geometry
    once,     // as library, but at activation
    kernel,   // generated kernels that are independent of each other
  };
  Kind kind = Kind::library;
  NodeId node = -1;              // kernel: the last node that it covers
  std::vector<Launch> launches;  // kind kernel
  bool operator==(const Call&) const = default;
};

struct Program {
  std::vector<Kernel> kernels;
  std::vector<Call> calls;
  bool operator==(const Program&) const = default;
};

/// One call per node, in the order of the groups; one call per launch of joined kernel groups. Throws InternalError when validate() refuses the
/// partition.
Program generate(const Graph&, const Partition&);

/// The C text of all kernels, prelude included: one translation unit.
std::string c_source(const Program&);

std::string print(const Program&);
Program parse_program(std::string_view text);  // throws Error "text line L: expected X, found Y"

const char* name_of(Call::Kind);

}  // namespace tandem
