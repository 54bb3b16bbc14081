// Recurrent layers and their cells.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

namespace {
/// Output and last state; an LSTM has two of these.
const auto sequence = [](auto& m, const Inputs& in) -> Inputs {
  const auto [out, state] = m.forward(in[0]);
  if constexpr (std::is_same_v<std::decay_t<decltype(state)>, at::Tensor>)
    return {out, state};
  else
    return {out, std::get<0>(state), std::get<1>(state)};
};
/// The same, from a state that is an input.
const auto continued = [](auto& m, const Inputs& in) -> Inputs {
  const auto [out, state] = m.forward(in[0], in[1]);
  return {out, state};
};
/// A cell over the first dim of the input.
const auto unrolled = [](auto& m, const Inputs& in) -> Inputs {
  at::Tensor h;
  for (std::int64_t t = 0; t < in[0].size(0); t++) h = m.forward(in[0][t], h);
  return {h};
};
const auto unrolled_lstm = [](auto& m, const Inputs& in) -> Inputs {
  std::optional<std::tuple<at::Tensor, at::Tensor>> state;
  for (std::int64_t t = 0; t < in[0].size(0); t++) state = m.forward(in[0][t], state);
  return {std::get<0>(*state), std::get<1>(*state)};
};
}  // namespace

LayerCases recurrent_cases() {
  const auto small = batch({4, 3, 5}), odd = batch({1, 7, 5}), with_state = batch({4, 3, 5}, {1, 3, 6}),
             odd_state = batch({7, 1, 5}, {1, 1, 6});
  return {
      {"RNN", [] { return calls(nn::RNN(5, 6), sequence); }, small, odd,
       [] { return calls(nn::RNN(nn::RNNOptions(5, 3).nonlinearity(torch::kReLU).batch_first(true).bias(false)), sequence); }},
      {"RNN (2 layers, both directions, dropout)",
       [] { return calls(nn::RNN(nn::RNNOptions(5, 4).num_layers(2).bidirectional(true).dropout(0.3)), sequence); }, small, odd},
      {"LSTM", [] { return calls(nn::LSTM(5, 6), sequence); }, small, odd,
       [] { return calls(nn::LSTM(nn::LSTMOptions(5, 3).batch_first(true).bias(false)), sequence); }},
      {"LSTM (2 layers, both directions, dropout)",
       [] { return calls(nn::LSTM(nn::LSTMOptions(5, 4).num_layers(2).bidirectional(true).dropout(0.3)), sequence); }, small, odd},
      {"LSTM (projection)", [] { return calls(nn::LSTM(nn::LSTMOptions(5, 6).proj_size(2)), sequence); }, small, odd},
      {"GRU", [] { return calls(nn::GRU(5, 6), sequence); }, small, odd,
       [] { return calls(nn::GRU(nn::GRUOptions(5, 3).batch_first(true).bias(false)), sequence); }},
      {"GRU (2 layers, both directions, dropout)",
       [] { return calls(nn::GRU(nn::GRUOptions(5, 4).num_layers(2).bidirectional(true).dropout(0.3)), sequence); }, small, odd},
      {"GRU (given state)", [] { return calls(nn::GRU(5, 6), continued); }, with_state, odd_state},
      {"RNNCell", [] { return calls(nn::RNNCell(5, 6), unrolled); }, small, odd,
       [] { return calls(nn::RNNCell(nn::RNNCellOptions(5, 3).nonlinearity(torch::kReLU)), unrolled); }},
      {"LSTMCell", [] { return calls(nn::LSTMCell(5, 6), unrolled_lstm); }, small, odd},
      {"GRUCell", [] { return calls(nn::GRUCell(5, 6), unrolled); }, small, odd},
  };
}

}  // namespace tandem::test
