// What a step does where a compiler for its kernels is missing, and what the report says about it.
#include "codegen/jit/jit.h"
#include "tests/support/environment.h"
#include "tests/support/lockstep.h"

#include <string>

namespace tandem::test {
namespace {

constexpr const char* no_plugin = "/nowhere/tandem_plugin.so";
constexpr const char* no_cc = "/nowhere/cc";

/// How the system's C compiler calls itself; empty when there is none.
std::string system_compiler() {
  try {
    return jit::compile("int k(void) { return 7; }", {.compiler = jit::Compiler::system, .target = {}, .plugin = {}, .cc = {}})
        ->compiled_by;
  } catch (const Error&) {
    return "";
  }
}

struct OddNet : torch::nn::Module {
  OddNet() {
    register_module("first", first);
    register_module("last", last);
  }
  torch::nn::Linear first{11, 13}, last{13, 3};
};

class JitMissing : public testing::Test {
 protected:
  void SetUp() override {
    if (!with_kernels()) GTEST_SKIP() << "this run is without generated kernels";
  }

  /// Trains beside an eager loop; every step is compared with it.
  static Report trained(const Options& options = watched()) {
    const auto make = [] {
      return make_toy<OddNet>(momentum_sgd, [](OddNet& net, const at::Tensor& x, const at::Tensor& y) {
        const auto h = torch::sigmoid(net.first(x)) * torch::rsqrt(net.first(x).square() + 0.875);
        return (net.last(torch::softmax(h, 1)) - y).abs().pow(1.5).mean();
      });
    };
    Lockstep l(make, options);
    l.steps(6, [](std::uint64_t seed) { return Inputs{normal({7, 11}, seed), normal({7, 3}, seed + 100)}; });
    return l.report();
  }

  static std::string compiler_of(const Report& report) {
    for (const PlanReport& plan : report.plans)
      if (plan.active) return plan.compiler;
    return "no active plan";
  }
};

TEST_F(JitMissing, WithoutAnyCompilerTheStepStaysEagerAndTheReasonNamesBoth) {
  const Variable plugin("TANDEM_JIT_PLUGIN", no_plugin), cc("TANDEM_CC", no_cc);
  const Report r = trained();
  EXPECT_FALSE(r.active);
  EXPECT_EQ(r.compiled_steps, 0);
  EXPECT_EQ(
      r.reason,
      "jit: expected the plug-in tandem_jit.so, found none of /nowhere/tandem_plugin.so; and instead of it a C compiler on PATH or in "
      "$TANDEM_CC, found none of /nowhere/cc");
}

TEST_F(JitMissing, WithoutAnyCompilerTheStepIsNotRecordedForEver) {
  const Variable plugin("TANDEM_JIT_PLUGIN", no_plugin), cc("TANDEM_CC", no_cc);
  const Report r = trained();
  EXPECT_EQ(events(r, "refused"), 1) << r.to_string();
  EXPECT_EQ(events(r, "check-failed"), 0) << r.to_string();
  EXPECT_LT(events(r, "recorded"), r.steps) << r.to_string();
}

TEST_F(JitMissing, WithoutThePluginTheSystemsCompilerIsTakenAndNamed) {
  const std::string compiler = system_compiler();
  if (compiler.empty()) GTEST_SKIP() << "no C compiler on PATH";
  const Variable plugin("TANDEM_JIT_PLUGIN", no_plugin);
  const Report r = trained();
  EXPECT_TRUE(r.active) << r.to_string();
  EXPECT_GT(r.compiled_steps, 0);
  EXPECT_EQ(compiler_of(r), compiler + "; not in process: expected the plug-in tandem_jit.so, found none of /nowhere/tandem_plugin.so");
}

TEST_F(JitMissing, WithJitOffTheSystemsCompilerIsTaken) {
  const std::string compiler = system_compiler();
  if (compiler.empty()) GTEST_SKIP() << "no C compiler on PATH";
  Options o = watched();
  o.jit = false;
  const Report r = trained(o);
  EXPECT_TRUE(r.active) << r.to_string();
  EXPECT_EQ(compiler_of(r), compiler);
}

TEST_F(JitMissing, WithJitOffThePluginDoesNotStandInForTheSystemsCompiler) {
  const Variable cc("TANDEM_CC", no_cc);
  Options o = watched();
  o.jit = false;
  const Report r = trained(o);
  EXPECT_FALSE(r.active);
  EXPECT_EQ(r.reason, "jit: expected a C compiler on PATH or in $TANDEM_CC, found none of /nowhere/cc");
}

TEST_F(JitMissing, WithFuseOffNoCompilerIsNeeded) {
  const Variable plugin("TANDEM_JIT_PLUGIN", no_plugin), cc("TANDEM_CC", no_cc);
  Options o = watched();
  o.fuse = false;
  const Report r = trained(o);
  EXPECT_TRUE(r.active) << r.to_string();
  EXPECT_GT(r.compiled_steps, 0);
  ASSERT_FALSE(r.plans.empty());
  EXPECT_EQ(r.plans.back().kernels, 0);
  EXPECT_EQ(compiler_of(r), "");
}

}  // namespace
}  // namespace tandem::test
