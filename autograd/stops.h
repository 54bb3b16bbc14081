// Where a step must have run up to a point before the host can go on: host reads, and the end of a forward that may throw.
#pragma once

#include "autograd/capture.h"
#include "autograd/segment.h"

#include <vector>

namespace tandem {

/// The parts of a step (see cut()), and what they owe the host.
struct Parts {
  struct Part {
    std::size_t begin = 0, end = 0;  // nodes
    bool host = false;               // one host read, which the host makes itself
  };

  std::vector<Part> parts;
  std::vector<std::size_t> stops;  // positions before which all parts that end there or earlier must have run, ascending
  std::vector<ValueId> alive;      // what the host may hold at a stop
  std::vector<char>
      free_reads;  // per node: a host read of tensors from outside that nothing has written so far. It runs at once, and is in no part
};

/// `forward_first`: the closure's part runs before the backward begins, if it may throw for what a caller does (an index out of range): nothing that
/// comes later on the host has happened then.
Parts parts_of(const Recording& recording, bool forward_first);

std::vector<Segment> cut(const Graph& graph, const Parts& parts);

}  // namespace tandem
