// Random training steps with views, in-place writes, random numbers, buffers and an update, and what can be seen of a run of them.
#pragma once

#include "autograd/interpret.h"
#include "tests/support/graph_maker.h"

#include <ATen/ATen.h>

#include <cstring>
#include <map>
#include <random>

namespace tandem::test {

class RandomStep {
 public:
  explicit RandomStep(unsigned seed) : random_(seed) {
    for (Role role : {Role::input, Role::parameter, Role::buffer}) tensors_.push_back(m_.outside(role, {4}));
  }

  Graph make(int forward = 25, int backward = 15, int update = 6) && {
    for (int i = 0; i < forward; ++i) node(12);
    m_.g.loss = m_.sum(current(pick(4)));
    m_.side = Side::backward;
    for (int i = 0; i < backward; ++i) node(below(3) ? 7 : 10);
    if (below(3) == 0) {  // two losses, one backward each
      m_.side = Side::forward;
      for (int i = 0; i < forward / 2; ++i) node(12);
      m_.side = Side::backward;
      for (int i = 0; i < backward; ++i) node(below(3) ? 7 : 10);
    }
    const ValueId gradient = make_one("aten::neg", {current(pick(4))});
    m_.side = Side::update;
    for (int i = 0; i < update; ++i) node(8);
    write("aten::add_.Tensor", 1, {tensor(gradient), number(-0.125)});
    m_.g.outputs = {current(pick(4)), current(pick(2))};
    return std::move(m_.g);
  }

 private:
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }
  const Value& at(ValueId v) const { return m_.g.values[static_cast<std::size_t>(v)]; }

  /// Any tensor of that size, more often a late one.
  ValueId pick(std::int64_t n) {
    std::vector<ValueId> fitting;
    for (ValueId v : tensors_)
      if (at(v).sizes[0] == n) fitting.push_back(v);
    if (fitting.empty()) return half(pick(4));
    const unsigned count = static_cast<unsigned>(fitting.size());
    return fitting[below(2) ? below(count) : count - 1 - below(std::min(count, 5u))];
  }

  ValueId current(ValueId v) {
    Value now = at(v);
    now.version = versions_[now.storage];
    return intern(now);
  }

  ValueId intern(const Value& value) {
    for (std::size_t i = 0; i < m_.g.values.size(); ++i)
      if (m_.g.values[i] == value) return static_cast<ValueId>(i);
    m_.g.values.push_back(value);
    return static_cast<ValueId>(m_.g.values.size() - 1);
  }

  ValueId half(ValueId v) {
    const int from = 2 * static_cast<int>(below(2));
    const ValueId base = current(v);
    Value h = at(base);
    h.sizes = {2};
    h.offset += from;
    const ValueId result = intern(h);
    m_.node("aten::slice.Tensor", {tensor(base), number(0), number(from), number(from + 2), number(1)}, {result});
    tensors_.push_back(result);
    return result;
  }

  Node& write(const std::string& op, ValueId target, std::vector<Argument> more) {
    const ValueId before = current(target);
    more.insert(more.begin(), tensor(before));
    ++versions_[at(before).storage];
    Node& n = m_.node(op, std::move(more), {current(target)});
    n.writes = {at(before).storage};
    return n;
  }

  ValueId make_one(const std::string& op, const std::vector<ValueId>& of) {
    std::vector<Argument> args;
    for (ValueId v : of) args.push_back(tensor(v));
    tensors_.push_back(m_.make(op, std::move(args), {at(of[0]).sizes[0]}));
    return tensors_.back();
  }

  void node(unsigned kinds) {
    const std::int64_t n = below(3) ? 4 : 2;
    switch (below(kinds)) {
      case 0: half(pick(4)); break;
      case 1:
      case 2: make_one("aten::tanh", {current(pick(n))}); break;
      case 3: make_one("aten::sigmoid", {current(pick(n))}); break;
      case 4:
      case 5: make_one("aten::mul.Tensor", {current(pick(n)), current(pick(n))}); break;
      case 6: make_one("aten::sigmoid_backward", {current(pick(n)), current(pick(n))}); break;
      case 7: draw(n); break;
      case 8:
      case 9: write("aten::relu_", pick(n), {}); break;
      default: {
        const ValueId target = pick(n), other = current(pick(n));
        write("aten::add_.Tensor", target, {tensor(other), number(1)});
      }
    }
  }

  void draw(std::int64_t n) {
    const ValueId memory = make_one("aten::neg", {current(pick(n))});
    write("aten::bernoulli_.float", memory, {number(0.5), none()}).effects.random = true;
  }

  std::mt19937 random_;
  GraphMaker m_;
  std::vector<ValueId> tensors_;
  std::map<StorageId, std::int32_t> versions_;
};

/// Outputs, loss and the outside storages after the step.
inline std::vector<at::Tensor> run(const Graph& g) {
  RunInputs bound;
  bound.storages.resize(g.storages.size());
  std::vector<at::Tensor> seen;
  for (std::size_t s = 0; s < g.storages.size(); ++s) {
    if (g.storages[s].role == Role::internal) continue;
    seen.push_back(at::linspace(-1.5, 1.0 + static_cast<double>(s), 4));
    bound.storages[s].storage = seen.back().storage();
  }
  at::manual_seed(1);
  Interpreter interpreter(g);
  interpreter.run(bound);
  for (ValueId v : g.outputs) seen.push_back(interpreter.value(v).clone());
  seen.push_back(interpreter.value(g.loss).clone());
  return seen;
}

/// Index of the first tensor that differs in a bit, or -1.
inline int first_different(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size() || i < b.size(); ++i) {
    if (i >= a.size() || i >= b.size() || a[i].nbytes() != b[i].nbytes()) return static_cast<int>(i);
    if (std::memcmp(a[i].const_data_ptr(), b[i].const_data_ptr(), a[i].nbytes()) != 0) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace tandem::test
