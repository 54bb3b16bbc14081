// Several threads that compile, and a process that ends meanwhile.
#include "tests/codegen/jit_samples.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#ifdef __SANITIZE_ADDRESS__
// The leak checker runs at the end of the process, and crashes itself where a thread is just loading a library.
static std::atomic<int> no_leak_check{0};
extern "C" int __lsan_is_turned_off();
int __lsan_is_turned_off() { return no_leak_check; }
#endif

namespace tandem::jit {
namespace {

using namespace test;

std::string returning(int value) { return "int k(void) { return " + std::to_string(value) + "; }"; }

int call(const Module& module) { return reinterpret_cast<int (*)()>(module.find("k"))(); }

class JitThreads : public testing::TestWithParam<Choice> {
 protected:
  void SetUp() override {
    const std::string reason = absent(GetParam());
    if (!reason.empty()) GTEST_SKIP() << reason;
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

using JitThreadsDeathTest = JitThreads;

INSTANTIATE_TEST_SUITE_P(Each, JitThreads, testing::Values(plugin, gcc), [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Each, JitThreadsDeathTest, testing::Values(plugin, gcc), [](const auto& info) { return info.param.name; });

TEST_P(JitThreads, CompileAtTheSameTime) {
  const Settings settings = settings_of(GetParam());
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        right += call(*compile(returning(100 * t + i), settings)) == 100 * t + i;
        right += message_of("int k(", settings).find("jit: expected C text") == 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * 10 * 2);
}

TEST_P(JitThreads, ShareTheModuleOfEqualText) {
  const Settings settings = settings_of(GetParam());
  std::vector<std::shared_ptr<const Module>> modules(4);
  std::vector<std::thread> threads;
  for (auto& module : modules) threads.emplace_back([&] { module = compile(multiply_add + "// shared by threads\n", settings); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& module : modules) EXPECT_EQ(module, modules[0]);
}

/// Ends the process while threads compile, the sooner the smaller the number.
[[noreturn]] void exit_while_compiling(const Settings& settings, int number) {
#ifdef __SANITIZE_ADDRESS__
  no_leak_check = 1;
#endif
  for (int t = 0; t < 2; ++t) {
    std::thread([=] {
      try {
        for (int i = 0;; ++i) compile(returning(1000 * t + i), settings);
      } catch (const Error&) {  // the files of the system's compiler are removed when the process ends
      }
    }).detach();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(4 * number));
  std::exit(0);
}

TEST_P(JitThreadsDeathTest, TheProcessEndsInPeaceWhileTheyCompile) {
  for (int number = 0; number < 20; ++number) {
    EXPECT_EXIT(exit_while_compiling(settings_of(GetParam()), number), testing::ExitedWithCode(0), "^$") << number;
  }
}

}  // namespace
}  // namespace tandem::jit
