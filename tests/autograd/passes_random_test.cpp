// Random steps with views, in-place writes, constants, repeated and dead nodes: the passes change none of the numbers that can be seen
// afterwards.
#include "autograd/interpret.h"
#include "autograd/pass.h"
#include "autograd/text.h"
#include "autograd/verify.h"
#include "tests/support/graph_maker.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

namespace tandem {
namespace {

using test::number;
using test::tensor;

/// Tensors of 4 elements and their halves; few ops on few operands, so that equal nodes come about by themselves.
class RandomStep {
 public:
  explicit RandomStep(unsigned seed) : random_(seed) {
    m_.outside(Role::input, {4});
    m_.outside(Role::parameter, {4});
    m_.outside(Role::captured, {4});
    for (ValueId v = 0; v < 3; ++v) tensors_.push_back(v);
  }

  Graph make() && {
    for (int i = 0; i < 40; ++i) {
      if (i == 20) m_.side = Side::backward;
      if (i == 32) m_.side = Side::update;
      node();
    }
    m_.g.outputs = {current(pick(4)), current(pick(2))};
    m_.g.loss = m_.sum(current(pick(4)));
    return std::move(m_.g);
  }

 private:
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }
  std::int64_t size(ValueId v) const { return m_.g.values[static_cast<std::size_t>(v)].sizes[0]; }

  /// One of the eight oldest tensors of that size.
  ValueId pick(std::int64_t n) {
    std::vector<ValueId> fitting;
    for (ValueId v : tensors_)
      if (size(v) == n && fitting.size() < 8) fitting.push_back(v);
    return fitting.empty() ? half(pick(4)) : fitting[below(static_cast<unsigned>(fitting.size()))];
  }

  /// The tensor's value at the version that its storage has now.
  ValueId current(ValueId v) {
    Value now = m_.g.values[static_cast<std::size_t>(v)];
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
    const std::int64_t from = 2 * below(2);
    const ValueId base = current(v);
    Value h = m_.g.values[static_cast<std::size_t>(base)];
    h.sizes = {2};
    h.offset = from;
    const ValueId result = intern(h);
    m_.node("aten::slice.Tensor", {tensor(base), number(0), number(int(from)), number(int(from) + 2), number(1)}, {result});
    tensors_.push_back(result);
    return result;
  }

  void write(const std::string& op, ValueId target, std::vector<Argument> more) {
    const ValueId before = current(target);
    const StorageId s = m_.g.values[static_cast<std::size_t>(before)].storage;
    more.insert(more.begin(), tensor(before));
    ++versions_[s];
    m_.node(op, std::move(more), {current(target)}).writes = {s};
  }

  void node() {
    const std::int64_t n = below(3) ? 4 : 2;
    switch (below(9)) {
      case 0:
      case 6: tensors_.push_back(m_.full({4}, below(2))); break;
      case 1: half(pick(4)); break;
      case 2: write("aten::relu_", pick(n), {}); break;
      case 3: {
        const ValueId target = pick(n), other = current(pick(n));
        write("aten::add_.Tensor", target, {tensor(other), number(1)});
        break;
      }
      case 4: tensors_.push_back(m_.make("aten::neg", {tensor(current(pick(n)))}, {n})); break;
      case 5: tensors_.push_back(m_.make("aten::sigmoid_backward", {tensor(current(pick(n))), tensor(current(pick(n)))}, {n})); break;
      default: tensors_.push_back(m_.make("aten::mul.Tensor", {tensor(current(pick(n))), tensor(current(pick(n)))}, {n}));
    }
  }

  std::mt19937 random_;
  test::GraphMaker m_;
  std::vector<ValueId> tensors_;
  std::map<StorageId, std::int32_t> versions_;
};

/// Outputs, loss and the outside storages after the step.
std::vector<at::Tensor> run(const Graph& g) {
  RunInputs bound;
  bound.storages.resize(g.storages.size());
  std::vector<at::Tensor> seen;
  for (std::size_t s = 0; s < g.storages.size(); ++s) {
    if (g.storages[s].role == Role::internal) continue;
    seen.push_back(at::linspace(-1.5, 1.0 + static_cast<double>(s), 4));
    bound.storages[s].storage = seen.back().storage();
  }
  Interpreter interpreter(g);
  interpreter.run(bound);
  for (ValueId v : g.outputs) seen.push_back(interpreter.value(v).clone());
  seen.push_back(interpreter.value(g.loss).clone());
  return seen;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

TEST(RandomSteps, NumbersAreTheSameAfterThePasses) {
  PassSwitches all;
  all.decompose = true;
  std::size_t dropped = 0, folded = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const Graph g = RandomStep(seed).make();
    ASSERT_EQ(verify(g), "") << seed << '\n' << print(g);
    std::vector<PassRecord> records;
    const Graph out = run_passes(g, all, &records);
    for (std::size_t i = 1; i < 3; ++i) dropped += records[i].nodes_before - records[i].nodes_after;
    for (const Node& n : out.nodes) folded += n.folded;
    const std::vector<at::Tensor> expected = run(g), found = run(out);
    ASSERT_EQ(expected.size(), found.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_TRUE(same_bits(expected[i], found[i])) << "seed " << seed << ", tensor " << i << '\n' << print(g) << print(out);
  }
  EXPECT_GT(dropped, 1000u);
  EXPECT_GT(folded, 50u);
}

}  // namespace
}  // namespace tandem
