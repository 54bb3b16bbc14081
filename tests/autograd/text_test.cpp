#include "autograd/text.h"

#include "autograd/support/error.h"
#include "tests/autograd/graph_samples.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>

namespace tandem {
namespace {

/// The sentence with which the text is refused, or nothing.
std::string refusal(const std::string& text) {
  try {
    parse_graph(text);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

std::string after_header(const std::string& lines) { return "tandem graph 1\n" + lines; }

/// A graph with one node whose only argument is the constant.
Graph holding(Constant c) {
  Graph g;
  Node n;
  n.id = 0;
  n.op = "aten::x";
  n.args.resize(1);
  n.args[0].constant = std::move(c);
  g.nodes.push_back(n);
  return g;
}

Constant through_text(Constant c) { return parse_graph(print(holding(std::move(c)))).nodes.at(0).args.at(0).constant; }

TEST(Text, ASmallStepRoundTrips) { EXPECT_EQ(print(parse_graph(test::small_step)), test::small_step); }

TEST(Text, EveryFormRoundTrips) { EXPECT_EQ(print(parse_graph(test::every_form)), test::every_form); }

TEST(Text, ReparsingGivesAnEqualGraph) {
  Graph g = parse_graph(test::every_form);
  EXPECT_EQ(first_difference(g, parse_graph(print(g))), "");
  EXPECT_EQ(parse_graph(print(g)).made_by, g.made_by);
}

TEST(Text, AnEmptyGraphIsItsHeader) {
  EXPECT_EQ(print(Graph{}), "tandem graph 1\n");
  EXPECT_EQ(first_difference(Graph{}, parse_graph("tandem graph 1\n")), "");
}

TEST(Text, FieldsAreReadAsWritten) {
  Graph g = parse_graph(test::every_form);
  EXPECT_EQ(g.made_by, std::string("a \"pass\"\n\\ \0\xff", 13));
  EXPECT_EQ(g.storages[0], (Storage{Role::input, 3, "x \xc3\xa9", 2560, c10::Device(c10::DeviceType::CUDA, 1)}));
  EXPECT_EQ(g.storages[5].device, c10::Device(c10::DeviceType::CPU, 0));
  EXPECT_EQ(g.values[1], (Value{1, 4, 7, {}, {}, c10::ScalarType::ComplexDouble, true, true, true}));
  EXPECT_EQ(g.scalars[1].recorded, -INFINITY);
  const Node& n = g.nodes[6];
  EXPECT_EQ(n.writes, (std::vector<StorageId>{1}));
  EXPECT_EQ(n.effects, (Effects{true, true, true}));
  EXPECT_TRUE(n.folded);
  EXPECT_EQ(n.stream, 1);
  EXPECT_EQ(n.workspace, 64);
  EXPECT_EQ(n.ran_for, "A#4");
  EXPECT_EQ(n.created, (std::vector<std::string>{"B#3", "C"}));
  EXPECT_EQ(g.nodes[1].op, "an op");
  EXPECT_EQ(g.nodes[2].args[4].scalar, 0);
  EXPECT_EQ(std::get<double>(g.nodes[2].args[4].constant), 0.5);
  EXPECT_TRUE(g.nodes[2].args[4].wrapped);
  EXPECT_EQ(g.outputs, (std::vector<ValueId>{1, -1}));
  EXPECT_EQ(g.gradients[0], (Gradient{0, "fc.weight", 2, 1}));
  EXPECT_EQ(g.grad_norm, 3);
}

TEST(Text, EveryFloatingNumberKeepsItsBits) {
  for (std::uint64_t bits : {0x0ull, 0x8000000000000000ull, 0x1ull, 0x000fffffffffffffull, 0x3ff0000000000000ull, 0x3fb999999999999aull,
                             0x7fefffffffffffffull, 0x7ff0000000000000ull, 0xfff0000000000000ull, 0x7ff8000000000000ull,
                             0xfff8000000000000ull, 0x7ff4000000000001ull, 0xffffffffffffffffull, 0x4340000000000001ull}) {
    Constant c = std::bit_cast<double>(static_cast<std::uint64_t>(bits));
    EXPECT_TRUE(same(through_text(c), c)) << std::hex << bits;
  }
}

TEST(Text, WholeFloatsDoNotBecomeIntegers) {
  EXPECT_TRUE(same(through_text(3.0), 3.0));
  EXPECT_TRUE(same(through_text(1e300), 1e300));
  EXPECT_TRUE(same(through_text(std::vector<double>{1, 2}), std::vector<double>{1, 2}));
}

TEST(Text, EveryByteOfAStringSurvives) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_TRUE(same(through_text(all), all));
}

TEST(Text, NamesOfEveryByteSurvive) {
  Graph g = holding(true);
  std::string name("\0\"\\\n\x80 }", 7);
  g.nodes[0].op = g.nodes[0].ran_for = name;
  g.nodes[0].created = {name, ""};
  g.storages.resize(1);
  g.storages[0].name = name;
  g.scalars.push_back({name, 0.5});
  EXPECT_EQ(first_difference(g, parse_graph(print(g))), "");
}

TEST(Text, EveryDtypeHasItsOwnName) {
  std::set<std::string> names;
  for (int i = 0; i < static_cast<int>(c10::ScalarType::Undefined); ++i) {
    auto type = static_cast<c10::ScalarType>(i);
    c10::ScalarType back;
    ASSERT_TRUE(parse_dtype(dtype_name(type), back)) << dtype_name(type);
    EXPECT_EQ(back, type);
    names.insert(dtype_name(type));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(c10::ScalarType::Undefined));
}

TEST(Text, UsualDtypesHaveTheirUsualNames) {
  EXPECT_STREQ(dtype_name(c10::ScalarType::Float), "float32");
  EXPECT_STREQ(dtype_name(c10::ScalarType::Long), "int64");
  EXPECT_STREQ(dtype_name(c10::ScalarType::Bool), "bool");
  EXPECT_STREQ(dtype_name(c10::ScalarType::BFloat16), "bfloat16");
  c10::ScalarType t;
  EXPECT_FALSE(parse_dtype("float", t));
  EXPECT_FALSE(parse_dtype("undefined", t));
}

TEST(Text, EveryDeviceTypeRoundTrips) {
  for (int i = 0; i < static_cast<int>(c10::COMPILE_TIME_MAX_DEVICE_TYPES); ++i) {
    Constant c = c10::Device(static_cast<c10::DeviceType>(i), 0);
    EXPECT_TRUE(same(through_text(c), c)) << i;
  }
}

TEST(Text, ABrokenGraphStillPrints) {
  Graph g = holding(true);
  g.nodes[0].args.resize(3);
  g.nodes[0].args[1] = {Argument::Kind::tensor, {}, false, -1, {1 << 30}};
  g.nodes[0].args[2] = {Argument::Kind::tensor, {}, false, -1, {}};
  g.nodes[0].writes = {-7};
  g.values.resize(1);
  g.loss = 5;
  EXPECT_EQ(print(g), after_header("%0 = s-1@0 float32 [] [] +0\nn0 forward () = aten::x(true, %1073741824, {}) {writes s-7}\nloss %5\n"));
}

TEST(TextRefuses, AnotherHeader) {
  EXPECT_EQ(refusal(""), "text line 1: expected \"tandem graph 1\", found end of text");
  EXPECT_EQ(refusal("tandem graph 2\n"), "text line 1: expected \"tandem graph 1\", found \"tandem graph 2\"");
}

TEST(TextRefuses, AnIdOutOfOrder) {
  EXPECT_EQ(refusal(after_header("storage s999999999 internal cpu 4\n")), "text line 2: expected s0, found \"s999999999 internal cpu \"");
  EXPECT_EQ(refusal(after_header("storage s0 internal cpu 4\n%1 = s0@0 float32 [] [] +0\n")),
            "text line 3: expected %0, found \"%1 = s0@0 float32 [] [] \"");
  EXPECT_EQ(refusal(after_header("scalar $1 \"\" 0.5\n")), "text line 2: expected $0, found \"$1 \\\"\\\" 0.5\"");
}

TEST(TextRefuses, WhatIsNotDeclaredAbove) {
  EXPECT_EQ(refusal(after_header("%0 = s0@0 float32 [] [] +0\n")),
            "text line 2: expected a storage that is declared above, found \"s0@0 float32 [] [] +0\"");
  EXPECT_EQ(refusal(after_header("n0 forward () = aten::x(%999999999)\n")),
            "text line 2: expected a value that is declared above, found \"%999999999)\"");
  EXPECT_EQ(refusal(after_header("n0 forward () = aten::x($0=0.5)\n")),
            "text line 2: expected a scalar that is declared above, found \"$0=0.5)\"");
  EXPECT_EQ(refusal(after_header("n0 forward () = aten::x() {writes s0}\n")),
            "text line 2: expected a storage that is declared above, found \"s0}\"");
  EXPECT_EQ(refusal(after_header("loss %-1\n")), "text line 2: expected a value that is declared above, found \"%-1\"");
}

TEST(TextRefuses, NumbersThatDoNotFit) {
  EXPECT_EQ(refusal(after_header("n0 forward () = aten::x(9223372036854775808)\n")),
            "text line 2: expected an integer of 64 bits, found \"9223372036854775808)\"");
  EXPECT_EQ(refusal(after_header("n2147483648 forward () = aten::x()\n")),
            "text line 2: expected an integer of 32 bits, found \"2147483648 forward () = \"");
  EXPECT_EQ(refusal(after_header("n0 forward () = aten::x(1e999)\n")),
            "text line 2: expected a floating number of 64 bits, found \"1e999)\"");
  EXPECT_EQ(refusal(after_header("storage s0 internal cuda:128 4\n")), "text line 2: expected a device, found \"cuda:128 4\"");
}

TEST(TextRefuses, UnknownWords) {
  EXPECT_NE(refusal(after_header("lost %0\n")).find("expected a storage, a scalar, a value, a node"), std::string::npos);
  EXPECT_NE(refusal(after_header("storage s0 inner cpu 4\n")).find("expected a role"), std::string::npos);
  EXPECT_NE(refusal(after_header("storage s0 internal gpu 4\n")).find("expected a device"), std::string::npos);
  EXPECT_NE(refusal(after_header("n0 sideways () = aten::x()\n")).find("expected forward, backward or update"), std::string::npos);
  EXPECT_NE(refusal(after_header("n0 forward () = aten::x() {quiet}\n")).find("expected a mark"), std::string::npos);
  EXPECT_NE(refusal(after_header("n0 forward () = aten::x(maybe)\n")).find("expected a constant or a tensor"), std::string::npos);
  EXPECT_NE(refusal(after_header("storage s0 internal cpu 4\n%0 = s0@0 float [] [] +0\n")).find("expected a dtype"), std::string::npos);
}

TEST(TextRefuses, ListsOfMixedTypes) {
  EXPECT_EQ(refusal(after_header("n0 forward () = aten::x([1.0, 2])\n")), "text line 2: expected a floating number, found \"2])\"");
  EXPECT_EQ(refusal(after_header("n0 forward () = aten::x([1, 2.0])\n")), "text line 2: expected \"]\", found \".0])\"");
  EXPECT_EQ(refusal(after_header("n0 forward () = aten::x([true, 1])\n")), "text line 2: expected true or false, found \"1])\"");
  EXPECT_EQ(refusal(after_header("n0 forward () = aten::x([])\n")), "text line 2: expected a constant or a tensor, found \"])\"");
}

TEST(TextRefuses, StringsThatDoNotEnd) {
  EXPECT_EQ(refusal(after_header("made_by \"abc\n")), "text line 2: expected a printable character or a closing quote, found end of line");
  EXPECT_EQ(refusal(after_header("made_by \"abc")), "text line 2: expected a printable character or a closing quote, found end of text");
  EXPECT_EQ(refusal(after_header("made_by \"\\q\"\n")), "text line 2: expected an escape n, x, \\ or \", found \"q\\\"\"");
  EXPECT_EQ(refusal(after_header("made_by \"\\x4")), "text line 2: expected two hexadecimal digits, found \"4\"");
}

TEST(TextRefuses, WhatFollowsALine) {
  EXPECT_EQ(refusal(after_header("loss undefined ")), "text line 2: expected end of line, found \" \"");
  EXPECT_EQ(refusal("tandem graph 1"), "text line 1: expected end of line, found end of text");
}

TEST(TextRefuses, AnotherSpellingOfTheSameGraph) {
  EXPECT_EQ(refusal(after_header("n00 forward () = aten::x()\n")),
            "text line 2: expected `n0 forward () = aten::x()`, found `n00 forward () = aten::x()`");
  EXPECT_EQ(refusal(after_header("n0 forward () = aten::x(1.50)\n")),
            "text line 2: expected `n0 forward () = aten::x(1.5)`, found `n0 forward () = aten::x(1.50)`");
  EXPECT_EQ(refusal(after_header("n0 forward () = \"aten::x\"()\n")),
            "text line 2: expected `n0 forward () = aten::x()`, found `n0 forward () = \"aten::x\"()`");
}

TEST(TextRefuses, LinesOutOfOrder) {
  EXPECT_EQ(refusal(after_header("storage s0 internal cpu 4\nn0 forward () = aten::x()\n")),
            "text line 2: expected `n0 forward () = aten::x()`, found `storage s0 internal cpu 4`");
  EXPECT_EQ(refusal(after_header("loss undefined\n")), "text line 2: expected ``, found `loss undefined`");
}

}  // namespace
}  // namespace tandem
