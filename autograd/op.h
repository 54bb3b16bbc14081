// Typed access to the op table (ops.def): what is known of an ATen op beyond its schema.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

enum class Kind : std::uint8_t {
  view,           // another geometry on the storage of the first argument; no memory is touched
  pointwise,      // one element of each (broadcast) operand per element of the result
  reduction,      // sums, means, norms over some dims
  softmax,        // row-local chains: softmax, layer norm, their backwards
  normalization,  // statistics over all but one dim: batch norm
  contraction,    // matrix products
  convolution,
  pooling,
  gather,   // reads at computed positions; may throw for a bad index
  scatter,  // writes at computed positions; may throw for a bad index
  copy,     // moves data, perhaps with a cast: clone, copy_, cat
  factory,  // makes a tensor out of numbers
  random,
  loss,    // losses with class labels; may throw for a bad label
  ragged,  // its results' sizes follow from values, though no tag of LibTorch says so: the host sees them
};

struct OpRow {
  std::string_view name;  // "aten::add.Tensor"
  Kind kind;
  int flops;                 // per element of the result (contraction, convolution: per multiply-add)
  std::string_view writes;   // arguments that are written though the schema does not say so, e.g. "running_mean,running_var"
  std::string_view aliases;  // argument that the first result shares memory with though the schema does not say so
  std::string_view formula;  // what it computes, see formula.h; empty: nothing is known
};

/// The row of an op, or nullptr: such an op is opaque, it runs through the dispatcher and nothing is assumed.
const OpRow* find_op(std::string_view name);

/// Every row, for tests.
struct OpTable {
  const OpRow* first;
  const OpRow* last;
  const OpRow* begin() const { return first; }
  const OpRow* end() const { return last; }
};
OpTable op_table();

/// Whether the op may throw because of the values (not the shapes) of its operands.
bool may_throw(Kind);
const char* name_of(Kind);

}  // namespace tandem
