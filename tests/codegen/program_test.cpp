// Programs of small partitions, and their text form.
#include "codegen/program.h"

#include "autograd/support/error.h"
#include "autograd/text.h"
#include "tests/autograd/graph_samples.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

Program small() {
  const Graph g = parse_graph(test::small_step);
  return generate(g, partition(g));
}

TEST(Program, OfASmallStepAsText) {
  EXPECT_EQ(print(small()), R"(tandem program 1
view n0
library n1
library n2
library n3
view n4
view n5
library n6
once n7
view n8
library n9
library n10
)");
}

TEST(Program, HasOneCallPerNodeAndNoKernel) {
  const Program p = small();
  EXPECT_EQ(p.calls.size(), parse_graph(test::small_step).nodes.size());
  EXPECT_TRUE(p.kernels.empty());
}

TEST(Program, FollowsTheOrderOfTheGroups) {
  const Graph g = parse_graph(test::small_step);
  Partition p = partition(g);
  std::swap(p.groups[4], p.groups[5]);
  const Program program = generate(g, p);
  EXPECT_EQ(program.calls[4].node, 5);
  EXPECT_EQ(program.calls[5].node, 4);
}

TEST(Program, RefusesAnUnsoundPartition) {
  const Graph g = parse_graph(test::small_step);
  Partition p = partition(g);
  p.groups.pop_back();
  try {
    generate(g, p);
    FAIL() << "expected InternalError";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("node 10 aten::add_.Tensor (update)"), std::string::npos) << e.what();
  }
}

// ---- text ----

constexpr std::string_view every_form = R"(tandem program 1
kernel k0 "add \"x\"" "void f(float* y) {\n}\n"
kernel k1 "" ""
view n0
library n-1
once n2
kernel n5 k1(%4, %0, %4)
kernel n6 k0()
)";

TEST(ProgramText, PrintsWhatItParses) { EXPECT_EQ(print(parse_program(every_form)), every_form); }

TEST(ProgramText, ParsesEachField) {
  const Program p = parse_program(every_form);
  ASSERT_EQ(p.kernels.size(), 2u);
  EXPECT_EQ(p.kernels[0], (Kernel{"add \"x\"", "void f(float* y) {\n}\n"}));
  ASSERT_EQ(p.calls.size(), 5u);
  EXPECT_EQ(p.calls[1].kind, Call::Kind::library);
  EXPECT_EQ(p.calls[1].node, -1);
  EXPECT_EQ(p.calls[3], (Call{Call::Kind::kernel, 5, 1, {4, 0, 4}}));
}

TEST(ProgramText, ParsesWhatGenerateMakes) { EXPECT_EQ(parse_program(print(small())), small()); }

void expect_refused(const std::string& text, const std::string& sentence) {
  try {
    parse_program(text);
    FAIL() << "expected an Error for " << text;
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), sentence);
  }
}

TEST(ProgramText, RefusesWithLineExpectedAndFound) {
  const std::string head = "tandem program 1\n";
  expect_refused("tandem graph 1\n", "text line 1: expected \"tandem program 1\", found \"tandem graph 1\"");
  expect_refused(head + "call n0\n", "text line 2: expected library, view, once or kernel, found \"call n0\"");
  expect_refused(head + "view 0\n", "text line 2: expected \" n\", found \" 0\"");
  expect_refused(head + "kernel k1 \"\" \"\"\n", "text line 2: expected the number 0, found \"1 \\\"\\\" \\\"\\\"\"");
  expect_refused(head + "kernel n0 k0()\n", "text line 2: expected the number of a kernel that is declared above, found \"0()\"");
  expect_refused(head + "view n00\n", "text line 2: expected `view n0`, found `view n00`");
}

TEST(ProgramText, EveryPrefixIsRefusedOrPrintsBack) {
  for (std::size_t n = 0; n < every_form.size(); ++n) {
    try {
      EXPECT_EQ(print(parse_program(every_form.substr(0, n))), every_form.substr(0, n));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tandem
