// fold, and the runner of all passes.
#include "autograd/pass.h"
#include "autograd/support/error.h"
#include "autograd/text.h"
#include "tests/autograd/graph_samples.h"
#include "tests/autograd/pass_checks.h"

namespace tandem {
namespace {

using test::finish;
using test::GraphMaker;
using test::mul;
using test::none;
using test::number;
using test::ops;
using test::tensor;

// ---- fold ----

std::string folded(const Graph& g) {
  const Graph out = fold(g);
  EXPECT_EQ(verify(out), "");
  Graph once = out;
  once.nodes.clear();
  for (const Node& n : out.nodes)
    if (n.folded) once.nodes.push_back(n);
  return ops(once);
}

TEST(Fold, MarksAConstantAndWhatIsComputedFromItAlone) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId c = m.make("aten::exp", {tensor(m.full({4}, 2.0))}, {4});
  EXPECT_EQ(folded(finish(m, m.sum(mul(m, x, c)))), "full exp");
}

TEST(Fold, MarksViewsOfConstants) {
  GraphMaker m;
  const ValueId c = m.full({1}, 2.0);
  const ValueId wide = m.view(c, {4}, {0});
  m.node("aten::expand", {tensor(c), test::ints({4}), number(Constant(false))}, {wide});
  const ValueId x = m.outside(Role::input, {4});
  EXPECT_EQ(folded(finish(m, m.sum(mul(m, x, wide)))), "full expand");
}

TEST(Fold, LeavesWhatReadsAnInput) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  EXPECT_EQ(folded(finish(m, m.sum(mul(m, x, x)))), "");
}

TEST(Fold, LeavesWhatEscapes) {
  GraphMaker m;
  EXPECT_EQ(folded(finish(m, m.sum(m.full({4}, 2.0)))), "full");
}

TEST(Fold, LeavesWhatIsWritten) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId c = m.full({4}, 2.0);
  EXPECT_EQ(folded(finish(m, m.sum(m.write("aten::add_.Tensor", {tensor(c), tensor(x), number(1)}, c)))), "");
}

TEST(Fold, LeavesWhatUsesARunTimeScalar) {
  GraphMaker m;
  m.g.scalars.push_back({"lr", 2.0});
  const ValueId x = m.outside(Role::input, {4});
  const ValueId c = m.full({4}, 2.0);
  m.g.nodes.back().args[1] = number(Constant(2.0), 0);
  EXPECT_EQ(folded(finish(m, m.sum(mul(m, x, c)))), "");
}

TEST(Fold, LeavesRandomNodes) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  const ValueId r = m.make("aten::rand", {test::ints({4}), none(), none(), none(), none()}, {4});
  EXPECT_EQ(folded(finish(m, m.sum(mul(m, x, r)))), "");
}

TEST(Fold, LeavesOpsWithoutARow) {
  GraphMaker m;
  const ValueId x = m.outside(Role::input, {4});
  EXPECT_EQ(folded(finish(m, m.sum(mul(m, x, m.make("mine::constant", {}, {4}))))), "");
}

TEST(Fold, LeavesKindsThatAreNotCheapToKeep) {
  GraphMaker m;
  const ValueId c = m.full({4, 4}, 2.0);
  const ValueId y = m.make("aten::mm", {tensor(c), tensor(c)}, {4, 4});
  EXPECT_EQ(folded(finish(m, m.sum(y))), "full");
}

TEST(Fold, LeavesResultsAboveOneMebibyte) {
  for (const std::int64_t extra : {0, 1}) {
    GraphMaker m;
    const ValueId x = m.outside(Role::input, {4});
    m.full({(1 << 18) + extra}, 2.0);
    EXPECT_EQ(folded(finish(m, m.sum(x))), extra ? "" : "full");
  }
}

// ---- the runner ----

TEST(RunPasses, RunsTheSwitchedOnOnesInOrderAndRecordsThem) {
  std::vector<PassRecord> records;
  const Graph g = parse_graph(test::small_step);
  PassSwitches all;
  all.decompose = true;
  const Graph out = run_passes(g, all, &records);
  ASSERT_EQ(records.size(), 5u);
  const char* order[] = {"decompose", "movement", "cse", "dce", "fold"};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(records[i].pass, order[i]);
    EXPECT_GE(records[i].ms, 0);
    EXPECT_EQ(records[i].nodes_before, i ? records[i - 1].nodes_after : g.nodes.size());
  }
  EXPECT_EQ(records.back().nodes_after, out.nodes.size());
  EXPECT_EQ(out.made_by, "fold");
}

TEST(RunPasses, EachSwitchTurnsItsPassOff) {
  for (bool PassSwitches::*on : {&PassSwitches::decompose, &PassSwitches::movement, &PassSwitches::cse, &PassSwitches::dce, &PassSwitches::fold}) {
    PassSwitches only{false, false, false, false, false};
    only.*on = true;
    std::vector<PassRecord> records;
    const Graph out = run_passes(parse_graph(test::small_step), only, &records);
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(out.made_by, records[0].pass);
  }
}

TEST(RunPasses, WithoutPassesTheGraphIsUnchanged) {
  const Graph g = parse_graph(test::small_step);
  EXPECT_EQ(print(run_passes(g, {false, false, false, false, false})), print(g));
}

TEST(RunPasses, NamesThePassAfterWhichTheGraphDoesNotHold) {
  Graph g = parse_graph(test::small_step);
  g.nodes.pop_back();
  g.gradients.front().value = g.gradients.front().before;  // at version 0 of a storage that ends at 1
  try {
    run_passes(g, {});
    FAIL() << "expected InternalError";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("movement"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("[outputs]"), std::string::npos) << e.what();
  }
}

TEST(RunPasses, IsIdempotent) {
  const Graph once = run_passes(parse_graph(test::small_step), {});
  EXPECT_EQ(first_difference(once, run_passes(once, {})), "");
}

TEST(RunPasses, ResultsPrintAndParse) {
  const std::string text = print(run_passes(parse_graph(test::small_step), {}));
  EXPECT_EQ(print(parse_graph(text)), text);
}

}  // namespace
}  // namespace tandem
