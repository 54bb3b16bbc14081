// The text form of loops: what it carries, and what it refuses.
#include "autograd/support/error.h"
#include "codegen/loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tandem {
namespace {

constexpr std::string_view every_form = R"(tandem loop 1
compute float32
sizes [4, 256, 1024] row 1
scalars 2
p0 float32 read [262144, 1024, 1]
p1 float64 read [0, 1, 0]
p2 bool read written [262144, 1024, 1]
p3 int64 read [0, 0, 0]
p4 float32 written [0, 0, 1]
p5 float32 written [256, 1, 0]
p6 float32 written [0, 0, 0]
v0 = load p0
v1 = load p1
v2 = load p2
v3 = load p3
v4 = scalar s1
v5 = number -0.0
v6 = number nan
v7 = number -inf
v8 = number 1e-45
v9 = select v2 v0 v5
v10 = mul v9 v1
v11 = sum v10
v12 = max v10
v13 = total sum v10 over [1, 1, 0]
v14 = total max v10 over [1, 1, 1]
v15 = div v13 v4
v16 = convert bool v10
v17 = fma v11 v12 v3
v18 = store p2 v16
v19 = store p4 v15
v20 = store p5 v17
v21 = store p6 v14
)";

TEST(LoopText, PrintsWhatItParses) { EXPECT_EQ(print(parse_loop(every_form)), every_form); }

TEST(LoopText, ParsesEachField) {
  const Loop loop = parse_loop(every_form);
  EXPECT_EQ(loop.sizes, (std::vector<std::int64_t>{4, 256, 1024}));
  EXPECT_EQ(loop.row_elements(), 1024);
  EXPECT_EQ(loop.parameters[2], (LoopParameter{c10::ScalarType::Bool, true, true, {262144, 1024, 1}}));
  EXPECT_EQ(loop.code[13].over, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(loop.code[15].term, Term::div);
  EXPECT_EQ(loop.code[16].dtype, c10::ScalarType::Bool);
  EXPECT_TRUE(std::signbit(loop.code[5].value));
}

TEST(LoopText, NumbersAreEqualBitForBit) {
  Instruction a, b;
  a.value = 0.0;
  b.value = -0.0;
  EXPECT_NE(a, b);
  a.value = b.value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(a, b);
}

TEST(LoopText, AFlatLoopHasAnyNumberOfElements) {
  const Loop loop = parse_loop("tandem loop 1\ncompute float64\nsizes [*] row 1\nscalars 0\n");
  EXPECT_TRUE(loop.flat());
  EXPECT_EQ(loop.row_elements(), 1);
  EXPECT_EQ(loop.outer(), 0u);
}

TEST(LoopText, ScopesFollowTheStrides) {
  const auto scopes = scopes_of(parse_loop(every_form));
  EXPECT_EQ(scopes[0], Scope::element);
  EXPECT_EQ(scopes[1], Scope::unit);
  EXPECT_EQ(scopes[3], Scope::fixed);
  EXPECT_EQ(scopes[11], Scope::unit);
  EXPECT_EQ(scopes[15], Scope::finish);
  EXPECT_EQ(scopes[20], Scope::unit);
}

void expect_refused(const std::string& lines, const std::string& sentence) {
  const std::string head = "tandem loop 1\ncompute float32\nsizes [8, 4] row 1\nscalars 0\n";
  try {
    parse_loop(head + lines);
    FAIL() << "expected an Error for " << lines;
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), sentence);
  }
}

TEST(LoopText, RefusesWithLineExpectedAndFound) {
  expect_refused("p1 float32 read [4, 1]\n", "text line 5: expected the number 0, found \"1 float32 read [4, 1]\"");
  expect_refused("p0 float31 read [4, 1]\n", "text line 5: expected a dtype, found \"float31 read [4, 1]\"");
  expect_refused("v0 = number 1\n", "text line 5: expected a floating number, found \"1\"");
  expect_refused("v0 = number 1.0\nv1 = frob v0\n", "text line 6: expected an instruction, found \"frob v0\"");
  expect_refused("v0 = number 1.0\nv1 = add v0\n", "text line 6: expected \" v\", found end of line");
  expect_refused("v0 = number 1.0\nv1 = total mul v0 over [1, 1]\n", "text line 6: expected sum, max or min, found \"mul v0 over [1, 1]\"");
  expect_refused("v0 = number 1.50\n", "text line 5: expected `v0 = number 1.5`, found `v0 = number 1.50`");
}

TEST(LoopText, RefusesWhatCannotBeEmitted) {
  expect_refused("v0 = load p0\n", "text of a loop: v0: expected a parameter, found p0");
  expect_refused("v0 = scalar s0\n", "text of a loop: v0: expected one of 0 scalars, found s0");
  expect_refused("v0 = neg v0\n", "text of a loop: v0: expected an earlier value, found v0");
  expect_refused("p0 float32 [4, 1]\n", "text of a loop: p0: expected a parameter that is read or written");
  expect_refused("p0 float32 read [1]\n", "text of a loop: p0: expected 2 strides, found 1");
  expect_refused("p0 float32 read [-4, 1]\n", "text of a loop: p0: expected no negative stride");
  expect_refused("p0 complex64 read [4, 1]\n", "text of a loop: p0: expected a real dtype of at least 8 bits, found complex64");
  expect_refused("p0 float32 written [4, 1]\n", "text of a loop: p0: expected a store to a parameter that is written, found none");
  expect_refused("p0 float32 read [4, 1]\nv0 = load p0\nv1 = store p0 v0\n", "text of a loop: v1: expected p0 to be marked as written");
  expect_refused("p0 float32 read [4, 1]\np1 float32 written [1, 0]\nv0 = load p0\nv1 = store p1 v0\n",
                 "text of a loop: v1: expected strides over the row where an element is stored to p1");
}

TEST(LoopText, RefusesTotalsThatDoNotFit) {
  const std::string load = "p0 float32 read [4, 1]\nv0 = load p0\n";
  expect_refused(load + "v1 = total sum v0 over [1]\n", "text of a loop: v1: expected 2 marks, found 1");
  expect_refused(load + "v1 = total sum v0 over [1, 0]\nv2 = sum v1\n",
                 "text of a loop: v2: expected a row reduction of what the row knows, found one of a total");
  expect_refused(load + "v1 = total sum v0 over [1, 0]\nv2 = total sum v0 over [1, 1]\nv3 = add v1 v2\n",
                 "text of a loop: v3: expected totals over the same dims");
  expect_refused(load + "v1 = total sum v0 over [1, 0]\nv2 = add v0 v1\n", "text of a loop: v2: expected v0 to be known beside a total");
  expect_refused("p0 float32 read [4, 1]\np1 float32 written [4, 1]\nv0 = load p0\nv1 = total sum v0 over [1, 0]\nv2 = store p1 v1\n",
                 "text of a loop: v2: expected p1 to have no strides over the dims of its total");
}

TEST(LoopText, EveryPrefixIsRefusedOrPrintsBack) {
  for (std::size_t n = 0; n < every_form.size(); ++n) {
    try {
      EXPECT_EQ(print(parse_loop(every_form.substr(0, n))), every_form.substr(0, n));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tandem
