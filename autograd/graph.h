// The joint graph of one training step: forward, backward and update, in the order in which eager ran them.
//
// Values are (storage, version, geometry): every write makes a new version of its storage, a view is another geometry on the same one. So
// in-place ops and views need no rewriting to be functional: a value is immutable, and who reads what is explicit.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/complex.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace tandem {

using StorageId = std::int32_t;
using ValueId = std::int32_t;  // -1: an undefined tensor
using NodeId = std::int32_t;

enum class Side : std::uint8_t { forward, backward, update };

/// Where a storage comes from. All but `internal` exist before the step and are bound anew for each run; `carried` ones were made by an earlier part
/// of the same step (see segment.h).
enum class Role : std::uint8_t { internal, input, parameter, gradient, buffer, optimizer_state, captured, carried };

struct Storage {
  Role role = Role::internal;
  std::int32_t index = 0;  // which input, parameter, ... of its role
  std::string name;        // the user's name for it, e.g. "fc1.weight"
  std::int64_t bytes = 0;
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  bool operator==(const Storage&) const = default;
};

struct Value {
  StorageId storage = -1;
  std::int32_t version = 0;
  std::int64_t offset = 0;  // in elements
  std::vector<std::int64_t> sizes, strides;
  c10::ScalarType dtype = c10::ScalarType::Float;
  bool conj = false, neg = false, zero = false;  // lazily conjugated, negated; autograd's "efficient zero tensor"
  bool operator==(const Value&) const = default;
};

/// A number that is computed anew for each run, e.g. a learning rate.
struct RuntimeScalar {
  std::string name;
  double recorded = 0;    // its value in the recorded step
  bool integral = false;  // eager passes it as an integer, of at most 53 bits
  bool operator==(const RuntimeScalar& o) const { return name == o.name && integral == o.integral; }
};

struct None {
  bool operator==(const None&) const = default;
};
using Constant = std::variant<None, bool, std::int64_t, double, c10::complex<double>, std::string, c10::Device, std::vector<std::int64_t>,
                              std::vector<double>, std::vector<bool>>;
bool same(const Constant& a, const Constant& b);  // bit for bit, so NaN equals NaN and 0.0 differs from -0.0

/// An argument or a result of a node.
struct Argument {
  enum class Kind : std::uint8_t { constant, tensor, tensors };
  Kind kind = Kind::constant;
  Constant constant;            // kind constant
  bool wrapped = false;         // kind constant: ATen passes this number as a 0-dim "wrapped number" tensor
  std::int32_t scalar = -1;     // kind constant: index of a RuntimeScalar that replaces `constant`, or -1
  std::vector<ValueId> values;  // kind tensor: one; kind tensors: any number
  bool operator==(const Argument& o) const;
};

struct Effects {
  bool random = false;      // draws from a generator
  bool collective = false;  // talks to other processes
  bool opaque = false;      // nothing is known beyond its schema: never merged or dropped
  bool host_read = false;   // the host sees numbers or sizes that depend on values: a graph break, no part of a plan
  bool operator==(const Effects&) const = default;
};

struct Node {
  NodeId id = -1;  // stable: passes keep the recorded number; new nodes get new numbers
  std::string op;  // name and overload, e.g. "aten::add.Tensor"
  std::vector<Argument> args, results;
  std::vector<StorageId> writes;  // storages that get a new version here, sorted
  Side side = Side::forward;
  Effects effects;
  bool folded = false;               // depends on nothing: runs once, at activation
  std::int32_t stream = 0;           // device stream; 0 is the current one
  std::int64_t workspace = 0;        // bytes of scratch memory beyond the results
  std::string ran_for;               // autograd node whose backward ran this, e.g. "AddmmBackward0#4"
  std::vector<std::string> created;  // autograd nodes that it created
  bool operator==(const Node&) const = default;
};

/// The gradient that backward leaves for a leaf tensor.
struct Gradient {
  std::int32_t leaf = 0;  // index into the step's leaves
  std::string name;
  ValueId value = -1;   // at the end of the step; -1: dropped after the update
  ValueId before = -1;  // when the update side begins (clipping writes it there)
  bool operator==(const Gradient&) const = default;
};

/// Immutable once built (see GraphBuilder); passes return new graphs.
struct Graph {
  std::string made_by;  // the pass that made it
  std::vector<Storage> storages;
  std::vector<Value> values;
  std::vector<RuntimeScalar> scalars;
  std::vector<Node> nodes;
  ValueId loss = -1;
  std::vector<ValueId> outputs;  // the loss function's further tensors; -1 where undefined
  std::vector<Gradient> gradients;
  ValueId grad_norm = -1;

  /// Index of the first node of the update side; nodes.size() when there is none.
  std::size_t update_begin() const;
  const Storage& storage_of(ValueId v) const { return storages[values[v].storage]; }
};

/// Whether the graphs have equal nodes, values and storages; otherwise one sentence about the first difference. `made_by` is not compared,
/// nor the recorded values of run-time scalars.
std::string first_difference(const Graph& a, const Graph& b);

/// Calls f(ValueId) for each tensor among the arguments, undefined ones left out.
template <class List, class F>
void for_each_value(const List& arguments, F&& f) {
  for (auto& a : arguments)
    for (auto& v : a.values)
      if (v >= 0) f(v);
}

const char* name_of(Side);
const char* name_of(Role);
std::int64_t bytes_of(const Value&);  // numel * itemsize
std::string describe(const Value&);   // "float32 [32, 20]"
std::string describe(const Node&);    // "node 12 aten::add.Tensor (backward)"

}  // namespace tandem
