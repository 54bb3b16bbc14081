// Training loops over sequences and sampled actions: state that is carried on, lengths and sizes that follow from values.
#include "tests/trainers/program.h"

#include <tuple>

namespace tandem::test {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
namespace optim = torch::optim;
using at::Tensor;

/// An LSTM's kernel gives what its backward needs in grad mode only, and a whole body's forward runs from within the backward.
TEST(SequenceLoops, AnLstmInAWholeBodyCarriesItsStateOn) {
  expect_as_eager(
      [](Program& p) {
        auto net = bag();
        nn::LSTM lstm(nn::LSTMOptions(5, 6).num_layers(2));
        nn::Linear last(6, 4);
        net->register_module("lstm", lstm);
        net->register_module("last", last);
        optim::Adam optimizer(net->parameters(), optim::AdamOptions(1e-2));
        auto body = p.body([&](const Tensor& x, const Tensor& y, const Tensor& h, const Tensor& c) {
          optimizer.zero_grad();
          auto [out, state] = lstm->forward(x, std::make_tuple(h, c));
          auto loss = F::cross_entropy(last(out).flatten(0, 1), y.flatten());
          loss.backward();
          optimizer.step();
          return std::make_tuple(loss, std::get<0>(state), std::get<1>(state));
        });
        auto h = torch::zeros({2, 3, 6}), c = torch::zeros({2, 3, 6});
        for (int i = 0; i < 30; i++) {
          const auto r = body({torch::randn({4, 3, 5}), torch::randint(4, {4, 3}, at::kLong), h, c});
          p.note_all(r);
          h = r[1];
          c = r[2];
        }
        p.note_state(*net, optimizer);
      },
      {24});
}

/// The lengths have the same sum, so that only some of the sizes differ.
TEST(SequenceLoops, PackedSequencesWhoseLengthsChange) {
  expect_as_eager(
      [](Program& p) {
        auto net = bag();
        nn::GRU gru(nn::GRUOptions(5, 6).batch_first(true));
        nn::Linear last(6, 4);
        net->register_module("gru", gru);
        net->register_module("last", last);
        optim::Adam optimizer(net->parameters(), optim::AdamOptions(1e-2));
        std::vector<std::int64_t> lengths;
        auto step = p.step(net, optimizer, [&](const Tensor& x, const Tensor& y) {
          const auto packed = nn::utils::rnn::pack_padded_sequence(x, torch::tensor(lengths), /*batch_first=*/true);
          return F::cross_entropy(last(std::get<1>(gru->forward_with_packed_input(packed))[-1]), y);
        });
        for (int i = 0; i < 30; i++) {
          lengths = i % 3 ? std::vector<std::int64_t>{5, 3, 2} : std::vector<std::int64_t>{4, 4, 2};
          p.note_all(step({torch::randn({3, 5, 5}), torch::randint(4, {3}, at::kLong)}));
        }
        p.note_state(*net, optimizer);
      },
      {15});
}

/// Each size is a path, and the read itself decides which one the step is on.
TEST(SequenceLoops, SizesThatFollowFromAMaskInTurn) {
  expect_as_eager(
      [](Program& p) {
        auto net = bag();
        auto w = net->register_parameter("w", torch::randn({6}));
        optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.05));
        auto step =
            p.step(net, optimizer, [&](const Tensor& x, const Tensor& mask) { return (x * w).masked_select(mask).square().mean(); });
        for (int i = 0; i < 30; i++) p.note_all(step({torch::randn({5, 6}), torch::arange(6) < (i % 3 ? 4 : 2)}));
        p.note_state(*net, optimizer);
      },
      {20});
}

struct ActorCritic : nn::Module {
  ActorCritic() {
    register_module("first", first);
    register_module("policy", policy);
    register_module("value", value);
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& x) {
    const auto h = torch::tanh(first(x));
    return {policy(h), value(h).squeeze(-1)};
  }
  nn::Linear first{4, 16}, policy{16, 3}, value{16, 1};
};

/// The second result is used by none of the backwards: the recordings that agree at last have other tangents than the first.
TEST(SequenceLoops, APolicyGradientThatLeavesTheValueHeadAlone) {
  expect_as_eager(
      [](Program& p) {
        auto net = std::make_shared<ActorCritic>();
        optim::Adam optimizer(net->parameters(), optim::AdamOptions(5e-3));
        auto f = p.forward(net);
        for (int i = 0; i < 40; i++) {
          optimizer.zero_grad();
          const auto odds = torch::softmax(std::get<0>(f(torch::randn({1, 4}))), -1);
          const auto action = torch::multinomial(odds.detach(), 1).item<std::int64_t>();
          auto loss = -torch::log(odds[0][action]) * (action == 1 ? 1.0 : -0.2);
          loss.backward();
          optimizer.step();
          p.note("loss", loss);
        }
        p.note_state(*net, optimizer);
      },
      {30});
}

/// Which input is met first is a matter of the path: where inputs lie is compared input by input.
TEST(SequenceLoops, TwoPathsThatMeetTheirInputsInAnotherOrder) {
  expect_as_eager(
      [](Program& p) {
        auto net = bag();
        auto w = net->register_parameter("w", torch::randn({3}));
        optim::SGD optimizer(net->parameters(), optim::SGDOptions(1e-3));
        bool swapped = false;
        auto step = p.step(net, optimizer, [&](const Tensor& x, const Tensor& y) {
          return swapped ? (y.sin().sum() + (x * w).sum()).square() : ((x * w).sum() + y.cos().sum()).square();
        });
        for (int i = 0; i < 30; i++) {
          swapped = i % 2 == 1;
          p.note_all(step({torch::randn({7, 3}), torch::randn({2})}));
        }
        p.note_state(*net, optimizer);
      },
      {20});
}

}  // namespace
}  // namespace tandem::test
