// Mutated texts and graphs: whatever comes in, the parser refuses it with an Error or gives a graph that prints as it was read.
#include "autograd/support/error.h"
#include "autograd/text.h"
#include "autograd/verify.h"
#include "tests/autograd/graph_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tandem {
namespace {

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  std::string mutate(std::string text) {
    for (std::size_t rounds = 1 + below(3); rounds > 0; --rounds) once(text);
    return text;
  }

  std::string number() {
    static const char* const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "-1",
                                          "999999999",
                                          "2147483647",
                                          "2147483648",
                                          "-2147483648",
                                          "4294967296",
                                          "007",
                                          "9223372036854775807",
                                          "-9223372036854775808",
                                          "1e308",
                                          "1e309",
                                          "-0.0",
                                          "nan",
                                          "99999999999999999999999999999999999999"};
    return numbers[below(std::size(numbers))];
  }

 private:
  /// The first token at or after a random place: [from, to).
  std::pair<std::size_t, std::size_t> token(const std::string& text) {
    static constexpr std::string_view separators = " \n,()[]{}=;%@+$\"";
    std::size_t from = text.find_first_not_of(separators, below(text.size()));
    if (from == std::string::npos) return {text.size(), text.size()};
    return {from, std::min(text.find_first_of(separators, from), text.size())};
  }

  std::pair<std::size_t, std::size_t> line(const std::string& text) {
    std::size_t at = below(text.size());
    std::size_t from = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    return {from, std::min(text.find('\n', from), text.size() - 1) + 1};
  }

  void replace_number(std::string& text) {
    std::size_t from = text.find_first_of("0123456789", below(text.size()));
    if (from == std::string::npos) return;
    text.replace(from, std::min(text.find_first_not_of("0123456789", from), text.size()) - from, number());
  }

  void swap_tokens(std::string& text) {
    auto [a, a_end] = token(text);
    auto [b, b_end] = token(text);
    if (b < a) std::swap(a, b), std::swap(a_end, b_end);
    if (b < a_end) return;
    std::string first = text.substr(a, a_end - a), second = text.substr(b, b_end - b);
    text.replace(b, b_end - b, first);
    text.replace(a, a_end - a, second);
  }

  void once(std::string& text) {
    if (text.empty()) return;
    std::size_t at = below(text.size());
    switch (below(9)) {
      case 0: text[at] = static_cast<char>(text[at] ^ (1 << below(8))); break;
      case 1: text[at] = static_cast<char>(below(256)); break;
      case 2: text.erase(at, 1 + below(12)); break;
      case 3: text.insert(at, text.substr(below(text.size()), below(40))); break;
      case 4: text.resize(at); break;
      case 5: swap_tokens(text); break;
      case 6: {
        auto [from, to] = line(text);
        text.insert(from, text.substr(from, to - from));
        break;
      }
      case 7: {
        auto [from, to] = line(text);
        text.erase(from, to - from);
        break;
      }
      default: replace_number(text);
    }
  }

  std::mt19937 random_;
};

/// Whether the text is accepted; then it must print as it is, and verify() must come to an end.
bool accepted(const std::string& text) {
  Graph g;
  try {
    g = parse_graph(text);
  } catch (const Error& e) {
    EXPECT_EQ(std::string_view(e.what()).substr(0, 10), "text line ");
    return false;
  }
  EXPECT_EQ(print(g), text);
  verify(g);
  return true;
}

TEST(ParseFuzz, MutatedTextsAreRefusedOrRoundTrip) {
  const std::string seeds[] = {std::string(test::small_step), std::string(test::every_form), "tandem graph 1\n"};
  std::size_t taken = 0;
  for (unsigned i = 0; i < 24000 && !HasFailure(); ++i) {
    Mutator m(i);
    if (accepted(m.mutate(seeds[i % 8 == 7 ? 2 : i % 2]))) ++taken;
  }
  EXPECT_GT(taken, 1000u);  // else nothing was learnt about graphs that are read
}

TEST(ParseFuzz, EveryPrefixIsRefusedOrRoundTrips) {
  for (std::string_view seed : {test::small_step, test::every_form})
    for (std::size_t n = 0; n < seed.size(); ++n) accepted(std::string(seed.substr(0, n)));
}

TEST(ParseFuzz, DeepNestingIsRefused) {
  for (const char* open : {"[", "{", "(", "wrapped ", "$0=", "complex("}) {
    std::string text = "tandem graph 1\nn0 forward () = aten::x(";
    for (int i = 0; i < 100000; ++i) text += open;
    EXPECT_FALSE(accepted(text)) << open;
  }
}

/// Graphs with random ids, versions and geometry, as a faulty pass might make them.
Graph corrupt(Graph g, std::mt19937& random) {
  auto any = [&](std::int64_t n) {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(random() % static_cast<unsigned>(n + 4)) - 2);
  };
  auto pick = [&](auto& list) -> auto& { return list[random() % list.size()]; };
  auto& n = pick(g.nodes);
  auto values = static_cast<std::int64_t>(g.values.size()), storages = static_cast<std::int64_t>(g.storages.size());
  switch (random() % 9) {
    case 0: pick(g.values).storage = any(storages); break;
    case 1: pick(g.values).version = any(3); break;
    case 2: pick(g.values).strides.assign(random() % 3, static_cast<std::int64_t>(random()) << 31); break;
    case 3: n.args.push_back({Argument::Kind::tensor, {}, false, -1, {any(values)}}); break;
    case 4: n.results.push_back({Argument::Kind::tensors, {}, false, any(1), {any(values), any(values)}}); break;
    case 5: n.writes.push_back(any(storages)); break;
    case 6: n.args.push_back({Argument::Kind::constant, 0.5, false, any(2), {}}); break;
    case 7: g.loss = any(values), g.outputs.push_back(any(values)), g.gradients.push_back({0, "", any(values), any(values)}); break;
    default: std::swap(n, pick(g.nodes)); break;
  }
  return g;
}

TEST(ParseFuzz, CorruptGraphsAreJudgedAndPrinted) {
  std::mt19937 random(1);
  std::size_t broken = 0, sound = 0;
  for (int i = 0; i < 4000; ++i) {
    Graph g = corrupt(corrupt(parse_graph(test::small_step), random), random);
    std::string text = print(g);
    if (verify(g).empty()) {
      ++sound;
      EXPECT_TRUE(accepted(text)) << text;  // a graph that holds can always be written and read
    } else {
      ++broken;
    }
  }
  EXPECT_GT(broken, 1000u);
  EXPECT_GT(sound, 100u);
}

}  // namespace
}  // namespace tandem
