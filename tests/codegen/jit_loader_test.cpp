// Objects in memory: what is whole is loaded, what is damaged is refused, and neither harms the process.
#include "tests/codegen/jit_samples.h"

#include <cstring>
#include <random>

namespace tandem::jit {
namespace {

using namespace test;

/// Code, constants, data, addresses in data, calls to outside: each kind of section and relocation.
const std::string varied = R"(double exp(double);
static const float table[7] = {1, 2, 3, 4, 5, 6, 7};
static double (*const function)(double) = exp;
long counter = 3;
static int twice(int a) { return 2 * a; }
int (*selected)(int) = twice;
void k(void* const* p, long begin, long end) {
  float* restrict y = p[0];
  _Pragma("omp simd") for (long i = begin; i < end; ++i) y[i] = table[i % 7] * 0.37f + (float)selected(i);
  y[end] = function(1.0) + exp(y[begin]) + counter++;
}
)";

class JitLoader : public testing::TestWithParam<Choice> {
 protected:
  void SetUp() override {
    const std::string reason = absent(GetParam());
    if (!reason.empty()) GTEST_SKIP() << reason;
    object_ = compile_to_object(varied, settings_of(GetParam()));
  }

  std::vector<char> object_;
};

INSTANTIATE_TEST_SUITE_P(Each, JitLoader, testing::Values(plugin, gcc, clang), [](const auto& info) { return info.param.name; });

/// True when the object was loaded, false when it was refused with a sentence; anything else fails.
bool loads(const std::vector<char>& object) {
  try {
    return load(object) != nullptr;
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("jit: expected "), 0U) << error.what();
    return false;
  }
}

TEST_P(JitLoader, LoadsAnObjectMoreThanOnce) {
  const auto first = load(object_), second = load(object_);
  EXPECT_NE(first->find("k"), second->find("k"));
  std::vector<float> a(30), b(30);
  void *pa[] = {a.data()}, *pb[] = {b.data()};
  run(*first, pa, 0, 29);
  run(*second, pb, 0, 29);
  EXPECT_EQ(a, b);  // each has its own counter
  EXPECT_EQ(a[3], 4 * 0.37F + 6);
}

TEST_P(JitLoader, RefusesAnObjectThatEndsTooSoon) {
  for (std::size_t size = 0; size < object_.size(); ++size) {
    EXPECT_FALSE(loads({object_.begin(), object_.begin() + static_cast<std::ptrdiff_t>(size)})) << size << " of " << object_.size();
  }
}

TEST_P(JitLoader, SurvivesEachChangedByte) {
  int refused = 0;
  for (std::size_t i = 0; i < object_.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::vector<char> damaged = object_;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      refused += !loads(damaged);
    }
  }
  EXPECT_GT(refused, 100);
}

TEST_P(JitLoader, SurvivesManyChangedBytes) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<char> damaged = object_;
    for (int change = 0; change < 1 + round % 8; ++change) {
      // Numbers of all sizes, where headers and tables hold them.
      const std::uint64_t value = random() >> (random() % 64);
      const std::size_t at = random() % (damaged.size() - sizeof value);
      std::memcpy(&damaged[at], &value, sizeof value);
    }
    loads(damaged);
  }
}

TEST_P(JitLoader, SurvivesNoise) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<char> noise(random() % 4000);
    for (char& byte : noise) byte = static_cast<char>(random());
    if (noise.size() > sizeof(Elf64_Ehdr)) std::memcpy(noise.data(), object_.data(), sizeof(Elf64_Ehdr) - random() % 32);
    EXPECT_FALSE(loads(noise));
  }
}

TEST_P(JitLoader, CodeIsNotWritable) {
  const auto module = load(object_);
  void* code = module->find("k");
  EXPECT_DEATH(*static_cast<volatile char*>(code) = 0, "");
}

TEST(JitLoader, NamesWhatItFoundInsteadOfAnObject) {
  const auto message = [](const std::vector<char>& bytes) -> std::string {
    try {
      load(bytes);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({}), "jit: expected a whole x86-64 ELF object, found a header of 1 entries at byte 0 of 0");
  EXPECT_EQ(message(std::vector<char>(100)), "jit: expected a whole x86-64 ELF object, found 100 bytes without the ELF mark");
}

TEST(JitLoader, RefusesCodeThatDependsOnItsPosition) {
  if (!absent(plugin).empty()) GTEST_SKIP() << absent(plugin);
  const std::string message = message_of("__thread int t; int k(void) { return t; }", settings_of(plugin));
  EXPECT_EQ(message, "jit: expected code without thread-local variables, found some");
}

}  // namespace
}  // namespace tandem::jit
