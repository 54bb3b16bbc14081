// The processor that code is made for, and the width of its vectors.
#include "tests/codegen/jit_samples.h"

namespace tandem::jit {
namespace {

using namespace test;

class JitTarget : public testing::TestWithParam<Choice> {
 protected:
  void SetUp() override {
    const std::string reason = absent(GetParam());
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  std::string code_for(const std::string& cpu, int vector_bits = 0) const {
    Settings settings = settings_of(GetParam(), cpu);
    settings.target.vector_bits = vector_bits;
    return code_of(compile_to_object(multiply_add, settings));
  }
};

INSTANTIATE_TEST_SUITE_P(Each, JitTarget, testing::Values(plugin, gcc, clang), [](const auto& info) { return info.param.name; });

void expect_ten(const Module& module) {
  std::vector<float> y(100), a(100, 2.0F), b(100, 3.0F), c(100, 4.0F);
  void* p[] = {y.data(), a.data(), b.data(), c.data()};
  run(module, p, 0, 100);
  EXPECT_EQ(y, std::vector<float>(100, 10.0F));
}

TEST_P(JitTarget, Avx512CodeHasVectorsOf512Bits) { EXPECT_GT(wide_instructions(code_for("skylake-avx512")), 3); }

TEST_P(JitTarget, Avx2CodeHasVectorsOf256BitsAndNoWiderOnes) {
  EXPECT_GT(half_wide_instructions(code_for("haswell")), 3);
  EXPECT_EQ(wide_instructions(code_for("haswell")), 0);
}

TEST_P(JitTarget, TheOldestProcessorGetsNeither) {
  EXPECT_EQ(half_wide_instructions(code_for("x86-64")), 0);
  EXPECT_EQ(wide_instructions(code_for("x86-64")), 0);
}

TEST_P(JitTarget, ANarrowerWidthIsTakenAtItsWord) {
  EXPECT_EQ(wide_instructions(code_for("skylake-avx512", 256)), 0);
  EXPECT_NE(code_for("skylake-avx512", 256), code_for("skylake-avx512", 512));
}

TEST_P(JitTarget, Avx512CodeRuns) {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl")) GTEST_SKIP() << "this processor has no AVX-512";
  expect_ten(*compile(multiply_add, settings_of(GetParam(), "skylake-avx512")));
}

TEST_P(JitTarget, Avx2CodeRuns) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this processor has no AVX2";
  expect_ten(*compile(multiply_add, settings_of(GetParam(), "haswell")));
}

TEST_P(JitTarget, ASumInVectorsIsTheSameForEachRun) {
  const auto module = compile(R"c(void k(void* const* p, long begin, long end) {
    const float* x = p[1]; float sum = 0;
    _Pragma("omp simd reduction(+:sum)") for (long i = begin; i < end; ++i) sum += x[i];
    *(float*)p[0] = sum;
  })c",
                              settings_of(GetParam()));
  std::vector<float> x(1000);
  double expected = 0;
  for (std::size_t i = 0; i < x.size(); ++i) expected += x[i] = 1.0F / static_cast<float>(i + 1);
  float first = 0, second = 0;
  void* p[] = {&first, x.data()};
  run(*module, p, 0, 1000);
  p[0] = &second;
  run(*module, p, 0, 1000);
  EXPECT_EQ(first, second);
  EXPECT_NEAR(first, expected, 1e-5);
}

TEST(JitTarget, TheSentenceNamesProcessorAndWidth) {
  if (!absent(plugin).empty()) GTEST_SKIP() << absent(plugin);
  const auto words = [](const std::string& cpu, int vector_bits) {
    Settings settings = settings_of(plugin, cpu);
    settings.target.vector_bits = vector_bits;
    return compile(multiply_add, settings)->compiled_by;
  };
  EXPECT_NE(words("haswell", 0).find("in process, haswell, 256-bit vectors"), std::string::npos) << words("haswell", 0);
  EXPECT_NE(words("haswell", 512).find("256-bit"), std::string::npos);
  EXPECT_NE(words("skylake-avx512", 0).find("512-bit"), std::string::npos);
  EXPECT_NE(words("skylake-avx512", 256).find("256-bit"), std::string::npos);
  EXPECT_NE(words("x86-64", 0).find("128-bit"), std::string::npos);
}

TEST(JitTarget, AnOddWidthIsRefused) {
  Settings settings;
  settings.target.vector_bits = 100;
  EXPECT_EQ(message_of(multiply_add, settings), "jit: expected a vector width of 0, 128, 256 or 512 bits, found 100");
}

}  // namespace
}  // namespace tandem::jit
