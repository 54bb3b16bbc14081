// Inputs that have an autograd history of their own.
#include "tandem/tandem.h"
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

/// What a caller sees of an input that the function has written in place: its values, its history, and what flows back through it.
template <class F>
void expect_as_eager(F f, int calls) {
  auto compiled = compile(f, as_tested({.shadow_every = 1000}));
  const auto w = torch::linspace(-1, 1, 6).requires_grad_(true);
  for (int i = 0; i < calls; i++) {
    SCOPED_TRACE("call " + std::to_string(i));
    auto one = [&](auto&& call) {
      auto x = w * (1.0 + i);
      auto y = call(x);
      auto g = torch::autograd::grad({(y * y).sum() + (x * 3).sum()}, {w})[0];
      return std::vector<at::Tensor>{x.detach(), y.detach(), g, torch::tensor(std::int64_t(x._version()))};
    };
    const auto mine = one(compiled), eagers = one(f);
    for (std::size_t k = 0; k < mine.size(); k++) EXPECT_TRUE(at::allclose(mine[k], eagers[k], 1e-5, 1e-6)) << k << mine[k] << eagers[k];
  }
}

TEST(CompileInputs, AnInputThatIsWrittenInPlaceKeepsItsHistory) {
  expect_as_eager(
      [](at::Tensor x) {
        x.mul_(3);
        return torch::tanh(x);
      },
      6);
}

TEST(CompileInputs, AnInputThatIsWrittenWithoutHistory) {
  expect_as_eager(
      [](at::Tensor x) {
        x.detach().mul_(0.5);
        return torch::sigmoid(x) * 2;
      },
      6);
}

TEST(CompileInputs, AnInputOfAnEarlierGraphThatIsOnlyRead) {
  expect_as_eager([](const at::Tensor& x) { return torch::tanh(x) * x; }, 6);
}

}  // namespace
}  // namespace tandem::test
