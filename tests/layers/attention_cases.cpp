// Attention and transformers, with and without dropout.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

namespace {
const auto self_attention = [](auto& m, const Inputs& in) -> Inputs {
  const auto [out, weights] = m.forward(in[0], in[0], in[0]);
  return {out, weights};
};
const auto attention_to = [](auto& m, const Inputs& in) -> Inputs {
  const auto [out, weights] = m.forward(in[0], in[1], in[1]);
  return {out, weights};
};
const auto causal = [](auto& m, const Inputs& in) -> Inputs {
  const auto mask = nn::TransformerImpl::generate_square_subsequent_mask(in[0].size(0));
  return {m.forward(in[0], mask)};
};
const auto two = [](auto& m, const Inputs& in) -> Inputs { return {m.forward(in[0], in[1])}; };

nn::TransformerEncoderLayerOptions encoder_options() { return nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).dropout(0.1); }
nn::TransformerDecoderLayerOptions decoder_options() { return nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(12).dropout(0.1); }
}  // namespace

LayerCases attention_cases() {
  const auto small = batch({4, 3, 8}), odd = batch({7, 1, 8}), pair = batch({4, 3, 8}, {5, 3, 8}), odd_pair = batch({7, 1, 8}, {1, 1, 8});
  return {
      {"MultiheadAttention (self)", [] { return calls(nn::MultiheadAttention(8, 2), self_attention); }, small, odd,
       [] { return calls(nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 4).dropout(0.2).bias(false)), self_attention); }},
      {"MultiheadAttention (cross)", [] { return calls(nn::MultiheadAttention(8, 2), attention_to); }, pair, odd_pair},
      {"MultiheadAttention (other sizes)",
       [] { return calls(nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(6).add_zero_attn(true)), attention_to); },
       batch({4, 3, 8}, {5, 3, 6}), batch({7, 1, 8}, {1, 1, 6})},
      {"TransformerEncoderLayer", [] { return of(nn::TransformerEncoderLayer(encoder_options())); }, small, odd,
       [] { return calls(nn::TransformerEncoderLayer(encoder_options().activation(torch::kGELU)), causal); }},
      {"TransformerEncoder",
       [] {
         return of(nn::TransformerEncoder(
             nn::TransformerEncoderOptions(encoder_options(), 2).norm(nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({8}))))));
       },
       small, odd, [] { return calls(nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder_options(), 1)), causal); }},
      {"TransformerDecoderLayer", [] { return calls(nn::TransformerDecoderLayer(decoder_options()), two); }, pair, odd_pair,
       [] { return calls(nn::TransformerDecoderLayer(decoder_options().activation(torch::kGELU).dropout(0)), two); }},
      {"TransformerDecoder", [] { return calls(nn::TransformerDecoder(nn::TransformerDecoderOptions(decoder_options(), 2)), two); }, pair,
       odd_pair},
      {"Transformer",
       [] {
         return calls(nn::Transformer(nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(12).dropout(0.1)),
                      [](auto& m, const Inputs& in) -> Inputs { return {m.forward(in[1], in[0])}; });
       },
       pair, odd_pair},
  };
}

}  // namespace tandem::test
