// A scenario told twice, with a plain function and with the same one compiled: what it returns and throws must be the same, each time.
#pragma once

#include "tandem/compile.h"
#include "tests/support/lockstep.h"

#include <string>
#include <utility>

namespace tandem::test {

enum class Expected { compiled, eager };

/// `scenario(f, inputs)` gets the function and fresh copies of the inputs, and gives tensors; an exception counts as one more result. It is told until
/// plans have taken over and some times more.
template <class F, class Scenario>
Report tell(F function, const Inputs& inputs, Scenario scenario, Expected expected = Expected::compiled,
            Options options = {.shadow_every = 1000}) {
  auto compiled = compile(function, as_tested(options));
  const auto told = [&](auto& f) {
    Inputs copies;
    for (const auto& t : inputs) copies.push_back(t.detach().clone().requires_grad_(t.requires_grad()));
    return Outcome::of([&](Outcome& o) { o.returned = scenario(f, copies); });
  };
  for (int n = 1; n <= 6; n++) {
    SCOPED_TRACE(fmt::format("told for the {}. time", n));
    const auto generator = generator_state();
    const auto eager = told(function);
    set_generator_state(generator);
    const auto found = told(compiled);
    EXPECT_EQ(found.error.substr(0, found.error.find('\n')), eager.error.substr(0, eager.error.find('\n')));
    EXPECT_EQ(difference(found.generator, eager.generator), "") << "the generator's position";
    EXPECT_EQ(found.returned.size(), eager.returned.size());
    for (std::size_t i = 0; i < std::min(found.returned.size(), eager.returned.size()); i++)
      EXPECT_EQ(difference(found.returned[i], eager.returned[i]), "") << "result " << i;
  }
  const auto report = compiled.report();
  EXPECT_EQ(report.active, expected == Expected::compiled) << report.to_string();
  EXPECT_EQ(report.compiled_steps > 0, expected == Expected::compiled) << report.to_string();
  EXPECT_TRUE(report.active || !report.reason.empty());
  return report;
}

/// The text that a call throws, or "".
template <class Call>
std::string thrown_by(Call&& call) {
  return Outcome::of([&](Outcome&) { call(); }).error;
}

/// A leaf with fixed numbers.
inline at::Tensor leaf(at::IntArrayRef sizes, std::uint64_t seed) { return normal(sizes, seed).requires_grad_(true); }
inline at::Tensor numbers(std::vector<float> list) { return torch::tensor(list); }

}  // namespace tandem::test
