// The formula column of the op table, parsed: an expression that formula_of() resolves for a node.
#pragma once

#include "autograd/formula.h"
#include "autograd/signature.h"

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct Expression {
  enum class Kind : std::uint8_t { number, text, argument, apply, choose, elements, refuse };
  Kind kind = Kind::number;
  Term term = Term::number;             // kind apply: what is applied to a, b, c
  std::int32_t a = -1, b = -1, c = -1;  // earlier expressions
  std::int32_t argument = -1;           // kinds argument and elements
  double value = 0;
  std::string text;
};

struct FormulaText {
  std::vector<Expression> expressions;
  std::vector<std::int32_t> results;  // -1: not given
};

/// Throws Error "formula column C: expected X, found Y".
FormulaText parse_formula(std::string_view text, const std::vector<Parameter>& parameters);

}  // namespace tandem
