// Eager's own choice on small graphs, and its text form.
#include "partitioner/partition.h"

#include "autograd/pass.h"
#include "autograd/support/error.h"
#include "autograd/text.h"
#include "autograd/verify.h"
#include "tests/autograd/graph_samples.h"
#include "tests/support/graph_maker.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using test::GraphMaker;
using test::number;
using test::tensor;

Partition of(const Graph& g, const PartitionSwitches& switches = {}) {
  EXPECT_EQ(verify(g), "");
  const Partition p = partition(g, switches);
  EXPECT_EQ(validate(g, p), "");
  EXPECT_EQ(parse_partition(print(p)), p);
  return p;
}

TEST(Partition, OfASmallStepAsText) {
  EXPECT_EQ(print(of(parse_graph(test::small_step))), R"(tandem partition 1
saved 4 bytes s3
recomputed
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
)");
}

TEST(Partition, HoldsAfterEveryPass) {
  PassSwitches all;
  all.decompose = true;
  of(run_passes(parse_graph(test::small_step), all));
}

TEST(Partition, CallsViewOpsWhenViewsAreNotSkipped) {
  PartitionSwitches switches;
  switches.skip_views = false;
  for (const Group& g : of(parse_graph(test::small_step), switches).groups) EXPECT_NE(g.kind, Group::Kind::view);
}

TEST(Partition, SavesEachActivationThatTheBackwardReads) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::exp", {tensor(x)}, {4});
  const ValueId b = m.make("aten::tanh", {tensor(a)}, {4});
  m.g.loss = m.sum(b);
  m.side = Side::backward;
  const ValueId c = m.make("aten::mul.Tensor", {tensor(b), tensor(x)}, {4});
  m.make("aten::mul.Tensor", {tensor(c), tensor(b)}, {4});
  const Partition p = of(m.g);
  EXPECT_EQ(p.saved, (std::vector<StorageId>{m.g.values[b].storage}));
  EXPECT_EQ(p.saved_bytes, 16);
}

TEST(Partition, SavesWhatTheUpdateReads) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::exp", {tensor(x)}, {4});
  m.g.loss = m.sum(x);
  m.side = Side::update;
  m.make("aten::neg", {tensor(a)}, {4});
  EXPECT_EQ(of(m.g).saved, (std::vector<StorageId>{m.g.values[a].storage}));
}

TEST(Partition, CountsAStorageOnceHoweverManyViewsAreRead) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId a = m.make("aten::exp", {tensor(x)}, {4});
  const ValueId half = m.view(a, {2}, {1});
  m.node("aten::slice.Tensor", {tensor(a), number(0), number(0), number(2), number(1)}, {half});
  m.g.loss = m.sum(a);
  m.side = Side::backward;
  m.make("aten::neg", {tensor(a)}, {4});
  m.make("aten::neg", {tensor(half)}, {2});
  EXPECT_EQ(of(m.g).saved_bytes, 16);
}

TEST(Partition, AFoldedConstantIsNotASavedActivation) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId c = m.full({4}, 2.0);
  m.g.loss = m.sum(x);
  m.side = Side::backward;
  m.make("aten::mul.Tensor", {tensor(x), tensor(c)}, {4});
  EXPECT_EQ(of(fold(m.g)).saved, std::vector<StorageId>{});
  EXPECT_EQ(of(m.g).saved, (std::vector<StorageId>{m.g.values[c].storage}));
}

TEST(Partition, AViewOpWithMemoryOfItsOwnIsALibraryCall) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId y = m.make("aten::view", {tensor(x), test::ints({4})}, {4});
  m.g.loss = m.sum(y);
  EXPECT_EQ(of(m.g).groups.front().kind, Group::Kind::library);
}

TEST(Partition, AnEmptyGraphHasAnEmptyPartition) { EXPECT_EQ(of(Graph{}), Partition{}); }

// ---- text ----

constexpr std::string_view every_form = R"(tandem partition 1
saved 12 bytes s2 s5
recomputed n4 n6
library forward n0
view backward n-1 n2
once update
)";

TEST(PartitionText, PrintsWhatItParses) { EXPECT_EQ(print(parse_partition(every_form)), every_form); }

TEST(PartitionText, ParsesEachField) {
  const Partition p = parse_partition(every_form);
  EXPECT_EQ(p.saved, (std::vector<StorageId>{2, 5}));
  EXPECT_EQ(p.saved_bytes, 12);
  EXPECT_EQ(p.recomputed, (std::vector<NodeId>{4, 6}));
  ASSERT_EQ(p.groups.size(), 3u);
  EXPECT_EQ(p.groups[1], (Group{Group::Kind::view, Side::backward, {-1, 2}}));
}

void expect_refused(const std::string& text, const std::string& sentence) {
  try {
    parse_partition(text);
    FAIL() << "expected an Error for " << text;
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), sentence);
  }
}

TEST(PartitionText, RefusesWithLineExpectedAndFound) {
  const std::string head = "tandem partition 1\nsaved 0 bytes\nrecomputed\n";
  expect_refused("", "text line 1: expected \"tandem partition 1\", found end of text");
  expect_refused(head + "kernel forward n0\n", "text line 4: expected library, view or once, found \"kernel forward n0\"");
  expect_refused(head + "view sideways n0\n", "text line 4: expected forward, backward or update, found \"sideways n0\"");
  expect_refused(head + "view forward n\n", "text line 4: expected an integer of 32 bits, found end of line");
  expect_refused(head + "view forward n0", "text line 4: expected end of line, found end of text");
  expect_refused(head + "view forward n00\n", "text line 4: expected `view forward n0`, found `view forward n00`");
}

TEST(PartitionText, EveryPrefixIsRefusedOrPrintsBack) {
  for (std::size_t n = 0; n < every_form.size(); ++n) {
    try {
      EXPECT_EQ(print(parse_partition(every_form.substr(0, n))), every_form.substr(0, n));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tandem
