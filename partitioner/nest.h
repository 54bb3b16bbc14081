// A node as a loop nest over elements: what fusion compares and code generation lowers.
#pragma once

#include "autograd/formula.h"
#include "autograd/graph.h"

#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// How a value is read or written inside a nest.
struct Access {
  ValueId value = -1;
  std::vector<std::int64_t> strides;  // elements per dim of the nest; 0 where the value is broadcast, or reduced over
  bool operator==(const Access&) const = default;
};

/// Dims of size 1 are left out, so [1024, 1] and [1024] are the same space; a space of one element has no dim.
struct Nest {
  std::vector<std::int64_t> sizes;                   // the full iteration space, outermost first
  std::vector<bool> reduced;                         // per dim: row reductions run over it; column sums run over the others
  c10::ScalarType compute = c10::ScalarType::Float;  // dtype of the arithmetic: Float or Double
  Formula formula;
  std::vector<Access> operands;  // as Formula::operands
  std::vector<Access> results;   // per result of the node; value -1 where there is none. A row result has stride 0 over reduced dims
  bool operator==(const Nest&) const = default;

  std::int64_t elements() const;
  bool has_rows() const { return formula.has(Term::row_sum) || formula.has(Term::row_max) || formula.has(Term::row_min); }
  bool has_columns() const { return formula.has(Term::column_sum); }
};

/// How the value of a formula's step varies over the nest.
enum class Extent : std::uint8_t {
  uniform,
  row,     // made of row reductions
  column,  // made of column sums
  element,
};

/// Per step. Column sums and elements do not meet in a step of a nest.
std::vector<Extent> extents_of(const Formula&);

/// Nullopt, with one sentence in *why, when the node is no loop that is generated: no formula, effects, an op that may throw, a dtype other than
/// float32, float64 (bool and integers as operands or results of comparisons and copies are fine), a lazily changed tensor, an empty tensor, overlapping
/// result memory, a device other than the CPU.
std::optional<Nest> nest_of(const Graph& graph, const Node& node, std::string* why = nullptr);

/// The same loop with its dims split or merged into these sizes, e.g. [16, 64, 384] as [1024, 384]; nullopt where strides or reductions do not allow it.
std::optional<Nest> refit(const Nest& nest, const std::vector<std::int64_t>& sizes);

/// The nests of a kernel group's nodes over one common space; nullopt, with one sentence in *why, when there is none.
std::optional<std::vector<Nest>> nests_of(const Graph& graph, const std::vector<const Node*>& nodes, std::string* why = nullptr);

}  // namespace tandem
