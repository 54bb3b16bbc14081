// Programs of small partitions, and their text form.
#include "codegen/program.h"

#include "autograd/support/error.h"
#include "autograd/text.h"
#include "tests/autograd/graph_samples.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

constexpr std::string_view one_group_per_node = R"(tandem partition 1
saved 4 bytes s3
recomputed 0 bytes
view forward n0
library forward n1
library forward n2
library backward n3
view backward n4
view backward n5
library backward n6
once backward n7
view backward n8
library update n9
library update n10
)";

Partition partition_of_small() { return parse_partition(one_group_per_node); }

Program small() { return generate(parse_graph(test::small_step), partition_of_small()); }

TEST(Program, OfASmallStepAsText) {
  EXPECT_EQ(print(small()), R"(tandem program 1
view n0
library n1
library n2
library n3
view n4
view n5
library n6
once n7
view n8
library n9
library n10
)");
}

TEST(Program, HasOneCallPerNodeAndNoKernelWhereNoGroupIsOne) {
  const Program p = small();
  EXPECT_EQ(p.calls.size(), parse_graph(test::small_step).nodes.size());
  EXPECT_TRUE(p.kernels.empty());
}

TEST(Program, FollowsTheOrderOfTheGroups) {
  Partition p = partition_of_small();
  std::swap(p.groups[4], p.groups[5]);
  const Program program = generate(parse_graph(test::small_step), p);
  EXPECT_EQ(program.calls[4].node, 5);
  EXPECT_EQ(program.calls[5].node, 4);
}

TEST(Program, RefusesAnUnsoundPartition) {
  Partition p = partition_of_small();
  p.groups.pop_back();
  try {
    generate(parse_graph(test::small_step), p);
    FAIL() << "expected InternalError";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("node 10 aten::add_.Tensor (update)"), std::string::npos) << e.what();
  }
}

// ---- kernels ----

/// p -= lr * (g * g) for each size; each parameter's two nodes are a group, all but the first joined.
struct Updates {
  test::GraphMaker m;
  Partition partition;

  explicit Updates(const std::vector<test::Sizes>& sizes) {
    m.side = Side::update;
    m.g.scalars = {{"lr", -0.1}};
    for (const auto& n : sizes) {
      const ValueId p = m.outside(Role::parameter, n), g = m.outside(Role::input, n);
      const ValueId d = m.make("aten::mul.Tensor", {test::tensor(g), test::tensor(g)}, n);
      m.write("aten::add_.Tensor", {test::tensor(p), test::tensor(d), test::number(Constant(-0.1), 0)}, p);
      const auto last = static_cast<NodeId>(m.g.nodes.size() - 1);
      partition.groups.push_back({Group::Kind::kernel, Side::update, {last - 1, last}, last > 1});
    }
  }
};

TEST(Kernels, JoinedGroupsAreLaunchesOfOneCall) {
  const Updates u({{3, 4}, {4}, {2, 2}});
  const Program p = generate(u.m.g, u.partition);
  ASSERT_EQ(p.calls.size(), 1u);
  EXPECT_EQ(p.calls[0].kind, Call::Kind::kernel);
  EXPECT_EQ(p.calls[0].node, 5);
  ASSERT_EQ(p.calls[0].launches.size(), 3u);
  EXPECT_EQ(p.calls[0].launches[1], (Launch{0, 4, 1, {5, 7}, {0}, {2, 3}}));
}

TEST(Kernels, EqualLoopsShareOne) {
  const Updates u({{3, 4}, {4}, {1000}});
  const Program p = generate(u.m.g, u.partition);
  ASSERT_EQ(p.kernels.size(), 1u);
  EXPECT_EQ(p.kernels[0].name, "k0");
  EXPECT_EQ(p.kernels[0].unit_elements, 1);
  EXPECT_EQ(p.kernels[0].partial_bytes, 0);
  EXPECT_EQ(p.calls[0].launches[2].units, 1000);
}

TEST(Kernels, SourceSaysWhatItCovers) {
  const Updates u(std::vector<test::Sizes>{{4}});
  const Program p = generate(u.m.g, u.partition);
  EXPECT_EQ(p.kernels[0].source.substr(0, 43), "// mul.Tensor add_.Tensor\nvoid k0(void* con");
  const std::string all = c_source(p);
  EXPECT_NE(all.find("exp_f"), std::string::npos);  // the prelude
  EXPECT_NE(all.find(p.kernels[0].source), std::string::npos);
}

TEST(Kernels, OtherLoopsAreOtherKernels) {
  Updates u(std::vector<test::Sizes>{{4}, {4}});
  u.partition.groups[1].joined = false;
  u.m.g.nodes[2].op = "aten::div.Tensor";
  const Program p = generate(u.m.g, u.partition);
  EXPECT_EQ(p.kernels.size(), 2u);
  ASSERT_EQ(p.calls.size(), 2u);
  EXPECT_EQ(p.calls[1].launches[0].kernel, 1);
}

TEST(Kernels, WhatALaterGroupReadsIsStored) {
  test::GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::neg", {test::tensor(x)}, {4}), b = m.make("aten::abs", {test::tensor(a)}, {4});
  m.g.outputs = {m.make("aten::sqrt", {test::tensor(a)}, {4}), b};
  Partition partition;
  partition.groups = {{Group::Kind::kernel, Side::forward, {0, 1}, false}, {Group::Kind::library, Side::forward, {2}, false}};
  EXPECT_EQ(generate(m.g, partition).calls[0].launches[0].operands, (std::vector<ValueId>{x, a, b}));
  partition.groups = {{Group::Kind::kernel, Side::forward, {0, 1, 2}, false}};
  EXPECT_EQ(generate(m.g, partition).calls[0].launches[0].operands, (std::vector<ValueId>{x, b, m.g.outputs[0]}));
}

TEST(Kernels, ProgramsWithKernelsPrintAndParse) {
  const Updates u(std::vector<test::Sizes>{{3, 4}, {4}});
  const Program p = generate(u.m.g, u.partition);
  EXPECT_EQ(parse_program(print(p)), p);
}

// ---- text ----

constexpr std::string_view every_form = R"(tandem program 1
kernel k0 "add \"x\"" unit 1024 partial 64 "tandem loop 1\n" "void f(float* y) {\n}\n"
kernel k1 "" unit 1 partial 0 "" ""
view n0
library n-1
once n2
kernel n5
  k1(%4, %0, %4) units 12 chunks 3 scalars $0 $2 nodes n3 n5
  k0() units 0 chunks 1 scalars nodes
kernel n6
)";

TEST(ProgramText, PrintsWhatItParses) { EXPECT_EQ(print(parse_program(every_form)), every_form); }

TEST(ProgramText, ParsesEachField) {
  const Program p = parse_program(every_form);
  ASSERT_EQ(p.kernels.size(), 2u);
  EXPECT_EQ(p.kernels[0], (Kernel{"add \"x\"", "tandem loop 1\n", "void f(float* y) {\n}\n", 1024, 64}));
  ASSERT_EQ(p.calls.size(), 5u);
  EXPECT_EQ(p.calls[1].kind, Call::Kind::library);
  EXPECT_EQ(p.calls[1].node, -1);
  EXPECT_EQ(p.calls[3], (Call{Call::Kind::kernel, 5, {{1, 12, 3, {4, 0, 4}, {0, 2}, {3, 5}}, {0, 0, 1, {}, {}, {}}}}));
}

TEST(ProgramText, ParsesWhatGenerateMakes) { EXPECT_EQ(parse_program(print(small())), small()); }

void expect_refused(const std::string& text, const std::string& sentence) {
  try {
    parse_program(text);
    FAIL() << "expected an Error for " << text;
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), sentence);
  }
}

TEST(ProgramText, RefusesWithLineExpectedAndFound) {
  const std::string head = "tandem program 1\n";
  expect_refused("tandem graph 1\n", "text line 1: expected \"tandem program 1\", found \"tandem graph 1\"");
  expect_refused(head + "call n0\n", "text line 2: expected library, view, once or kernel, found \"call n0\"");
  expect_refused(head + "view 0\n", "text line 2: expected \" n\", found \" 0\"");
  expect_refused(head + "kernel k1 \"\"\n", "text line 2: expected the number 0, found \"1 \\\"\\\"\"");
  expect_refused(head + "kernel k0 \"\" \"\"\n", "text line 2: expected \" unit \", found \" \\\"\\\"\"");
  expect_refused(head + "kernel n0\n  k0()\n", "text line 3: expected the number of a kernel that is declared above, found \"0()\"");
  expect_refused(head + "view n00\n", "text line 2: expected `view n0`, found `view n00`");
}

TEST(ProgramText, EveryPrefixIsRefusedOrPrintsBack) {
  for (std::size_t n = 0; n < every_form.size(); ++n) {
    try {
      EXPECT_EQ(print(parse_program(every_form.substr(0, n))), every_form.substr(0, n));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tandem
