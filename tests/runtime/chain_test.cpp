// A step in several plans: what goes from one to the next, and a check that looks at all of them.
#include "runtime/chain.h"

#include "runtime/check.h"
#include "runtime/seams.h"
#include "tests/support/planned.h"

namespace tandem {
namespace {

using test::planned;
using test::Planned;
using test::small_net;

/// The net with its forward, its backward and the rest of its backward as parts.
std::vector<Segment> parts_of(const Graph& g) {
  std::size_t backward = 0;
  while (g.nodes[backward].side == Side::forward) backward++;
  return cut(g, {backward, (backward + g.nodes.size()) / 2});
}

Chain chain_of(const Planned& p, const PlanSwitches& switches = {}) {
  return Chain(parts_of(p.graph()), p.graph().outputs.size(), switches, {});
}

TEST(Chain, PartsLeaveWhatEagerLeaves) {
  const auto p = planned(small_net());
  for (const bool fuse : {true, false}) {
    PlanSwitches switches;
    switches.partition.fuse = fuse;
    auto chain = chain_of(p, switches);
    ASSERT_EQ(chain.size(), 3U);
    EXPECT_GT(chain.carried_bytes(), 0);
    const auto verdict = check_generation(p.graph(), chain, p.recorded.eager);
    EXPECT_TRUE(verdict.passed) << verdict.sentence;
  }
}

TEST(Chain, RunsOfItKeepApartWhatTheyCarry) {
  const auto p = planned(small_net());
  auto chain = chain_of(p);
  auto one = chain.nothing_held(), two = chain.nothing_held();
  chain.run(0, p.inputs(), one);
  chain.run(0, p.inputs(), two);
  for (std::size_t i = 0; i < one.size(); i++) EXPECT_TRUE(!one[i] || one[i].data() != two[i].data()) << i;
}

TEST(Chain, TheCheckSeesAWrongNumberInALaterPart) {
  const auto w = torch::randn({8}).requires_grad_(true);
  const auto p = planned({{w}, [=] { return (torch::tanh(w * 2) * 3).sum(); }});
  PlanSwitches switches;
  switches.partition.fuse = false;
  int changed = 0;
  seams().planned = [&](Plan& plan) {
    for (auto& n : plan.graph.nodes)
      for (auto& a : n.args)
        if (n.side == Side::backward && n.op == "aten::mul.Scalar" && a.kind == Argument::Kind::constant) a.constant = 5.0, changed++;
  };
  auto chain = chain_of(p, switches);
  seams().planned = {};
  ASSERT_GT(changed, 0);
  const auto verdict = check_generation(p.graph(), chain, p.recorded.eager);
  EXPECT_FALSE(verdict.passed);
  EXPECT_NE(verdict.sentence.find("the first wrong node is node"), std::string::npos) << verdict.sentence;
  EXPECT_NE(verdict.sentence.find("aten::mul.Scalar (backward)"), std::string::npos) << verdict.sentence;
}

}  // namespace
}  // namespace tandem
