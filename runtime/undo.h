// What parts of a step have written of what is outside, for a host that has to start over behind them.
#pragma once

#include "autograd/slots.h"
#include "autograd/tape.h"

#include <utility>
#include <vector>

namespace tandem {

class Undo {
 public:
  /// Before these parts, and the host read behind them, run.
  void keep(const Tape& tape, std::size_t first, std::size_t last, const RunInputs& inputs);
  /// Puts memory and the generator back. False, and nothing is done, where they were not kept: the optimizer has begun, or it is too much.
  bool take_back();

 private:
  void keep(const c10::Storage& storage);

  std::vector<std::pair<c10::Storage, std::vector<char>>> before_;
  at::Tensor generator_;  // undefined until something draws
  std::size_t bytes_ = 0;
  bool lost_ = false;
};

}  // namespace tandem
