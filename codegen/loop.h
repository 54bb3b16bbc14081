// One kernel as a loop over elements: what is lowered from a group of nodes and printed as C.
//
// Dims are collapsed and ordered by the memory they touch. The last `row` dims form the row: one unit of the kernel, over which row reductions run.
// Instructions are in static single assignment form, all in the compute dtype; truth values are 1 and 0.
#pragma once

#include "autograd/formula.h"

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

/// Memory that the loop touches: one storage at one offset, dtype and strides. Reads come before writes of the same element.
struct LoopParameter {
  c10::ScalarType dtype = c10::ScalarType::Float;
  bool read = false, written = false;
  std::vector<std::int64_t> strides;  // elements per dim of the loop
  bool operator==(const LoopParameter&) const = default;
};

struct Instruction {
  enum class Kind : std::uint8_t {
    load,     // of parameter `index`, converted to the compute dtype
    scalar,   // run-time scalar `index`, converted to the compute dtype
    number,   // `value`
    step,     // `term` of a, b, c; row_sum, row_max and row_min run over the row
    convert,  // a, rounded as if stored with `dtype` and loaded again
    total,    // a reduced over the dims in `over`, across units and chunks: `term` is row_sum, row_max or row_min; known at the end only
    store,    // of a to parameter `index`
  };
  Kind kind = Kind::number;
  Term term = Term::number;
  std::int32_t a = -1, b = -1, c = -1;
  std::int32_t index = -1;
  double value = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<bool> over;
  bool operator==(const Instruction&) const;  // numbers bit for bit
};

/// A size that is not part of the kernel: its units are the elements.
constexpr std::int64_t any_size = 0;

struct Loop {
  c10::ScalarType compute = c10::ScalarType::Float;  // Float or Double
  std::vector<std::int64_t> sizes;                   // outermost first; [any_size]: a flat loop
  std::int32_t row = 1;                              // how many trailing dims form the row
  std::vector<LoopParameter> parameters;
  std::int32_t scalars = 0;  // how many run-time scalars
  std::vector<Instruction> code;
  bool operator==(const Loop&) const = default;

  bool flat() const { return sizes.size() == 1 && sizes[0] == any_size; }
  std::size_t outer() const { return flat() ? 0 : sizes.size() - static_cast<std::size_t>(row); }
  std::int64_t row_elements() const;  // 1 for a flat loop
};

/// Where an instruction's value is known, from wide to narrow.
enum class Scope : std::uint8_t {
  fixed,  // the same for all elements
  unit,   // the same for a row
  element,
  finish,  // after all chunks: totals and what is computed from them
};

/// Per instruction. A load of a parameter without strides is fixed, one without strides over the row belongs to the unit.
std::vector<Scope> scopes_of(const Loop&);

/// How many operands the term has, 0 to 3; -1 for terms that are no arithmetic.
int operands_of(Term);

/// Whether recomputing the term costs more than loading a value.
bool is_expensive(Term);

/// Empty when the loop can be emitted; otherwise one sentence that names the first instruction at fault.
std::string fault_of(const Loop&);

std::string print(const Loop&);
Loop parse_loop(std::string_view text);  // throws Error "text line L: expected X, found Y"

}  // namespace tandem
