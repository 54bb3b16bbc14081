// pack: offsets in an arena, judged by the validator that compares every pair.
#include "runtime/packing.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem {
namespace {

std::vector<Interval> random_intervals(std::mt19937& random, int count) {
  std::vector<Interval> out;
  for (int i = 0; i < count; ++i) {
    const int first = int(random() % 40), length = int(random() % 12);
    out.push_back({first, first + length, std::int64_t(random() % 5000)});
  }
  return out;
}

TEST(Pack, KeepsWhatMeetsInTimeApart) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const auto intervals = random_intervals(random, 1 + int(random() % 60));
    const auto packing = pack(intervals);
    ASSERT_EQ(validate(packing, intervals), "") << round;
    ASSERT_GE(packing.bytes + alignment, highest_load(intervals)) << round;  // the end of the last one is not rounded
  }
}

TEST(Pack, StaysNearTheLiveLoad) {
  std::mt19937 random(2);
  double worst = 0;
  for (int round = 0; round < 100; ++round) {
    const auto intervals = random_intervals(random, 60);
    worst = std::max(worst, double(pack(intervals).bytes) / double(highest_load(intervals)));
  }
  EXPECT_LT(worst, 1.4);
}

TEST(Pack, UsesMemoryAgainOnceItIsFree) { EXPECT_EQ(pack({{0, 1, 640}, {2, 3, 640}, {4, 5, 320}}).bytes, 640); }

TEST(Pack, OfNothingIsEmpty) {
  EXPECT_EQ(pack({}).bytes, 0);
  EXPECT_EQ(highest_load({}), 0);
}

TEST(Pack, IntervalsThatTouchInOneCallDoNotShare) {
  const std::vector<Interval> both{{0, 2, 64}, {2, 4, 64}};
  EXPECT_EQ(pack(both).bytes, 128);
  EXPECT_EQ(highest_load(both), 128);
}

TEST(Pack, SameInputGivesTheSameOffsets) {
  std::mt19937 random(3);
  const auto intervals = random_intervals(random, 50);
  EXPECT_EQ(pack(intervals).offsets, pack(intervals).offsets);
}

TEST(ValidatePacking, FindsSharedMemory) {
  EXPECT_EQ(validate(Packing{{0, 64}, 256}, {{0, 2, 128}, {1, 3, 64}}), "intervals 0 and 1 are in use at the same time and share memory");
}

TEST(ValidatePacking, FindsAPlaceOutside) {
  EXPECT_EQ(validate(Packing{{64}, 128}, {{0, 0, 128}}), "interval 0 lies at [64, 192), expected an aligned place inside [0, 128)");
}

TEST(ValidatePacking, FindsAnUnalignedPlace) {
  EXPECT_EQ(validate(Packing{{8}, 128}, {{0, 0, 8}}), "interval 0 lies at [8, 16), expected an aligned place inside [0, 128)");
}

TEST(ValidatePacking, FindsAMissingOffset) {
  EXPECT_EQ(validate(Packing{{}, 0}, {{0, 0, 8}}), "expected an offset for each of 1 intervals, found 0");
}

}  // namespace
}  // namespace tandem
