// Writes small graphs node by node, for tests of passes and partitions. Geometry is given, never inferred.
#pragma once

#include "autograd/graph.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tandem::test {

using Sizes = std::vector<std::int64_t>;

inline Sizes rows(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<std::int64_t>(sizes[d], 1);
  return strides;
}

inline Argument tensor(ValueId v) {
  Argument a;
  a.kind = Argument::Kind::tensor;
  a.values = {v};
  return a;
}

inline Argument number(Constant c, std::int32_t scalar = -1) {
  Argument a;
  a.constant = std::move(c);
  a.scalar = scalar;
  return a;
}
inline Argument number(double d) { return number(Constant(d)); }
inline Argument number(int i) { return number(Constant(std::int64_t{i})); }
inline Argument none() { return number(Constant(None{})); }
inline Argument ints(Sizes list) { return number(Constant(std::move(list))); }

class GraphMaker {
 public:
  Graph g;
  Side side = Side::forward;  // of the nodes that follow

  ValueId outside(Role role, const Sizes& sizes, c10::ScalarType dtype = c10::ScalarType::Float) {
    const ValueId v = fresh(sizes, {}, dtype);
    Storage& s = g.storages.back();
    s.role = role;
    s.index = static_cast<std::int32_t>(g.storages.size() - 1);
    s.name = "x" + std::to_string(s.index);
    return v;
  }

  /// A value on a new storage.
  ValueId fresh(const Sizes& sizes, const Sizes& strides = {}, c10::ScalarType dtype = c10::ScalarType::Float) {
    Value v;
    v.storage = static_cast<StorageId>(g.storages.size());
    v.sizes = sizes;
    v.strides = strides.empty() ? rows(sizes) : strides;
    v.dtype = dtype;
    g.storages.emplace_back().bytes = bytes_of(v);
    return add(v);
  }

  /// Another geometry on the same storage and version.
  ValueId view(ValueId of, const Sizes& sizes, const Sizes& strides, std::int64_t offset = 0) {
    Value v = g.values[static_cast<std::size_t>(of)];
    v.sizes = sizes;
    v.strides = strides;
    v.offset = offset;
    return add(v);
  }

  /// The same geometry after the next write.
  ValueId next(ValueId of) {
    Value v = g.values[static_cast<std::size_t>(of)];
    ++v.version;
    return add(v);
  }

  Node& node(const std::string& op, std::vector<Argument> args, const std::vector<ValueId>& results) {
    Node n;
    n.id = static_cast<NodeId>(g.nodes.size());
    n.op = op;
    n.args = std::move(args);
    for (ValueId v : results) n.results.push_back(tensor(v));
    n.side = side;
    return g.nodes.emplace_back(std::move(n));
  }

  /// A node with one result on a new storage.
  ValueId make(const std::string& op, std::vector<Argument> args, const Sizes& sizes, const Sizes& strides = {},
               c10::ScalarType dtype = c10::ScalarType::Float) {
    const ValueId v = fresh(sizes, strides, dtype);
    node(op, std::move(args), {v});
    return v;
  }

  /// A node that writes the storage of `target`, which must be among the arguments, and returns it.
  ValueId write(const std::string& op, std::vector<Argument> args, ValueId target) {
    const ValueId v = next(target);
    node(op, std::move(args), {v}).writes = {g.values[static_cast<std::size_t>(target)].storage};
    return v;
  }

  ValueId sum(ValueId of) { return make("aten::sum", {tensor(of), none()}, {}); }

  /// A constant: no tensor arguments.
  ValueId full(const Sizes& sizes, double value) {
    return make("aten::full", {ints(sizes), number(value), number(6), none(), number(Constant(c10::Device(c10::DeviceType::CPU))), none()},
                sizes);
  }

 private:
  ValueId add(Value v) {
    g.values.push_back(std::move(v));
    return static_cast<ValueId>(g.values.size() - 1);
  }
};

/// The ops of the nodes without "aten::", in order: "full mul.Tensor sum".
inline std::string ops(const Graph& g) {
  std::string out;
  for (const Node& n : g.nodes) out += (out.empty() ? "" : " ") + n.op.substr(n.op.find("::") + 2);
  return out;
}

}  // namespace tandem::test
