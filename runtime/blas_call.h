// A matrix product of a node called in BLAS directly: at::mm ends there too, after ten times the work of a small product.
#pragma once

#include "autograd/graph.h"
#include "autograd/slots.h"

#include <cstdint>
#include <vector>

namespace tandem {

class BlasCall {
 public:
  /// Two-dimensional float32 or float64 operands with one unit stride each, whose formula is matmul(a, b) or beta * c + alpha * matmul(a, b).
  static bool can_run(const Graph& graph, const Node& node);

  BlasCall(const Graph& graph, const Node& node);
  /// Result = alpha * a b + beta * c, into the memory where Slots has placed the result.
  void run(Slots& slots, const std::vector<double>& scalars) const;

 private:
  /// One operand: where it lies, and how BLAS (column by column) sees it.
  struct Matrix {
    StorageId storage = -1;
    std::int64_t byte_offset = 0, rows = 0, columns = 0, row_stride = 0, column_stride = 0;
    char transposed = 'N';
    int leading = 1;
  };
  /// A number of the formula: constant, or a run-time scalar.
  struct Factor {
    double value = 1;
    std::int32_t scalar = -1;
  };
  static Matrix matrix_of(const Graph& graph, ValueId v, bool by_columns);
  static bool is_one_column(const Value& result);
  template <class T>
  void run_as(Slots& slots, double alpha, double beta) const;
  template <class T>
  void copy_addend(Slots& slots) const;
  struct Parts;
  static bool split(const Graph& graph, const Node& node, Parts& parts);

  Matrix a_, b_, result_, addend_;
  Factor alpha_, beta_;
  bool has_addend_ = false, is_double_ = false, one_column_ = false;
};

}  // namespace tandem
