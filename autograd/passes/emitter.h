// Emits the primitive nodes that take the place of one composite node.
#pragma once

#include "autograd/graph.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

Argument use(ValueId value);
Argument arg(Constant constant);
inline Argument arg(std::int64_t number) { return arg(Constant(number)); }
inline Argument arg(double number) { return arg(Constant(number)); }
inline Argument arg(bool flag) { return arg(Constant(flag)); }

/// The name of an op that overwrites its only argument.
const char* overwriting_op();

std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& sizes);

class Emitter {
 public:
  explicit Emitter(const Graph& g);

  void start(const Node& origin) { origin_ = &origin; }
  void keep() { out_.nodes.push_back(*origin_); }

  /// A node whose one result lies on a new storage; `geometry` gives its sizes, strides, dtype.
  ValueId emit(std::string op, std::vector<Argument> args, Value geometry);
  ValueId scalar_tensor(double number, ValueId like);

  /// The last node: it has the origin's results and writes.
  void finish(std::string op, std::vector<Argument> args);

  Graph take(std::string made_by) &&;

  /// The argument's tensor, or -1 where it is none or undefined. `result`: the only result.
  ValueId tensor(const Node& n, std::size_t i) const;
  ValueId result(const Node& n) const;

  /// float32 or float64 on the CPU, not lazily changed, not empty, and laid out so that the result of a pointwise op on it has the same
  /// strides.
  bool plain(ValueId v) const;
  bool contiguous(ValueId v) const;
  bool alike(ValueId a, ValueId b) const;          // sizes, strides, dtype
  bool is_number_of(ValueId v, ValueId of) const;  // 0-dim, of the same dtype
  std::int64_t elements(ValueId v) const;
  Value geometry(ValueId v) const { return out_.values[static_cast<std::size_t>(v)]; }

 private:
  Node& push(std::string op, std::vector<Argument> args);

  Graph out_;
  const Node* origin_ = nullptr;
  NodeId next_ = 0;
  c10::Device device_ = c10::Device(c10::DeviceType::CPU);  // plain() admits no other
};

}  // namespace tandem
