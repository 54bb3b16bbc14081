// The host replay check of a compiled call: the function runs on placeholders, and each of its ops is compared, before its plan runs.
#pragma once

#include "autograd/replay.h"
#include "trainers/compile_record.h"

#include <string>
#include <vector>

namespace tandem {

struct CallReplay {
  bool followed = false;
  detail::Flat out;  // not followed: what the function returned, in eager
  std::string why;   // not followed
};

/// Runs the function. Where it does what was recorded nothing is computed, and version counters are as before; where it does something else the ops so
/// far are run, and the same call goes on in eager. Throws what the function throws. `bound`: the storages that exist before the call. `writes`: whether
/// the call writes one of them.
CallReplay replay_call(const detail::Callee& callee, ModuleTensors& world, const std::vector<at::Tensor>& inputs,
                       const RecordedCall& recorded, const Tape& tape, const RunInputs& bound, bool writes);

/// What the backward of a function's results would do, as one hash; see autograd_fingerprint().
std::uint64_t fingerprint_of(const std::vector<at::Tensor>& outputs, std::uint64_t first_sequence, const ModuleTensors& world);

}  // namespace tandem
