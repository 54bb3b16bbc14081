// A small training program as a value: declarations, statements, optimizer, steps; its text form prints and parses.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::fuzz {

/// An argument of a call: none, true, 3, 2b (twice the batch), 0.5, "text", :float32, name of a value, training, [items].
struct Argument {
  enum class Kind { none, boolean, integer, batch, number, text, dtype, value, training, list };
  Kind kind = Kind::none;
  std::int64_t integer = 0;  // boolean, integer; batch: how many batches; dtype: its number
  double number = 0;
  std::string text = {};  // text; value: its name
  std::vector<Argument> items = {};
  bool operator==(const Argument&) const = default;
};
Argument nothing();
Argument truth(bool);
Argument whole(std::int64_t);
Argument batches(std::int64_t);
Argument real(double);
Argument in_quotes(std::string);
Argument named(std::string);
Argument type(at::ScalarType);
Argument list(std::vector<Argument>);

/// `v3 = aten::add.Tensor(v1, p0, 1)`, or `v4 = l0(v3)` for a layer; a list of tensors has one name for each.
struct Statement {
  std::vector<std::string> results;
  std::string op;
  std::vector<Argument> arguments;
  bool no_grad = false;  // under a NoGradGuard
  bool operator==(const Statement&) const = default;
};

/// A tensor that the program gets from outside. Integers lie in [0, below).
struct Outside {
  enum class Role { parameter, buffer, input };
  Role role = Role::input;
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<Argument> sizes;  // integer, or batch
  std::int64_t below = 2;
  bool channels_last = false;
  bool operator==(const Outside&) const = default;
};

struct Layer {
  std::string name, kind;  // "Linear"
  std::vector<std::int64_t> arguments;
  bool operator==(const Layer&) const = default;
};

struct Step {
  std::int64_t batch = 7;
  std::optional<double> lr;  // set before the step
  bool training = true;
  bool operator==(const Step&) const = default;
};

struct Program {
  std::uint64_t seed = 0;                 // of the data
  std::map<std::string, double> options;  // those of tandem::Options that are not at their default
  std::string optimizer = "SGD";          // class
  std::map<std::string, double> hyper;    // its options
  std::vector<Outside> outside;
  std::vector<Layer> layers;
  std::vector<Statement> statements;
  std::vector<std::string> losses, outputs;  // the loss is the sum of `losses`, each of one element
  std::vector<Step> steps;
  bool operator==(const Program&) const = default;
};

std::string print(const Program&);
std::string print(const Statement&);
/// Throws std::invalid_argument "line L: expected X, found Y".
Program parse(std::string_view text);

/// Calls f for each value that the argument names, those in lists too.
template <class A, class F>
void for_each_value(A& argument, F&& f) {
  if (argument.kind == Argument::Kind::value) f(argument.text);
  for (auto& item : argument.items) for_each_value(item, f);
}

const char* name_of(at::ScalarType);

}  // namespace tandem::fuzz
