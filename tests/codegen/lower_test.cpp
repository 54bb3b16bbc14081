// The loops that groups are lowered to, as text.
#include "codegen/lower.h"

#include "autograd/support/error.h"
#include "partitioner/nest.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace tandem::test {
namespace {

std::vector<Member> members_of(const Graph& g) {
  std::vector<Member> members;
  for (const Node& n : g.nodes) {
    std::string why;
    const auto nest = nest_of(g, n, &why);
    if (!nest) throw std::runtime_error(why);
    members.push_back({&n, *nest});
  }
  return members;
}

/// As if everything in `outputs` and all memory from outside were read afterwards.
Lowered lowered(const Graph& g) {
  return lower(g, members_of(g), [&](StorageId s, std::int32_t) {
    if (g.storages[static_cast<std::size_t>(s)].role != Role::internal) return true;
    for (ValueId v : g.outputs)
      if (g.values[static_cast<std::size_t>(v)].storage == s) return true;
    return false;
  });
}

std::string text_of(const Graph& g) {
  const std::string text = print(lowered(g).loop);
  EXPECT_EQ(print(parse_loop(text)), text);
  return text;
}

Argument no() { return number(Constant(false)); }

Argument wrapped(double value, std::int32_t scalar = -1) {
  Argument a = number(Constant(value), scalar);
  a.wrapped = true;
  return a;
}

TEST(Lower, PointwiseWithABroadcastOperand) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {32, 2, 5}), b = m.outside(Role::parameter, {5});
  const ValueId y = m.make("aten::add.Tensor", {tensor(x), tensor(b), number(1)}, {32, 2, 5});
  m.g.outputs = {m.make("aten::neg", {tensor(y)}, {32, 2, 5})};
  EXPECT_EQ(text_of(m.g), R"(tandem loop 1
compute float32
sizes [64, 5] row 1
scalars 0
p0 float32 read [5, 1]
p1 float32 read [0, 1]
p2 float32 written [5, 1]
v0 = load p0
v1 = load p1
v2 = add v0 v1
v3 = neg v2
v4 = store p2 v3
)");
}

TEST(Lower, ContiguousMemoryIsAFlatLoopOfAnySize) {
  const auto of = [](const Sizes& sizes) {
    GraphMaker m;
    const ValueId x = m.outside(Role::input, sizes);
    m.g.outputs = {m.make("aten::neg", {tensor(x)}, sizes)};
    return text_of(m.g);
  };
  EXPECT_EQ(of({3, 4, 5}), R"(tandem loop 1
compute float32
sizes [*] row 1
scalars 0
p0 float32 read [1]
p1 float32 written [1]
v0 = load p0
v1 = neg v0
v2 = store p1 v1
)");
  EXPECT_EQ(of({3, 4, 5}), of({7}));
  EXPECT_EQ(of({3, 4, 5}), of({}));
}

/// Adam on one parameter, as LibTorch's own optimizer writes it.
GraphMaker adam(const Sizes& n) {
  GraphMaker m;
  m.side = Side::update;
  m.g.scalars = {{"bias2", 0.1}, {"step", -0.1}};
  const ValueId p = m.outside(Role::parameter, n), g = m.outside(Role::gradient, n), e = m.outside(Role::optimizer_state, n),
                q = m.outside(Role::optimizer_state, n);
  const ValueId e1 = m.write("aten::mul_.Tensor", {tensor(e), wrapped(0.9)}, e);
  const ValueId e2 = m.write("aten::add_.Tensor", {tensor(e1), tensor(g), number(0.1)}, e1);
  const ValueId q1 = m.write("aten::mul_.Tensor", {tensor(q), wrapped(0.999)}, q);
  const ValueId q2 = m.write("aten::addcmul_", {tensor(q1), tensor(g), tensor(g), number(0.001)}, q1);
  const ValueId r = m.make("aten::sqrt", {tensor(q2)}, n);
  const ValueId d = m.write("aten::div_.Tensor", {tensor(r), wrapped(0.1, 0)}, r);
  const ValueId a = m.write("aten::add_.Tensor", {tensor(d), wrapped(1e-8), number(1)}, d);
  m.write("aten::addcdiv_", {tensor(p), tensor(e2), tensor(a), number(Constant(-0.1), 1)}, p);
  return m;
}

TEST(Lower, InPlaceChainOfAnUpdate) {
  EXPECT_EQ(text_of(adam({64, 3}).g), R"(tandem loop 1
compute float32
sizes [*] row 1
scalars 2
p0 float32 read written [1]
p1 float32 read [1]
p2 float32 read written [1]
p3 float32 read written [1]
v0 = load p0
v1 = number 0.9
v2 = mul v0 v1
v3 = load p1
v4 = number 0.1
v5 = fma v3 v4 v2
v6 = load p2
v7 = number 0.999
v8 = mul v6 v7
v9 = number 0.001
v10 = mul v9 v3
v11 = fma v10 v3 v8
v12 = sqrt v11
v13 = scalar s0
v14 = div v12 v13
v15 = number 1e-08
v16 = add v14 v15
v17 = load p3
v18 = scalar s1
v19 = mul v18 v5
v20 = div v19 v16
v21 = add v17 v20
v22 = store p0 v5
v23 = store p2 v11
v24 = store p3 v21
)");
  EXPECT_EQ(text_of(adam({64, 3}).g), text_of(adam({10}).g));
  EXPECT_EQ(lowered(adam({10}).g).scalars, (std::vector<std::int32_t>{0, 1}));
}

TEST(Lower, SoftmaxBackward) {
  GraphMaker m;
  const ValueId g = m.outside(Role::input, {4, 8, 16}), y = m.outside(Role::input, {4, 8, 16});
  m.g.outputs = {m.make("aten::_softmax_backward_data", {tensor(g), tensor(y), number(-1), number(6)}, {4, 8, 16})};
  EXPECT_EQ(text_of(m.g), R"(tandem loop 1
compute float32
sizes [32, 16] row 1
scalars 0
p0 float32 read [16, 1]
p1 float32 read [16, 1]
p2 float32 written [16, 1]
v0 = load p0
v1 = load p1
v2 = mul v0 v1
v3 = sum v2
v4 = sub v0 v3
v5 = mul v4 v1
v6 = store p2 v5
)");
  EXPECT_EQ(lowered(m.g).units, 32);
}

TEST(Lower, LayerNormBackwardWithColumnSums) {
  GraphMaker m;
  const Sizes sizes{4, 8, 16}, row{16}, stat{4, 8, 1};
  const ValueId g = m.outside(Role::input, sizes), x = m.outside(Role::input, sizes), mean = m.outside(Role::input, stat),
                rstd = m.outside(Role::input, stat);
  const ValueId w = m.outside(Role::parameter, row), b = m.outside(Role::parameter, row);
  const ValueId dx = m.fresh(sizes), dw = m.fresh(row), db = m.fresh(row);
  m.node("aten::native_layer_norm_backward",
         {tensor(g), tensor(x), ints(row), tensor(mean), tensor(rstd), tensor(w), tensor(b),
          number(Constant(std::vector<bool>{true, true, true}))},
         {dx, dw, db});
  m.g.outputs = {dx, dw, db};
  EXPECT_EQ(text_of(m.g), R"(tandem loop 1
compute float32
sizes [32, 16] row 1
scalars 0
p0 float32 read [1, 0]
p1 float32 read [16, 1]
p2 float32 read [0, 1]
p3 float32 read [16, 1]
p4 float32 read [1, 0]
p5 float32 written [16, 1]
p6 float32 written [0, 1]
p7 float32 written [0, 1]
v0 = load p0
v1 = load p1
v2 = load p2
v3 = mul v1 v2
v4 = sum v3
v5 = number 16.0
v6 = div v4 v5
v7 = sub v3 v6
v8 = load p3
v9 = load p4
v10 = sub v8 v9
v11 = mul v10 v0
v12 = mul v3 v11
v13 = sum v12
v14 = div v13 v5
v15 = mul v11 v14
v16 = sub v7 v15
v17 = mul v0 v16
v18 = mul v1 v11
v19 = total sum v18 over [1, 0]
v20 = total sum v1 over [1, 0]
v21 = store p5 v17
v22 = store p6 v19
v23 = store p7 v20
)");
}

TEST(Lower, LayerNorm) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {8, 16}), w = m.outside(Role::parameter, {16}), b = m.outside(Role::parameter, {16});
  const ValueId y = m.fresh({8, 16}), mean = m.fresh({8, 1}), rstd = m.fresh({8, 1});
  m.node("aten::native_layer_norm", {tensor(x), ints({16}), tensor(w), tensor(b), number(1e-5)}, {y, mean, rstd});
  m.g.outputs = {y, mean, rstd};
  EXPECT_EQ(text_of(m.g), R"(tandem loop 1
compute float32
sizes [8, 16] row 1
scalars 0
p0 float32 read [16, 1]
p1 float32 read [0, 1]
p2 float32 read [0, 1]
p3 float32 written [16, 1]
p4 float32 written [1, 0]
p5 float32 written [1, 0]
v0 = load p0
v1 = sum v0
v2 = number 16.0
v3 = div v1 v2
v4 = sub v0 v3
v5 = sum v4
v6 = div v5 v2
v7 = sub v4 v6
v8 = mul v7 v7
v9 = sum v8
v10 = div v9 v2
v11 = number 1e-05
v12 = add v10 v11
v13 = sqrt v12
v14 = number 1.0
v15 = div v14 v13
v16 = mul v7 v15
v17 = load p1
v18 = mul v16 v17
v19 = load p2
v20 = add v18 v19
v21 = add v3 v6
v22 = store p3 v20
v23 = store p4 v21
v24 = store p5 v15
)");
}

TEST(Lower, ColumnSumOfABiasGradient) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {128, 4, 32});
  m.g.outputs = {m.make("aten::sum.dim_IntList", {tensor(x), ints({0, 1}), number(Constant(true)), none()}, {1, 1, 32})};
  EXPECT_EQ(text_of(m.g), R"(tandem loop 1
compute float32
sizes [512, 32] row 1
scalars 0
p0 float32 read [32, 1]
p1 float32 written [0, 1]
v0 = load p0
v1 = total sum v0 over [1, 0]
v2 = store p1 v1
)");
}

TEST(Lower, FullMeanStepsAfterItsSum) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {100, 200});
  m.g.outputs = {m.make("aten::mean", {tensor(x), none()}, {})};
  EXPECT_EQ(text_of(m.g), R"(tandem loop 1
compute float32
sizes [*] row 1
scalars 0
p0 float32 read [1]
p1 float32 written [0]
v0 = load p0
v1 = total sum v0 over [1]
v2 = number 20000.0
v3 = div v1 v2
v4 = store p1 v3
)");
  EXPECT_EQ(lowered(m.g).units, 20000);
}

TEST(Lower, DimsFollowTheMemoryThatIsWritten) {
  GraphMaker m;
  const ValueId y = m.outside(Role::input, {8, 4});
  const ValueId t = m.view(y, {4, 8}, {1, 4});
  m.g.outputs = {m.make("aten::neg", {tensor(t)}, {4, 8}), m.make("aten::abs", {tensor(t)}, {4, 8}, {1, 4})};
  EXPECT_EQ(text_of(m.g), R"(tandem loop 1
compute float32
sizes [4, 8] row 1
scalars 0
p0 float32 read [1, 4]
p1 float32 written [8, 1]
p2 float32 written [1, 4]
v0 = load p0
v1 = neg v0
v2 = abs v0
v3 = store p1 v1
v4 = store p2 v2
)");
  m.g.outputs = {m.g.outputs[1]};  // what remains is one piece of memory in one order
  m.g.nodes.erase(m.g.nodes.begin());
  EXPECT_TRUE(lowered(m.g).loop.flat());
}

TEST(Lower, EqualLoadsAndStepsAreDoneOnce) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {6});
  const ValueId again = m.view(x, {6}, {1});
  m.g.outputs = {m.make("aten::exp", {tensor(x)}, {6}), m.make("aten::exp", {tensor(again)}, {6})};
  EXPECT_EQ(text_of(m.g), R"(tandem loop 1
compute float32
sizes [*] row 1
scalars 0
p0 float32 read [1]
p1 float32 written [1]
p2 float32 written [1]
v0 = load p0
v1 = exp v0
v2 = store p1 v1
v3 = store p2 v1
)");
}

TEST(Lower, ReadsByOthersDecideWhatIsStored) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {6});
  const ValueId a = m.make("aten::neg", {tensor(x)}, {6});
  m.make("aten::abs", {tensor(a)}, {6});
  const StorageId s = m.g.values[static_cast<std::size_t>(a)].storage;
  const Lowered l = lower(m.g, members_of(m.g), [&](StorageId storage, std::int32_t) { return storage == s; });
  EXPECT_EQ(l.operands, (std::vector<ValueId>{x, a}));
  EXPECT_EQ(l.loop.code.size(), 3u);  // load, neg, store
}

void expect_internal_error(const GraphMaker& m, const std::string& part) {
  try {
    lowered(m.g);
    FAIL() << "expected InternalError";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Lower, RefusesMembersOfOtherSizes) {
  GraphMaker m;
  m.make("aten::neg", {tensor(m.outside(Role::input, {6}))}, {6});
  m.make("aten::neg", {tensor(m.outside(Role::input, {7}))}, {7});
  expect_internal_error(m, "expected equal sizes and compute dtypes in the kernel of node 1 aten::neg");
}

TEST(Lower, RefusesTwoKindsOfRows) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {6, 7});
  for (int dim : {0, 1}) m.g.outputs.push_back(m.make("aten::_softmax", {tensor(x), number(dim), no()}, {6, 7}));
  expect_internal_error(m, "expected row reductions over the same dims, found others");
}

TEST(Lower, RefusesToReadWhatItWritesInAnotherGeometry) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {6, 6});
  const ValueId y = m.make("aten::neg", {tensor(x)}, {6, 6});
  m.g.outputs = {m.make("aten::abs", {tensor(m.view(y, {6, 6}, {1, 6}))}, {6, 6})};
  expect_internal_error(m, "to be read as it is written, found another geometry");
}

}  // namespace
}  // namespace tandem::test
