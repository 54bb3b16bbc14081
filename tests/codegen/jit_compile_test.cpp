// Text becomes code that computes what it says, whichever compiler made it.
#include "tests/codegen/jit_samples.h"

#include <cmath>
#include <limits>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace tandem::jit {
namespace {

using namespace test;

class JitCompile : public testing::TestWithParam<Choice> {
 protected:
  void SetUp() override {
    const std::string reason = absent(GetParam());
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

INSTANTIATE_TEST_SUITE_P(Each, JitCompile, testing::Values(plugin, gcc, clang), [](const auto& info) { return info.param.name; });

constexpr float inf = std::numeric_limits<float>::infinity();

/// y = a * b + c for one a, b, c, in vectors long enough for each kind of code that a loop has.
std::vector<float> run_multiply_add(const Module& module, float a, float b, float c, std::size_t count = 100) {
  std::vector<float> y(count), va(count, a), vb(count, b), vc(count, c);
  void* p[] = {y.data(), va.data(), vb.data(), vc.data()};
  run(module, p, 0, static_cast<long>(count));
  return y;
}

TEST_P(JitCompile, AKernelComputesItsResult) {
  const auto module = compile(multiply_add, settings_of(GetParam()));
  EXPECT_EQ(run_multiply_add(*module, 2, 3, 4), std::vector<float>(100, 10.0F));
}

TEST_P(JitCompile, AKernelStaysWithinItsRange) {
  const auto module = compile(multiply_add, settings_of(GetParam()));
  std::vector<float> y(100, -1.0F), one(100, 1.0F), expected(100, -1.0F);
  void* p[] = {y.data(), one.data(), one.data(), one.data()};
  run(*module, p, 3, 90);
  std::fill(expected.begin() + 3, expected.begin() + 90, 2.0F);
  EXPECT_EQ(y, expected);
}

TEST_P(JitCompile, AProductAndASumAreRoundedEach) {
  const float a = 1 + 0x1p-12F, c = -(1 + 0x1p-11F);
  ASSERT_NE(std::fma(a, a, c), 0.0F);
  const auto module = compile(multiply_add, settings_of(GetParam()));
  EXPECT_EQ(run_multiply_add(*module, a, a, c), std::vector<float>(100, 0.0F));
}

TEST_P(JitCompile, AnExplicitFmaIsRoundedOnce) {
  const float a = 1 + 0x1p-12F, c = -(1 + 0x1p-11F);
  std::string text = multiply_add;
  text.replace(text.find("a[i] * b[i] + c[i]"), 18, "__builtin_fmaf(a[i], b[i], c[i])");
  const auto module = compile(text, settings_of(GetParam()));
  EXPECT_EQ(run_multiply_add(*module, a, a, c), std::vector<float>(100, std::fma(a, a, c)));
}

TEST_P(JitCompile, NanInfinityAndTheSignOfZeroAreKept) {
  const auto module = compile(multiply_add, settings_of(GetParam()));
  for (const float y : run_multiply_add(*module, inf, 0, 1)) EXPECT_TRUE(std::isnan(y));
  for (const float y : run_multiply_add(*module, inf, 1, -inf)) EXPECT_TRUE(std::isnan(y));
  EXPECT_EQ(run_multiply_add(*module, inf, 2, 1), std::vector<float>(100, inf));
  for (const float y : run_multiply_add(*module, -1, 0, -0.0F)) EXPECT_TRUE(std::signbit(y));
}

TEST_P(JitCompile, AComparisonWithNanIsFalse) {
  const auto module = compile(R"(void k(void* const* p, long begin, long end) {
    float* restrict y = p[0]; const float* restrict x = p[1];
    _Pragma("omp simd") for (long i = begin; i < end; ++i) y[i] = x[i] <= 0.0f ? 0.0f : x[i];
  })",
                              settings_of(GetParam()));
  std::vector<float> y(40), x(40, std::nanf(""));
  void* p[] = {y.data(), x.data()};
  run(*module, p, 0, 40);
  for (const float value : y) EXPECT_TRUE(std::isnan(value));
}

TEST_P(JitCompile, CodeCallsFunctionsOfTheProcess) {
  const auto module = compile(R"(double exp(double); void* memcpy(void*, const void*, unsigned long);
  void k(void* const* p, long begin, long end) {
    double* y = p[0];
    memcpy(y, p[1], end * sizeof(double));
    for (long i = begin; i < end; ++i) y[i] = exp(y[i]);
  })",
                              settings_of(GetParam()));
  std::vector<double> y(5), x{-1, 0, 0.5, 1, 2};
  void* p[] = {y.data(), x.data()};
  run(*module, p, 0, 5);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], std::exp(x[i]));
}

TEST_P(JitCompile, ConstantsAndVariablesHaveTheirMemory) {
  const auto module = compile(R"(static const float table[5] = {1, 2, 3, 4, 5};
  static long calls; long untouched = 7; static const float* const row = table + 1; static long* const counter = &calls;
  void k(void* const* p, long begin, long end) {
    float* y = p[0];
    for (long i = begin; i < end; ++i) y[i] = table[i] + row[0];
    y[end] = ++*counter;
  })",
                              settings_of(GetParam()));
  std::vector<float> y(6);
  void* p[] = {y.data()};
  run(*module, p, 0, 5);
  run(*module, p, 0, 5);
  EXPECT_EQ(y, (std::vector<float>{3, 4, 5, 6, 7, 2}));
}

TEST_P(JitCompile, AModuleFindsItsFunctionsAndNoOthers) {
  const auto module =
      compile("int one(void) { return 1; } int two(void) { return 2; } static int hidden(void) { return 3; }", settings_of(GetParam()));
  EXPECT_EQ(reinterpret_cast<int (*)()>(module->find("one"))(), 1);
  EXPECT_EQ(reinterpret_cast<int (*)()>(module->find("two"))(), 2);
  EXPECT_EQ(module->find("hidden"), nullptr);
  EXPECT_EQ(module->find("three"), nullptr);
}

TEST_P(JitCompile, AModuleSaysWhatItCost) {
  const auto module = compile(multiply_add + "// of its own\n", settings_of(GetParam()));
  EXPECT_GT(module->compile_ms, 0);
  EXPECT_GT(module->load_ms, 0);
  EXPECT_GT(module->code_bytes, 0U);
}

TEST_P(JitCompile, RefusedTextGivesTheFirstMessageAndItsLine) {
  const std::string message = message_of("int k(void) {\n  return missing;\n}\nint l(void) { return gone; }\n", settings_of(GetParam()));
  EXPECT_EQ(message.find("jit: expected C text that "), 0U) << message;
  EXPECT_NE(message.find("text:2:10: error: "), std::string::npos) << message;
  EXPECT_NE(message.find("missing"), std::string::npos) << message;
  EXPECT_EQ(message.find("gone"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST_P(JitCompile, HeadersAreRefused) { EXPECT_NE(message_of("#include <stdio.h>\n", settings_of(GetParam())), ""); }

TEST_P(JitCompile, AnUnknownProcessorIsRefusedWithItsName) {
  const std::string message = message_of(multiply_add, settings_of(GetParam(), "abacus"));
  EXPECT_NE(message.find("abacus"), std::string::npos) << message;
}

TEST_P(JitCompile, AFunctionThatIsNowhereIsRefusedByName) {
  const std::string message =
      message_of("int nowhere_to_be_found(int); int k(int a) { return nowhere_to_be_found(a); }", settings_of(GetParam()));
  EXPECT_EQ(message, "jit: expected the functions that the code calls in this process, found no \"nowhere_to_be_found\"");
}

TEST_P(JitCompile, NothingIsPrinted) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  for (const char* text : {"int k(void) { return missing; }", "#warning loud\nint k(void) { int* p = 1.5; return p; }", "#error loud\n",
                           "void k(int* p) { __asm__(\"bogus %0\" : : \"r\"(p)); }", "int k(void) { int unused; }"}) {
    message_of(text, settings_of(GetParam()));
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(JitPlugin, AnErrorBehindTheFrontEndIsAMessage) {
  if (!absent(plugin).empty()) GTEST_SKIP() << absent(plugin);
#ifdef __SANITIZE_ADDRESS__
  const __lsan::ScopedDisabler leaks;  // what LLVM holds at such an error is given up
#endif
  EXPECT_NE(message_of("void k(int* p) { __asm__(\"bogus %0\" : : \"r\"(p)); }", settings_of(plugin))
                .find("invalid instruction mnemonic 'bogus'"),
            std::string::npos);
  EXPECT_NE(message_of("__attribute__((target(\"no-x87,no-sse\"))) long double k(long double x) { return x + 1; }", settings_of(plugin))
                .find("a failure inside LLVM: "),
            std::string::npos);
  EXPECT_EQ(message_of(multiply_add, settings_of(plugin)), "");
}

}  // namespace
}  // namespace tandem::jit
