// Faults put in after capture and after planning: the checks find them, name the node, and write a problem that fails again.
#include "runtime/seams.h"
#include "runtime/problem.h"
#include "tests/support/lockstep.h"

#include <filesystem>
#include <fstream>

namespace tandem::test {
namespace {

Inputs batch(std::uint64_t seed) { return mlp_batch(seed); }

/// Sets this thread's seams for its lifetime.
struct WithSeams {
  explicit WithSeams(Seams s) { seams() = std::move(s); }
  ~WithSeams() { seams() = {}; }
};

using Choice = std::function<bool(const Node&)>;
Choice op_is(const std::string& op, Side side) {
  return [=](const Node& n) { return n.op == op && n.side == side; };
}

/// Drops the first node that is chosen and tells which.
std::function<void(Graph&)> drop(const Choice& choose, std::string& dropped) {
  return [=, &dropped](Graph& g) {
    const auto at = std::find_if(g.nodes.begin(), g.nodes.end(), choose);
    if (at == g.nodes.end()) return;
    dropped = describe(*at);
    g.nodes.erase(at);
  };
}

/// Eight steps, all eager and right; the check failed with a sentence that starts so and names the node; the problem fails again.
void expect_caught(Lockstep& l, const std::string& check, const std::string& node) {
  l.steps(8, batch);
  const auto r = l.report();
  EXPECT_FALSE(r.active);
  EXPECT_EQ(r.compiled_steps, 0);
  ASSERT_FALSE(node.empty()) << "the fault was not put in";
  EXPECT_EQ(r.reason.rfind(check, 0), 0u) << r.reason;
  EXPECT_NE(r.reason.find(node), std::string::npos) << "expected '" << node << "' in: " << r.reason;
  EXPECT_EQ(events(r, "check-failed"), 1);
  ASSERT_EQ(r.problems.size(), 1u);
  const auto problem = parse_problem(r.problems[0]);
  EXPECT_EQ(problem.sentence, r.reason);
  EXPECT_EQ(print(problem), r.problems[0]);
  const auto verdict = replay(problem);
  EXPECT_FALSE(verdict.passed);
  EXPECT_EQ(verdict.sentence.rfind(check, 0), 0u) << verdict.sentence;
}

Toy smooth(const MakeOptimizer& optimizer = momentum_sgd) {
  return make_toy<MlpNet>(
      optimizer, [](MlpNet& net, const at::Tensor& x, const at::Tensor& y) { return torch::cross_entropy_loss(net.forward(x) * 0.5, y); });
}

TEST(Seams, ADroppedUpdateOfAParameterIsNamed) {
  std::string dropped;
  const WithSeams on({.captured = drop(op_is("aten::add_.Tensor", Side::update), dropped), .planned = {}});
  Lockstep l([] { return smooth(); });
  expect_caught(l, "capture check: ", dropped);
}

TEST(Seams, ADroppedNodeWhoseResultIsNeededIsNamed) {
  std::string dropped;
  const WithSeams on({.captured = drop(op_is("aten::relu", Side::forward), dropped), .planned = {}});
  Lockstep l([] { return smooth(); });
  expect_caught(l, "capture check: ", dropped);
}

TEST(Seams, ADroppedRandomNodeIsNamed) {
  std::string dropped;
  const WithSeams on({.captured = drop([](const Node& n) { return n.effects.random; }, dropped), .planned = {}});
  Lockstep l([] { return smooth(); });
  expect_caught(l, "capture check: ", dropped);
}

TEST(Seams, AWrongNumberInTheCapturedGraphIsFoundInTheNodeThatHasIt) {
  std::string changed;
  const WithSeams on({.captured =
                          [&](Graph& g) {
                            for (auto& n : g.nodes)
                              for (auto& a : n.args)
                                if (auto* c = std::get_if<double>(&a.constant); c && *c == 0.5 && n.side == Side::forward) {
                                  *c = 0.625;
                                  changed = describe(n);
                                }
                          },
                      .planned = {}});
  Lockstep l([] { return smooth(); });
  expect_caught(l, "capture check: ", changed);
}

/// Changes the number 0.5 of one node of a side.
std::function<void(Plan&)> wrong_number(Side side, std::string& changed) {
  return [=, &changed](Plan& p) {
    for (auto& n : p.graph.nodes)
      for (auto& a : n.args)
        if (auto* c = std::get_if<double>(&a.constant); c && *c == 0.5 && n.side == side && changed.empty()) {
          *c = 0.625;
          changed = describe(n);
        }
  };
}

/// Every node a call of its own, so that a node's fault is that node's.
Options node_by_node() {
  Options o = watched();
  o.fuse = false;
  return o;
}

TEST(Seams, AWrongNumberInThePlansForwardIsFoundInTheNodeThatHasIt) {
  std::string changed;
  const WithSeams on({.captured = {}, .planned = wrong_number(Side::forward, changed)});
  Lockstep l([] { return smooth(); }, node_by_node());
  expect_caught(l, "generation check: ", changed);
}

TEST(Seams, AWrongNumberInThePlansBackwardIsFoundInTheNodeThatHasIt) {
  std::string changed;
  const WithSeams on({.captured = {}, .planned = wrong_number(Side::backward, changed)});
  Lockstep l([] { return smooth(); }, node_by_node());
  expect_caught(l, "generation check: ", changed);
}

TEST(Seams, AWrongRunTimeScalarInThePlansUpdateIsFound) {
  std::string changed;
  const auto swap_numbers = [&](Plan& p) {
    for (auto& n : p.graph.nodes)
      for (auto& a : n.args)
        if (a.scalar >= 0 && p.graph.scalars[std::size_t(a.scalar)].name == "adam.beta1[0]" && changed.empty()) {
          for (std::size_t i = 0; i < p.graph.scalars.size(); i++)
            if (p.graph.scalars[i].name == "adam.beta2[0]") a.scalar = std::int32_t(i);
          changed = describe(n);
        }
  };
  const WithSeams on({.captured = {}, .planned = swap_numbers});
  Lockstep l([] { return smooth([](auto p) { return adam(std::move(p), 0.01); }); }, node_by_node());
  expect_caught(l, "generation check: ", changed);
}

/// Puts another constant into the text of the first generated kernel that has 0.5.
std::function<void(Plan&)> wrong_constant(std::string& changed) {
  return [&changed](Plan& p) {
    for (auto& k : p.program.kernels) {
      const auto at = k.source.find("0x1p-1f");
      if (at == k.source.npos || !changed.empty()) continue;
      k.source.replace(at, 7, "0x1.4p-1f");
      changed = "kernel " + k.name + " (";
    }
  };
}

TEST(Seams, AWrongConstantInAGeneratedKernelIsCaughtAndTheKernelIsNamed) {
  if (!with_kernels()) GTEST_SKIP() << "this run is without generated kernels";
  std::string changed;
  const WithSeams on({.captured = {}, .planned = wrong_constant(changed)});
  Lockstep l([] { return smooth(); });
  expect_caught(l, "generation check: ", changed);
}

TEST(Seams, AWrongRunTimeScalarOfALaunchIsFound) {
  if (!with_kernels()) GTEST_SKIP() << "this run is without generated kernels";
  std::string changed;
  const auto swap_numbers = [&](Plan& p) {
    for (auto& c : p.program.calls)
      for (auto& l : c.launches)
        if (l.scalars.size() > 2 && changed.empty()) {
          std::swap(l.scalars[0], l.scalars[2]);
          changed = "kernel " + p.program.kernels[std::size_t(l.kernel)].name;
        }
  };
  const WithSeams on({.captured = {}, .planned = swap_numbers});
  Lockstep l([] { return smooth([](auto p) { return adam(std::move(p), 0.01); }); });
  l.steps(8, batch);
  EXPECT_FALSE(l.report().active);
  ASSERT_FALSE(changed.empty());
  EXPECT_TRUE(says(l.report(), "generation check: ")) << l.report().reason;
  EXPECT_TRUE(says(l.report(), changed)) << l.report().reason;
}

TEST(Seams, APlanThatDrawsOnceTooOftenIsFound) {
  std::string changed;
  const auto draw_twice = [&](Plan& p) {
    for (std::size_t i = 0; i < p.program.calls.size(); i++) {
      const auto node =
          std::find_if(p.graph.nodes.begin(), p.graph.nodes.end(), [&](const Node& n) { return n.id == p.program.calls[i].node; });
      if (!node->effects.random) continue;
      changed = "generator";
      p.program.calls.insert(p.program.calls.begin() + std::ptrdiff_t(i), p.program.calls[i]);
      for (auto& b : p.memory.blocks) {
        b.first += b.first >= std::int32_t(i);
        b.last += b.last >= std::int32_t(i);
      }
      return;
    }
  };
  const WithSeams on({.captured = {}, .planned = draw_twice});
  Lockstep l([] { return smooth(); });
  l.steps(8, batch);
  EXPECT_FALSE(l.report().active);
  EXPECT_EQ(changed, "generator");
  EXPECT_TRUE(says(l.report(), "generation check: the plan leaves the random generator elsewhere than eager")) << l.report().reason;
}

TEST(Seams, ProblemsOfManyPlansDoNotPileUp) {
  std::string dropped;
  const WithSeams on({.captured = drop(op_is("aten::relu", Side::forward), dropped), .planned = {}});
  Options o = watched();
  o.max_plans = 1;
  Lockstep l([] { return smooth(); }, o);
  for (std::int64_t rows = 2; rows < 22; rows++)
    for (int i = 0; i < 3; i++) l.step(mlp_batch(std::uint64_t(rows), rows));
  EXPECT_GE(events(l.report(), "check-failed"), 15);
  EXPECT_LE(l.report().problems.size(), 8u);
}

TEST(Seams, WithoutAFaultTheSameStepIsActive) {
  Lockstep l([] { return smooth(); });
  l.activate(batch);
  EXPECT_TRUE(l.report().problems.empty());
}

class ProblemFolder : public testing::Test {
 protected:
  ProblemFolder() { std::filesystem::create_directories(path_); }
  ~ProblemFolder() override { std::filesystem::remove_all(path_); }
  static std::string content(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Report failing_report(const std::string& folder) {
    const WithSeams on({.captured = drop(op_is("aten::relu", Side::forward), dropped_), .planned = {}});
    Options o = watched();
    o.problem_dir = folder;
    Lockstep l([] { return smooth(); }, o);
    l.steps(6, batch);
    return l.report();
  }
  const std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) /
                                      ("tandem-problems-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
  std::string dropped_;
};

TEST_F(ProblemFolder, GetsTheProblemAsAFile) {
  const auto r = failing_report(path_.string());
  std::vector<std::filesystem::path> files;
  for (const auto& f : std::filesystem::directory_iterator(path_)) files.push_back(f.path());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_TRUE(says(r, "the text problem was written to " + files[0].string())) << r.to_string();
  ASSERT_EQ(r.problems.size(), 1u);
  EXPECT_EQ(content(files[0]), r.problems[0]);
  EXPECT_FALSE(replay(parse_problem(content(files[0]))).passed);
}

TEST_F(ProblemFolder, ThatCannotBeWrittenIsReported) {
  const auto missing = (path_ / "missing").string();
  const auto r = failing_report(missing);
  EXPECT_TRUE(says(r, "expected a writable folder for the text problem, found '" + missing + "'")) << r.to_string();
  EXPECT_EQ(r.problems.size(), 1u);
}

TEST(Seams, AFaultThatTheFirstBatchesDidNotShowIsFoundByAShadowStep) {
  if (!with_kernels()) GTEST_SKIP() << "this run is without generated kernels";
  std::string changed;
  const WithSeams on({.captured = {}, .planned = wrong_constant(changed)});
  Options o = watched();
  o.shadow_every = 3;
  Lockstep l(
      [] {
        return make_toy<MlpNet>(momentum_sgd, [](MlpNet& net, const at::Tensor& x, const at::Tensor&) {
          const auto h = net.forward(x) + x.sum(1, /*keepdim=*/true);
          return torch::where(h > 50, h * 0.5, h).square().mean();
        });
      },
      o);
  l.activate(batch);
  ASSERT_FALSE(changed.empty());
  l.step(batch(20));
  auto large = batch(21);
  large[0] *= 1e4;
  EXPECT_FALSE(l.step(large).compiled);  // the shadow step: eager's own tensors are right
  const auto r = l.report();
  EXPECT_FALSE(r.active);
  EXPECT_EQ(events(r, "retired"), 1);
  EXPECT_EQ(r.reason.rfind("a shadow step no longer agrees with the plan: generation check: ", 0), 0u) << r.reason;
  EXPECT_NE(r.reason.find(changed), std::string::npos) << r.reason;
  ASSERT_EQ(r.problems.size(), 1u);
  const auto problem = parse_problem(r.problems[0]);
  EXPECT_EQ(problem.sentence, r.reason);
  EXPECT_FALSE(replay(problem).passed);
}

}  // namespace
}  // namespace tandem::test
