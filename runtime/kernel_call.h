// A call of generated kernels: the launches of one Call, on LibTorch's thread pool.
#pragma once

#include "autograd/slots.h"
#include "codegen/jit/jit.h"
#include "codegen/program.h"

#include <cstdint>
#include <vector>

namespace tandem {

class KernelCall {
 public:
  /// `workspace`: for the partial sums of the launches, workspace_bytes() of the call. Throws Error when the module lacks a function.
  KernelCall(const Graph& graph, const Program& program, const Call& call, const jit::Module& module, void* workspace);

  void run(const Slots& slots, const std::vector<double>& scalars);

 private:
  using Run = void (*)(void* const*, const double*, long, long, long);
  using Finish = void (*)(void* const*, const double*, long);
  struct Operand {
    StorageId storage;
    std::int64_t byte_offset;
  };
  struct Prepared {
    Run run = nullptr;
    Finish finish = nullptr;
    std::int64_t units = 0, chunks = 1, unit_elements = 1;
    std::vector<Operand> operands;
    std::vector<std::int32_t> scalars;
    std::vector<void*> p;  // of this run
    std::vector<double> s;
  };
  /// Units begin..end of one launch, as its chunk `chunk`.
  struct Task {
    std::int32_t launch;
    std::int64_t begin, end, chunk;
  };
  void make_tasks();

  std::vector<Prepared> launches_;
  std::vector<Task> tasks_;  // what threads share
  std::int64_t elements_ = 0;
};

/// Below this many elements of the iteration space a second thread costs more than it gains.
constexpr std::int64_t elements_per_thread = 16384;

}  // namespace tandem
