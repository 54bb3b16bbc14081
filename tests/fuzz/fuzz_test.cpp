// Random programs with fixed seeds, and those that once failed. Longer by hand: the program `fuzz`.
#include "tests/fuzz/random_program.h"
#include "tests/fuzz/run.h"
#include "tests/fuzz/shrink.h"
#include "tests/support/state_equal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tandem::fuzz {
namespace {

#ifdef TANDEM_HAS_JIT
constexpr bool kernels_are_cheap = true;
#else
constexpr bool kernels_are_cheap = false;  // the system's compiler takes as long for one kernel as the rest of a program
#endif

bool with_kernels() { return kernels_are_cheap && test::with_kernels(); }

std::string text_of(const Finding& f, const Program& p) { return f.kind + ": " + f.sentence + "\n" + print(p); }

void expect_equal(const Program& p, bool exact) {
  const auto found = run(p, exact).finding;
  EXPECT_EQ(found.kind, "") << text_of(found, p);
}

class SeedsTest : public testing::TestWithParam<std::uint64_t> {
 public:
  static constexpr std::uint64_t size = 40;
};

TEST_P(SeedsTest, CompiledStepsEqualEager) {
  if (!with_kernels()) GTEST_SKIP() << "no generated kernels in this run";
  int strong = 0;
  for (auto seed = GetParam(); seed < GetParam() + size; seed++) {
    const auto p = random_program(seed);
    const auto r = run(p);
    EXPECT_EQ(r.finding.kind, "") << text_of(r.finding, p);
    strong += r.active && r.nodes >= 10 && r.kernels >= 1;
  }
  EXPECT_GE(strong, int(size) * 8 / 10) << "programs whose plan ran, with ten nodes and a generated kernel";
}

TEST_P(SeedsTest, WithoutKernelsEveryBitIsEagers) {
  for (auto seed = GetParam(); seed < GetParam() + size; seed++) expect_equal(random_program(seed), true);
}

TEST_P(SeedsTest, SwitchesChangeNothing) {
  if (!with_kernels()) GTEST_SKIP() << "no generated kernels in this run";
  for (auto seed = GetParam(); seed < GetParam() + size; seed += 4) {
    auto p = random_program(seed);
    Random r(seed);
    random_switches(p, r);
    expect_equal(p, false);
  }
}

TEST_P(SeedsTest, EachSwitchAloneStillGivesAPlan) {
  if (!with_kernels()) GTEST_SKIP() << "no generated kernels in this run";
  int plans = 0;
  for (auto seed = GetParam(); seed < GetParam() + 2; seed++) {
    auto p = random_program(seed);
    if (!run(p).active) continue;
    for (const auto& name : switch_names()) {
      auto other = p;
      other.options[name] = name == "decompose" ? 1 : 0;
      const auto r = run(other);
      EXPECT_EQ(r.finding.kind, "") << text_of(r.finding, other);
      EXPECT_TRUE(r.active) << name << ": " << r.reason << "\n" << print(other);
      plans += r.active;
    }
  }
  EXPECT_GT(plans, 0);
}

INSTANTIATE_TEST_SUITE_P(Blocks, SeedsTest, testing::Values(1, 1001, 2001, 3001, 4001, 5001));

std::vector<std::filesystem::path> corpus() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(TANDEM_FUZZ_CORPUS)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream s;
  s << file.rdbuf();
  return s.str();
}

TEST(CorpusTest, WhatOnceFailedIsEqual) {
  ASSERT_FALSE(corpus().empty());
  for (const auto& path : corpus()) {
    SCOPED_TRACE(path.filename().string());
    const auto p = parse(read(path));
    if (with_kernels()) expect_equal(p, false);
    expect_equal(p, true);
  }
}

TEST(CorpusTest, WhatWasOnceRefusedHasAPlan) {
  if (!with_kernels()) GTEST_SKIP() << "no generated kernels in this run";
  int programs = 0;
  for (const auto& path : corpus()) {
    if (path.filename().string().rfind("plan_", 0) != 0) continue;
    programs++;
    const auto r = run(parse(read(path)));
    EXPECT_TRUE(r.active) << path.filename() << ": " << r.reason;
  }
  EXPECT_GT(programs, 0);
}

TEST(ProgramTest, TextFormPrintsAndParses) {
  for (std::uint64_t seed = 1; seed <= 20; seed++) {
    auto p = random_program(seed);
    Random r(seed);
    random_switches(p, r);
    EXPECT_TRUE(parse(print(p)) == p) << print(p);
    EXPECT_EQ(print(parse(print(p))), print(p));
  }
}

TEST(ProgramTest, WrongTextIsRefusedWithItsLine) {
  const auto sentence = [](const std::string& text) -> std::string {
    try {
      parse(text);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(sentence("program 1\nv1 = aten::relu(p0"), "line 2: expected ')', found 'the end'");
  EXPECT_EQ(sentence("input x0 :float31 [b]"), "line 1: expected a dtype before, found ' [b]'");
}

TEST(RandomProgramTest, ASeedGivesOneProgram) {
  for (std::uint64_t seed = 1; seed <= 10; seed++) EXPECT_EQ(print(random_program(seed)), print(random_program(seed)));
}

TEST(RunTest, AProgramThatThrowsInEagerIsInvalid) {
  const auto p = parse("program 1\nparameter p0 :float32 [2]\nv1 = aten::view(p0, [3])\nloss v1\nstep b=1\n");
  EXPECT_EQ(run(p).finding.kind, "invalid");
}

TEST(ShrinkTest, WhatDoesNotMatterGoes) {
  const auto p = parse(
      "program 1\noptions keep_grads=1\noptimizer Adam lr=0.01\nparameter p0 :float32 [4, 6]\nparameter p1 :float32 [4, 6]\ninput x0 "
      ":float32 [b, 4]\n"
      "v1 = aten::tanh(p0)\nv2 = aten::mm(x0, v1)\nv3 = aten::exp(v2)\nv4 = aten::mul.Tensor(p1, p1)\nv5 = aten::mean(v3, none)\n"
      "v6 = aten::sum(v4, none)\nloss v5, v6\noutputs v3\nstep b=7\nstep b=7\nstep b=7\n");
  const auto fails = [](const Program& c) {
    return fault_of(c).empty() &&
           std::any_of(c.statements.begin(), c.statements.end(), [](const Statement& s) { return s.op == "aten::exp"; });
  };
  const auto small = shrink(p, fails);
  EXPECT_TRUE(fails(small));
  EXPECT_LE(small.statements.size(), 2u) << print(small);
  EXPECT_EQ(small.steps.size(), 1u);
  EXPECT_TRUE(small.options.empty() && small.outputs.empty());
  EXPECT_EQ(small.optimizer, "SGD");
}

}  // namespace
}  // namespace tandem::fuzz
