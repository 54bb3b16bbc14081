// Host state that a loss depends on: members, branches, loop counts, values that the host reads without an op.
#include "tests/support/bugbank.h"

namespace tandem::test {
namespace {

struct Host {
  double beta = 0;
  bool square = false;
  int count = 1;
};

/// A parameter w of one element and a loss of it and the host's state.
template <class F>
auto of_host(const std::shared_ptr<Host>& host, double start, F loss) {
  return [=] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::full({}, start));
    return Trainer{module, sgd({w}, 0), [=] { return loss(w, *host); }};
  };
}

TEST(BugBank, GRD_3_AFactorThatChangesEachStepKeepsOnePlan) {
  const auto host = std::make_shared<Host>();
  Twins twins(of_host(host, 1, [](const at::Tensor& w, const Host& h) { return w * 3 + h.beta * w * w; }));
  bool compiled = false;
  for (int s = 0; s < 12; s++) {
    host->beta = 0.5 * s;
    compiled = twins.step().compiled;
    EXPECT_EQ(far(twins.gradient("w"), {3 + 2 * host->beta}), "") << "step " << s + 1;
  }
  EXPECT_TRUE(compiled) << twins.report().to_string();
  EXPECT_LE(twins.report().plans.size(), 1u);
  for (const auto& [beta, expected] : std::vector<std::pair<double, double>>{{0, 3}, {1, 5}, {0.5, 4}}) {
    host->beta = beta;
    twins.step();
    EXPECT_EQ(far(twins.gradient("w"), {expected}), "");
  }
}

TEST(BugBank, GRD_3_AFlagThatAddsATerm) {
  const auto host = std::make_shared<Host>();
  Twins twins(of_host(host, 1, [](const at::Tensor& w, const Host& h) {
    auto loss = w * 3;
    if (h.square) loss = loss + w * w;
    return loss;
  }));
  bool compiled = true;
  for (int round = 0; round < 6; round++) {
    compiled = true;
    for (const bool on : {false, true, false}) {
      host->square = on;
      compiled &= twins.step().compiled;
      EXPECT_EQ(far(twins.gradient("w"), {on ? 5. : 3.}), "") << "round " << round;
    }
  }
  EXPECT_TRUE(compiled) << "both branches have a plan: " << twins.report().to_string();
}

TEST(BugBank, DYN_2_ALoopCountThatChanges) {
  const auto host = std::make_shared<Host>();
  Twins twins(of_host(host, 2, [](const at::Tensor& w, const Host& h) {
    auto y = torch::ones({});
    for (int k = 0; k < h.count; k++) y = y * w;
    return y;
  }));
  bool compiled = true;
  for (int round = 0; round < 6; round++) {
    compiled = true;
    for (const auto& [k, expected] : std::vector<std::pair<int, double>>{{1, 1}, {3, 12}, {2, 4}}) {
      host->count = k;
      compiled &= twins.step().compiled;
      EXPECT_EQ(far(twins.gradient("w"), {expected}), "") << k << " turns in round " << round;
    }
  }
  EXPECT_TRUE(compiled) << twins.report().to_string();
}

/// A loss whose sizes follow from an input's values, which LibTorch reads without an op.
template <class F>
void expect_follows_the_values(F loss, const std::vector<at::Tensor>& values) {
  Twins twins([=] {
    auto module = bag();
    const auto w = module->register_parameter("w", torch::arange(1, 9).to(at::kFloat));
    return Trainer{module, sgd({w}, 0), [=](const at::Tensor& v) { return loss(w, v); }};
  });
  for (int s = 0; s < 4; s++) twins.step(values[0]);
  for (int round = 0; round < 2; round++)
    for (const auto& v : values) twins.step(v);
}

TEST(BugBank, GRD_3_PlacesToSplitAtThatAreReadOnTheHost) {
  expect_follows_the_values([](const at::Tensor& w, const at::Tensor& v) { return w.tensor_split(v)[0].square().sum(); },
                            {torch::tensor({2, 5}), torch::tensor({3, 5}), torch::tensor({7, 8})});
}

TEST(BugBank, GRD_3_LengthsOfPackedSequencesThatAreReadOnTheHost) {
  expect_follows_the_values(
      [](const at::Tensor& w, const at::Tensor& v) {
        const auto packed = torch::nn::utils::rnn::pack_padded_sequence(w.view({4, 2, 1}), v);
        const auto [padded, lengths] = torch::nn::utils::rnn::pad_packed_sequence(packed);
        return padded.square().sum();
      },
      {torch::tensor({4, 2}), torch::tensor({4, 4}), torch::tensor({3, 1})});
}

TEST(BugBank, GRD_3_LengthsOfTargetsThatAreReadOnTheHost) {
  expect_follows_the_values(
      [](const at::Tensor& w, const at::Tensor& v) {
        const auto scores = torch::stack({w.view({4, 2}), w.view({4, 2}).sin()}, 1).log_softmax(2);
        return torch::ctc_loss(scores, torch::ones({2, 2}, at::kLong), torch::tensor({4, 4}), v);
      },
      {torch::tensor({2, 1}), torch::tensor({1, 1}), torch::tensor({2, 2})});
}

TEST(BugBank, GRD_3_AnElementThatIsReadThroughAPointer) {
  expect_follows_the_values(
      [](const at::Tensor& w, const at::Tensor& v) { return (w * double(v.const_data_ptr<std::int64_t>()[0])).sum(); },
      {torch::tensor({2, 5}), torch::tensor({3, 5}), torch::tensor({7, 8})});
}

}  // namespace
}  // namespace tandem::test
