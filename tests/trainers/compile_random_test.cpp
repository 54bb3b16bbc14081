// Random functions with several outputs, and random things done with them: any backwards in any order, retained or not, memory overwritten in between.
#include "tests/trainers/compile_scenario.h"

#include <random>

namespace tandem {
namespace {

using test::Inputs;
using test::leaf;
using test::normal;

struct RandomFunction {
  explicit RandomFunction(unsigned s) : seed(s) {}
  std::vector<at::Tensor> operator()(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) const {
    std::mt19937 random(seed);
    Inputs all{a, b, c};
    const auto pick = [&] {
      return all[random() % 2 ? all.size() - 1 - random() % std::min<std::size_t>(all.size(), 4) : random() % all.size()];
    };
    for (int i = 0; i < 12; i++) {
      const auto x = pick(), y = pick();
      switch (random() % 8) {
        case 0: all.push_back(x * y); break;
        case 1: all.push_back(x + y); break;
        case 2: all.push_back(torch::tanh(x)); break;
        case 3: all.push_back(torch::sigmoid(x) * 2); break;
        case 4: all.push_back(torch::relu(x) - y); break;
        case 5: all.push_back(torch::softmax(x, -1)); break;
        case 6: all.push_back(x.view({2, 4}).mm(y.view({4, 2})).mm(x.view({2, 4})).view({8})); break;
        default: all.push_back(x * 0.5); all.back().add_(y);
      }
    }
    return {all[all.size() - 1] + 0.5, all[all.size() - 3] * 1.5, torch::sin(all[all.size() - 2])};
  }
  unsigned seed;
};

/// The kind of an exception: eager's autograd names its own nodes.
std::string kind_of(const std::string& text) {
  for (const char* kind : {"modified by an inplace operation", "Trying to backward through the graph a second time"})
    if (text.find(kind) != std::string::npos) return kind;
  return text.substr(0, text.find('\n'));
}

/// Does the same things with the results of either function; what they gave, and what each threw.
template <class F>
std::pair<Inputs, std::string> play(F& f, Inputs in, unsigned seed) {
  std::mt19937 random(seed);
  std::string log;
  Inputs out = f(in[0], in[1], in[2]), seen;
  for (const auto& t : out) seen.push_back(t.detach().clone());
  const auto subset = [&] {
    at::Tensor loss;
    for (unsigned bits = 1 + random() % 7, i = 0; i < 3; i++)
      if (bits >> i & 1)
        loss = loss.defined() ? loss + out[i].square().sum() : random() % 2 ? out[i].sum() : (out[i] * normal({8}, i)).sum();
    return loss;
  };
  for (unsigned n = 1 + random() % 3; n > 0; n--) {
    const unsigned what = random() % 8, which = random() % 3;
    const bool retain = random() % 2;
    log += kind_of(test::thrown_by([&] {
             if (what == 0) {
               const at::NoGradGuard no_grad;
               out[which].mul_(1.5);
             } else if (what == 1) {
               const at::NoGradGuard no_grad;
               in[which].mul_(1.5);
             } else if (what == 2) {
               const auto g = torch::autograd::grad({subset()}, {in[which]}, {}, true, /*create_graph=*/true, /*allow_unused=*/true)[0];
               if (g.defined() && g.requires_grad()) g.square().sum().backward();
             } else {
               subset().backward({}, retain);
             }
           })) +
           ";";
    // Eager throws in the middle and has accumulated some gradients by then; a plan throws before it does anything.
    if (log.size() > 1 && log[log.size() - 2] != ';') return {seen, log};
    for (const auto& t : in) seen.push_back(t.grad().defined() ? t.grad().clone() : at::Tensor());
  }
  return {seen, log};
}

/// A tangent may have been copied into the layout that its plan was made for, and a sum then has another order: rounding is allowed.
std::string apart(const at::Tensor& found, const at::Tensor& expected) {
  if (test::describe(found) != test::describe(expected)) return test::difference(found, expected);
  return expected.defined() ? test::beyond_rounding(found, expected) : "";
}

TEST(CompileRandom, WhateverIsDoneWithTheResults) {
  int compiled_calls = 0;
  std::int64_t compared = 0;
  for (unsigned seed = 0; seed < 25; seed++) {
    RandomFunction function(seed);
    std::int64_t fallbacks = 0;
    auto compiled = compile(function, test::as_tested({.shadow_every = 1000}));
    for (unsigned call = 0; call < 14; call++) {
      SCOPED_TRACE(fmt::format("function {}, call {}", seed, call));
      const auto scenario = 1000 * seed + (call < 4 ? 0 : call);  // the first calls are alike, so that a plan comes to be
      const auto inputs = [&] { return Inputs{leaf({8}, seed), leaf({8}, seed + 1), leaf({8}, seed + 2)}; };
      const auto [expected, eager_log] = play(function, inputs(), scenario);
      const auto [found, log] = play(compiled, inputs(), scenario);
      const auto again = test::events(compiled.report(), "fallback");
      if (log != eager_log) {
        // Tangents that come for the first time: the call is run again, and does not notice what eager's saved values would.
        EXPECT_GT(again, fallbacks) << log << " for " << eager_log;
        fallbacks = again;
        continue;
      }
      fallbacks = again;
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); i++) ASSERT_EQ(apart(found[i], expected[i]), "") << "tensor " << i;
      compared++;
    }
    compiled_calls += int(compiled.report().compiled_steps);
  }
  EXPECT_GT(compiled_calls, 50);
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace tandem
