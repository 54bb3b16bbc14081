// What must run before what, within nodes that follow each other in a graph.
#pragma once

#include "autograd/graph.h"

#include <cstdint>
#include <vector>

namespace tandem {

/// A set of small numbers.
class Bits {
 public:
  Bits() = default;
  explicit Bits(std::size_t size) : words_((size + 63) / 64, 0) {}

  void set(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << (i % 64); }
  void clear(std::size_t i) { words_[i / 64] &= ~(std::uint64_t{1} << (i % 64)); }
  bool test(std::size_t i) const { return words_[i / 64] >> (i % 64) & 1; }

  void add(const Bits& other) {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
  }
  bool meets(const Bits& other) const {
    for (std::size_t w = 0; w < words_.size(); ++w)
      if (words_[w] & other.words_[w]) return true;
    return false;
  }

  template <class F>
  void for_each(F&& f) const {
    for (std::size_t w = 0; w < words_.size(); ++w)
      for (std::uint64_t rest = words_[w]; rest; rest &= rest - 1) f(w * 64 + static_cast<std::size_t>(__builtin_ctzll(rest)));
  }

 private:
  std::vector<std::uint64_t> words_;
};

/// How a node takes part.
enum class Part : std::uint8_t {
  free,     // runs when what it depends on has run
  ordered,  // besides that, in the recorded order among its kind: library calls
  view,     // nobody depends on it, as a value on a storage is its geometry; but what it names must not be overwritten before
  absent,   // has run before: once
};

struct Dependencies {
  /// Per node, ascending: makers of what it reads, readers of what it overwrites, the ordered node before it; between what may throw and what
  /// writes memory that outlives the step, the recorded order.
  std::vector<std::vector<std::int32_t>> before;
  std::vector<std::vector<std::int32_t>> sources;  // those of them that make what it reads
};

/// Of graph.nodes[begin + i] for each i; `parts` gives one entry per node.
Dependencies dependencies_of(const Graph& graph, std::size_t begin, const std::vector<Part>& parts);

}  // namespace tandem
