// What an op computes, as an expression over the elements of its operands: the `formula` column of ops.def, resolved for one node.
//
// Grammar: statements separated by ';', the last one lists the op's results separated by '|'.
//   m = max(self); e = exp(self - m); e / sum(e)                    (one result)
//   ...; y | mean | rstd                                            ('_' for a result that the formula does not give)
// Names are the schema's argument names or earlier statements. A tensor is its element, a number its value. Arithmetic is done in the node's
// compute dtype, in the order in which it is written, one rounding per operation. A truth value counts as 0 or 1 in arithmetic, a number as its
// being unequal to 0 in a condition; what is stored as bool is `value != 0`.
// Decided at resolution: `c ? a : b` where c is known. An argument that may be absent (a tensor or a number) stands for its being there;
// `numel(x)`: the number of elements of a tensor; `refuse`: the formula does not hold. Arithmetic of literals is done in double; factors that
// are exactly 1 are dropped.
#pragma once

#include "autograd/graph.h"
#include "autograd/op.h"

#include <optional>
#include <string>
#include <vector>

namespace tandem {

enum class Term : std::uint8_t {
  operand,   // an element of Formula::operands[index]
  number,    // `value`
  argument,  // the number that is the node's argument `index`: Argument::constant, or the run-time scalar Argument::scalar
  count,     // how many elements a row reduction of the node runs over
  neg,
  abs,
  exp,
  log,
  log1p,
  expm1,
  sin,
  cos,
  tanh,
  sqrt,
  erf,
  floor,
  ceil,
  trunc,
  rint,
  is_nan,
  logical_not,  // of a
  add,
  sub,
  mul,
  div,
  pow,
  minimum,
  maximum,  // of a, b; minimum and maximum give NaN where either is
  fma,  // a * b + c, rounded once as ATen's vector code does where the machine has the instruction, otherwise twice as it does there too
  lt,
  le,
  gt,
  ge,
  eq,
  ne,
  logical_and,
  logical_or,  // truth values
  select,      // a ? b : c
  row_sum,
  row_max,
  row_min,     // over the node's reduced dims: text sum(), max(), min()
  column_sum,  // over the other dims: text colsum()
  matmul,      // matrix product of operands a and b over their last two dims; never inside a loop
  arbitrary,   // memory whose contents nobody may rely on: empty_like
};

struct Step {
  Term term = Term::number;
  std::int32_t a = -1, b = -1, c = -1;  // earlier steps
  std::int32_t index = -1;
  double value = 0;
  bool operator==(const Step&) const = default;
};

/// Steps in order of evaluation, each value once. Conditions on constant arguments (`reduction == 1 ? ... : ...`, `weight ? ... : ...` for a
/// tensor that may be undefined, `approximate == "tanh"`) are decided already.
struct Formula {
  std::vector<Step> steps;
  std::vector<ValueId> operands;      // distinct tensors that the steps read
  std::vector<std::int32_t> results;  // per result of the node: its step, or -1 where it is undefined or unused in the formula
  bool operator==(const Formula&) const = default;

  bool has(Term) const;
};

/// The node's formula; nullopt, with one sentence in *why, when its row has none or it does not hold for these arguments.
std::optional<Formula> formula_of(const Graph& graph, const Node& node, std::string* why = nullptr);

/// What is wrong with the text of a row, for tests: empty when it parses and names only arguments of the op's schema.
std::string formula_fault(const OpRow& row);

const char* name_of(Term);
bool is_reduction(Term);  // row_sum, row_max, row_min, column_sum

}  // namespace tandem
