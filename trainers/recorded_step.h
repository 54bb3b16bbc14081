// One recorded eager step, complete with what the host side needs.
#pragma once

#include "runtime/outcome.h"
#include "trainers/binding.h"

#include <string>
#include <vector>

namespace tandem {

struct RecordedStep {
  Recording recording;
  Outside outside;
  std::vector<bool> has_grad;
  std::size_t visible_outputs = 0;  // of Graph::outputs; the others are tensors that somebody keeps
  std::uint64_t autograd = 0;       // autograd_fingerprint() of the loss
  std::string full_reason;          // why the host must replay backward and update, too; empty: the closure will do
  EagerStep eager;
  bool has_data = false;       // `eager` is complete: what the step wrote was copied before
  bool final_refusal = false;  // recording again would not help

  void drop_data();
  std::size_t inputs() const { return outside.input_start.size(); }
};

/// Storages and generator from a recording that has copied what it wrote.
void take_data(Recording& recording, const at::Tensor& generator_before, EagerStep& eager);

/// Moves a recording's inputs to where another one has them: mini-batches are slices, and where one lies is no part of the step. `inputs`: of the
/// caller's; those of the graph from there on are tangents, of which the two may have others.
void place_as(const Graph& other, const Outside& there, Graph& graph, Outside& here, EagerStep& eager, std::size_t inputs);
template <class Recorded>
void place_as(const Recorded& there, Recorded& here) {
  place_as(there.recording.graph, there.outside, here.recording.graph, here.outside, here.eager, here.inputs());
}

}  // namespace tandem
