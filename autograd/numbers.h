// The numbers of a recorded step: what a program may change from step to step without changing the ops.
#pragma once

#include "autograd/graph.h"

#include <optional>
#include <string>
#include <vector>

namespace tandem {

/// A Scalar or floating argument, or a wrapped number: not an int (a size, a dim) and not a flag.
struct NumberPlace {
  std::int32_t node = 0, arg = 0;  // indices
  bool operator==(const NumberPlace&) const = default;
};

/// In the order of nodes and arguments, which is the order in which a Replayer sees them.
std::vector<NumberPlace> numbers_of(const Graph& graph);

/// A number's value; integers are exact up to 53 bits, larger ones are no numbers in this sense.
double value_of(const Argument& number);
bool is_integral(const Argument& number);
bool same_bits(double a, double b);

/// Gives the first numbers of a graph these values, and makes constants of all of its run-time scalars.
void set_numbers(Graph& graph, const std::vector<double>& values);

/// Makes a run-time scalar of the number, named after its op and argument.
void free_number(Graph& graph, const NumberPlace& place);

/// Which numbers of two graphs of one step differ: positions in numbers_of(). `difference` is one sentence where anything else differs.
struct Moved {
  std::string difference;
  std::vector<std::size_t> numbers;
};
Moved moved_numbers(const Graph& a, const Graph& b);

/// How many values and storages the first nodes name.
struct Named {
  std::size_t values = 0, storages = 0;
};
Named named_by(const Graph& graph, std::size_t nodes);

/// The first nodes of a graph as a graph of their own, without what it gives back.
Graph calls_of(const Graph& graph, std::size_t nodes);

/// How the numbers that move later in a step follow from those of the closure.
struct Derived {
  enum class How : std::uint8_t { same, negated, reciprocal, negated_reciprocal };
  std::size_t number = 0, from = 0;  // positions in numbers_of()
  How how = How::same;
};
double derive(Derived::How how, double from);

/// For each number in `moved` at node `boundary` or after, one of those before it that gives its bits in both graphs. Where several do, the one
/// counts whose node made the autograd node that the later node ran for. Nullopt when that leaves none, or two that may part later.
std::optional<std::vector<Derived>> derive_numbers(const Graph& a, const Graph& b, const std::vector<std::size_t>& moved,
                                                   std::size_t boundary);

}  // namespace tandem
