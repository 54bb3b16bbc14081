// One node made ready to run through the dispatcher, again and again, on the tensors of Slots.
#pragma once

#include "autograd/graph.h"
#include "autograd/slots.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <vector>

namespace tandem {

c10::IValue to_ivalue(const Constant& constant);

/// The handle of a node's op. Throws Error "expected an op that LibTorch knows, found 'x' in node n".
c10::OperatorHandle handle_of(const Node& node);

/// The overload of a node's op that writes its results into given memory (`out=`), when LibTorch has one with a kernel of its own for the CPU: the
/// generated ones call the plain op and copy. Nullopt also when the node's results are not each a tensor on a new storage.
std::optional<c10::OperatorHandle> out_overload(const Graph& graph, const Node& node);

class NodeCall {
 public:
  NodeCall(const Graph& graph, const Node& node);
  /// Runs `out` (see out_overload), which writes into the memory where Slots has placed the results. The first time both run: some of LibTorch's
  /// overloads refuse what the plain op takes, others compute something else. Then, and where it throws later, the plain op runs and its results are
  /// copied; a user's mistake gets the plain op's own words.
  NodeCall(const Graph& graph, const Node& node, c10::OperatorHandle out);

  /// Runs the op and stores its results. Throws what the op throws; Slots is then as before the call but for what the op has written.
  void run(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack);
  const Node& node() const { return *node_; }

 private:
  enum class Pass : std::uint8_t { constant, scalar, wrapped_scalar, tensor, fresh_tensor, list, optional_list };
  struct Slot {
    Pass pass;
    c10::IValue constant;  // wrapped_scalar: the 0-dim tensor whose number is written before each call
    std::int32_t scalar = -1;
  };
  c10::IValue number(const std::vector<double>& scalars, std::int32_t scalar) const;
  void push_all(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack);
  void run_out(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack);
  bool out_agrees(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack, const torch::jit::Stack& expected);
  void run_into_placed(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack);
  void push(Slots& slots, const std::vector<double>& scalars, torch::jit::Stack& stack, std::size_t i);

  const Graph* graph_;
  const Node* node_;
  c10::OperatorHandle op_;
  std::vector<Slot> args_;
  std::optional<c10::OperatorHandle> out_op_;
  bool into_placed_ = false;
  enum class Out : std::uint8_t { untried, trusted, refused } out_ = Out::untried;
};

}  // namespace tandem
