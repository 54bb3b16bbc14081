// The text form of a partition.
#include "autograd/support/error.h"
#include "partitioner/partition.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

constexpr std::string_view every_form = R"(tandem partition 1
saved 12 bytes s2 s5
recomputed 8 bytes n4 as n10 n6 as n-11
library forward n0
kernel forward n3 n5
joined kernel forward n7
view backward n-1 n2
once update
joined once backward n1
)";

TEST(PartitionText, PrintsWhatItParses) { EXPECT_EQ(print(parse_partition(every_form)), every_form); }

TEST(PartitionText, ParsesEachField) {
  const Partition p = parse_partition(every_form);
  EXPECT_EQ(p.saved, (std::vector<StorageId>{2, 5}));
  EXPECT_EQ(p.saved_bytes, 12);
  EXPECT_EQ(p.recomputed, (std::vector<Recomputed>{{4, 10}, {6, -11}}));
  EXPECT_EQ(p.recomputed_bytes, 8);
  ASSERT_EQ(p.groups.size(), 6u);
  EXPECT_EQ(p.groups[1], (Group{Group::Kind::kernel, Side::forward, {3, 5}, false}));
  EXPECT_EQ(p.groups[2], (Group{Group::Kind::kernel, Side::forward, {7}, true}));
  EXPECT_EQ(p.groups[3], (Group{Group::Kind::view, Side::backward, {-1, 2}, false}));
}

void expect_refused(const std::string& text, const std::string& sentence) {
  try {
    parse_partition(text);
    FAIL() << "expected an Error for " << text;
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), sentence);
  }
}

TEST(PartitionText, RefusesWithLineExpectedAndFound) {
  const std::string head = "tandem partition 1\nsaved 0 bytes\nrecomputed 0 bytes\n";
  expect_refused("", "text line 1: expected \"tandem partition 1\", found end of text");
  expect_refused(head + "loop forward n0\n", "text line 4: expected library, view, once or kernel, found \"loop forward n0\"");
  expect_refused("tandem partition 1\nsaved 0 bytes\nrecomputed 0 bytes n1\n", "text line 3: expected \" as n\", found end of line");
  expect_refused("tandem partition 1\nsaved 0 bytes\nrecomputed\n", "text line 3: expected \"recomputed \", found \"recomputed\"");
  expect_refused(head + "view sideways n0\n", "text line 4: expected forward, backward or update, found \"sideways n0\"");
  expect_refused(head + "view forward n\n", "text line 4: expected an integer of 32 bits, found end of line");
  expect_refused(head + "view forward n0", "text line 4: expected end of line, found end of text");
  expect_refused(head + "view forward n00\n", "text line 4: expected `view forward n0`, found `view forward n00`");
}

TEST(PartitionText, EveryPrefixIsRefusedOrPrintsBack) {
  for (std::size_t n = 0; n < every_form.size(); ++n) {
    try {
      EXPECT_EQ(print(parse_partition(every_form.substr(0, n))), every_form.substr(0, n));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tandem
