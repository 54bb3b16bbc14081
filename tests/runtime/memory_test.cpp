// The memory of a step: homes, blocks, the independent validator, the text form.
#include "runtime/memory.h"

#include "autograd/support/error.h"
#include "tests/support/planned.h"

#include <algorithm>

namespace tandem {
namespace {

using test::planned;
using test::Planned;
using test::small_net;

std::int64_t count(const Memory& m, Home home) { return std::count(m.homes.begin(), m.homes.end(), home); }

std::string fault(const Planned& p, const std::function<void(Memory&)>& change) {
  Memory m = p.plan.memory;
  change(m);
  return validate(p.plan.graph, p.plan.program, m);
}

TEST(Memory, EverythingThatCanLieInTheArenaDoes) {
  const auto p = planned(small_net());
  EXPECT_GT(count(p.plan.memory, Home::arena), 0);
  EXPECT_EQ(count(p.plan.memory, Home::own), 0);
  EXPECT_EQ(count(p.plan.memory, Home::op), 0) << print(p.plan);
  EXPECT_EQ(validate(p.plan.graph, p.plan.program, p.plan.memory), "");
}

TEST(Memory, WithoutTheArenaEachStorageIsAllocatedWhenItIsNeeded) {
  const auto p = planned(small_net(), {.memory = {.arena = false}});
  EXPECT_EQ(count(p.plan.memory, Home::arena), 0);
  EXPECT_GT(count(p.plan.memory, Home::own), 0);
  EXPECT_EQ(validate(p.plan.graph, p.plan.program, p.plan.memory), "");
}

TEST(Memory, LossAndGradientsAreTheCallers) {
  const auto p = planned(small_net());
  const auto& g = p.plan.graph;
  EXPECT_EQ(p.plan.memory.homes[std::size_t(g.values[std::size_t(g.loss)].storage)], Home::escapes);
  for (const auto& gradient : g.gradients)
    EXPECT_NE(p.plan.memory.homes[std::size_t(g.values[std::size_t(gradient.value)].storage)], Home::arena) << gradient.name;
}

TEST(Memory, APeakLimitSendsTheLargestStoragesOutOfTheArena) {
  const auto p = planned(small_net(600));
  const auto tight = plan_memory(p.plan.graph, p.plan.program, {}, 0);
  EXPECT_EQ(validate(p.plan.graph, p.plan.program, tight), "");
  EXPECT_LE(tight.peak_bytes, p.plan.memory.peak_bytes);
}

TEST(Memory, IsNeverAboveEagersOwnPeakButForRounding) {
  const auto p = planned(small_net(600));
  EXPECT_LE(p.plan.memory.peak_bytes, peak_of(memory_over_step(p.graph())) + alignment * std::int64_t(p.plan.memory.blocks.size()));
}

TEST(Memory, TextFormRoundTrips) {
  const auto p = planned(small_net());
  const auto text = print(p.plan.memory);
  EXPECT_EQ(print(parse_memory(text)), text);
  EXPECT_EQ(parse_memory(text), p.plan.memory);
}

TEST(Memory, TextFormRefusesAnUnknownHome) {
  try {
    parse_memory("tandem memory 1\narena 0 peak 0\nhome s0 attic\n");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "text line 3: expected a home such as arena, found \"attic\"");
  }
}

TEST(ValidateMemory, FindsBlocksThatOverlap) {
  const auto p = planned(small_net());
  EXPECT_NE(fault(p,
                  [](Memory& m) {
                    for (auto& b : m.blocks) b.offset = 0;
                  })
                .find("are in use at the same time and overlap"),
            std::string::npos);
}

TEST(ValidateMemory, FindsABlockThatEndsBeforeItsLastUse) {
  const auto p = planned(small_net());
  const auto text = fault(p, [](Memory& m) {
    for (auto& b : m.blocks)
      if (b.storage >= 0 && b.last > b.first) return void(b.last = b.first);
  });
  EXPECT_NE(text.find("whose block is in use in calls"), std::string::npos) << text;
}

TEST(ValidateMemory, FindsAnEscapingStorageInTheArena) {
  const auto p = planned(small_net());
  const auto loss = p.plan.graph.values[std::size_t(p.plan.graph.loss)].storage;
  const auto text = fault(p, [&](Memory& m) { m.homes[std::size_t(loss)] = Home::own; });
  EXPECT_NE(text.find("is handed to the caller, but its home is own"), std::string::npos) << text;
}

TEST(ValidateMemory, FindsAStorageWithoutMemory) {
  const auto p = planned(small_net());
  const auto text = fault(p, [](Memory& m) {
    m.homes[std::size_t(m.blocks.front().storage)] = Home::none;
    m.blocks.erase(m.blocks.begin());
  });
  EXPECT_NE(text.find("but its home is none"), std::string::npos) << text;
}

TEST(ValidateMemory, FindsABlockThatIsTooSmall) {
  const auto p = planned(small_net());
  const auto text = fault(p, [](Memory& m) { m.blocks.front().bytes = 4; });
  EXPECT_NE(text.find("bytes, its block 4"), std::string::npos) << text;
}

TEST(ValidateMemory, FindsAPlaceOutsideTheArena) {
  const auto p = planned(small_net());
  const auto text = fault(p, [](Memory& m) { m.blocks.front().offset = m.arena_bytes; });
  EXPECT_NE(text.find("expected an aligned place in an arena of"), std::string::npos) << text;
}

TEST(ValidateMemory, FindsAMissingWorkspace) {
  auto p = planned(small_net(6000));
  const auto text = fault(p, [](Memory& m) { std::erase_if(m.blocks, [](const Block& b) { return b.storage < 0; }); });
  EXPECT_NE(text.find("needs a workspace of"), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem
