// One op on real tensors as a graph of one node, and what the op itself gives for them.
#pragma once

#include "autograd/graph.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace tandem::test {

/// A graph of one node, with the tensors of its values.
struct OneNode {
  Graph graph;
  std::vector<at::Tensor> operands;  // per value; those of the node's results are undefined, unless it writes them
  std::vector<at::Tensor> eager;     // per result, as ATen makes it
  const Node& node() const { return graph.nodes.front(); }
};

class OneNodeMaker {
 public:
  /// Arguments by the op's schema; a number where the schema says Tensor is a wrapped number.
  OneNode make(const std::string& op, const std::vector<c10::IValue>& arguments) {
    const auto dot = op.find('.');
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(op.substr(0, dot).c_str(),
                                                                       dot == std::string::npos ? "" : op.substr(dot + 1).c_str());
    Node n;
    n.id = 0;
    n.op = op;
    std::vector<c10::IValue> stack;
    const auto& parameters = handle.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const bool wants_tensor = parameters[i].type()->kind() == c10::TypeKind::TensorType;
      n.args.push_back(argument(arguments[i], wants_tensor));
      stack.push_back(passed(arguments[i], wants_tensor));
    }
    handle.callBoxed(&stack);
    for (const c10::IValue& r : stack) result(r.toTensor(), n);
    out_.graph.nodes.push_back(std::move(n));
    return std::move(out_);
  }

 private:
  static at::Tensor private_copy(const at::Tensor& t) {
    at::Tensor copy = at::empty_strided(t.sizes(), t.strides(), t.options());
    return copy.copy_(t);
  }

  c10::IValue passed(const c10::IValue& a, bool wants_tensor) {
    if (a.isTensor()) {
      copies_.push_back(a.toTensor().defined() ? private_copy(a.toTensor()) : at::Tensor());
      return copies_.back();
    }
    if (!wants_tensor || !a.isScalar()) return a;
    at::Tensor number = c10::scalar_to_tensor(a.toScalar());
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  }

  ValueId add(const at::Tensor& t, StorageId storage, std::int32_t version) {
    Value v;
    v.storage = storage;
    v.version = version;
    v.sizes = t.sizes().vec();
    v.strides = t.strides().vec();
    v.dtype = t.scalar_type();
    out_.graph.values.push_back(v);
    return static_cast<ValueId>(out_.graph.values.size() - 1);
  }

  ValueId outside(const at::Tensor& t) {
    out_.graph.storages.emplace_back().role = Role::input;
    out_.operands.push_back(private_copy(t));
    return add(t, static_cast<StorageId>(out_.graph.storages.size() - 1), 0);
  }

  Argument argument(const c10::IValue& a, bool wants_tensor) {
    Argument made;
    if (a.isTensor()) {
      made.kind = Argument::Kind::tensor;
      made.values = {a.toTensor().defined() ? outside(a.toTensor()) : -1};
      return made;
    }
    made.wrapped = wants_tensor;
    if (a.isBool()) made.constant = a.toBool();
    if (a.isInt()) made.constant = a.toInt();
    if (a.isDouble()) made.constant = a.toDouble();
    if (a.isString()) made.constant = a.toStringRef();
    if (a.isIntList()) made.constant = a.toIntVector();
    if (a.isDevice()) made.constant = a.toDevice();
    if (a.isBoolList()) {
      std::vector<bool> list;
      for (bool b : a.toBoolList()) list.push_back(b);
      made.constant = list;
    }
    return made;
  }

  void result(const at::Tensor& t, Node& n) {
    Argument made;
    made.kind = Argument::Kind::tensor;
    out_.eager.push_back(t);
    StorageId storage = -1;
    std::size_t tensor = 0;
    for (const Argument& a : n.args)
      for (ValueId v : a.values)
        if (const at::Tensor& copy = copies_[tensor++]; v >= 0 && t.defined() && copy.is_same(t)) {
          storage = out_.graph.values[static_cast<std::size_t>(v)].storage;
          n.writes = {storage};
          out_.operands.push_back(out_.operands[static_cast<std::size_t>(v)]);
        }
    const bool written = storage >= 0;
    if (!written && t.defined()) {
      storage = static_cast<StorageId>(out_.graph.storages.size());
      out_.graph.storages.emplace_back();
      out_.operands.push_back(at::empty_strided(t.sizes(), t.strides(), t.options()));
    }
    made.values = {t.defined() ? add(t, storage, written ? 1 : 0) : -1};
    n.results.push_back(made);
  }

  OneNode out_;
  std::vector<at::Tensor> copies_;  // per tensor argument, what the op got
};

}  // namespace tandem::test
