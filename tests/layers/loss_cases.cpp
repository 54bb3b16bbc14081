// Losses. The layer's result is the loss itself.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

namespace {
const auto two = [](auto& m, const Inputs& in) { return m.forward(in[0], in[1]); };
const auto three = [](auto& m, const Inputs& in) { return m.forward(in[0], in[1], in[2]); };
const auto of_probabilities = [](auto& m, const Inputs& in) { return m.forward(in[0].sigmoid(), in[1]); };
const auto of_log_probabilities = [](auto& m, const Inputs& in) { return m.forward(in[0].log_softmax(1), in[1]); };

/// The second input is changed by `f`, without a graph.
template <class F>
MakeBatch target(std::vector<std::int64_t> sizes, std::vector<std::int64_t> target_sizes, F f) {
  return [=](std::uint64_t seed) -> Inputs { return {normal(sizes, seed), f(normal(target_sizes, seed + 100))}; };
}
at::Tensor signs(const at::Tensor& t) { return t.sign(); }
at::Tensor chances(const at::Tensor& t) { return t.sigmoid(); }
at::Tensor bits(const at::Tensor& t) { return t.gt(0).to(at::kFloat); }
at::Tensor counts(const at::Tensor& t) { return t.abs().mul(3).floor(); }
at::Tensor distribution(const at::Tensor& t) { return t.softmax(1); }
/// Classes of each row, ended by -1.
at::Tensor class_lists(const at::Tensor& t) {
  auto out = t.mul(0).to(at::kLong).sub(1);
  out.select(1, 0).copy_(t.select(1, 0).gt(0));
  out.select(1, 1).copy_(t.select(1, 1).gt(0).to(at::kLong) + 2);
  return out;
}

MakeBatch triples(std::vector<std::int64_t> sizes) {
  return [=](std::uint64_t seed) -> Inputs { return {normal(sizes, seed), normal(sizes, seed + 100), normal(sizes, seed + 200)}; };
}
MakeBatch ranked(std::vector<std::int64_t> sizes, std::vector<std::int64_t> sign_sizes) {
  return [=](std::uint64_t seed) -> Inputs {
    return {normal(sizes, seed), normal(sizes, seed + 100), normal(sign_sizes, seed + 200).sign()};
  };
}
MakeBatch sequences(std::int64_t time, std::int64_t rows, std::int64_t length) {
  return [=](std::uint64_t seed) -> Inputs {
    return {normal({time, rows, 5}, seed), labels({rows, length}, 4, seed) + 1, torch::full({rows}, time, at::kLong),
            torch::full({rows}, length, at::kLong)};
  };
}
const auto ctc = [](auto& m, const Inputs& in) { return m.forward(in[0].log_softmax(2), in[1], in[2], in[3]); };
const auto adaptive = [](auto& m, const Inputs& in) -> Inputs { return {m.forward(in[0], in[1]).output.neg().mean()}; };
}  // namespace

LayerCases loss_cases() {
  const auto pair = batch({4, 6}, {4, 6}), odd_pair = batch({1, 7, 3}, {1, 7, 3});
  return {
      {"L1Loss", [] { return calls(nn::L1Loss(), two); }, pair, odd_pair,
       [] { return calls(nn::L1Loss(nn::L1LossOptions(torch::kSum)), two); }},
      {"MSELoss", [] { return calls(nn::MSELoss(), two); }, pair, odd_pair,
       [] { return calls(nn::MSELoss(nn::MSELossOptions(torch::kNone)), two); }},
      {"SmoothL1Loss", [] { return calls(nn::SmoothL1Loss(), two); }, pair, odd_pair,
       [] { return calls(nn::SmoothL1Loss(nn::SmoothL1LossOptions(torch::kSum).beta(0.3)), two); }},
      {"HuberLoss", [] { return calls(nn::HuberLoss(), two); }, pair, odd_pair,
       [] { return calls(nn::HuberLoss(nn::HuberLossOptions(torch::kSum).delta(0.3)), two); }},
      {"CrossEntropyLoss", [] { return calls(nn::CrossEntropyLoss(), two); }, labelled({5, 6}, {5}, 6),
       target({2, 3, 7}, {2, 3, 7}, distribution),
       [] {
         return calls(nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().label_smoothing(0.1).weight(torch::tensor({1.f, 2.f, 0.5f}))),
                      two);
       }},
      {"NLLLoss", [] { return calls(nn::NLLLoss(), of_log_probabilities); }, labelled({5, 6}, {5}, 6), labelled({2, 3, 7, 1}, {2, 7, 1}, 3),
       [] {
         return calls(nn::NLLLoss(nn::NLLLossOptions().ignore_index(1).weight(torch::tensor({1.f, 2.f, 0.5f}))), of_log_probabilities);
       }},
      {"KLDivLoss", [] { return calls(nn::KLDivLoss(nn::KLDivLossOptions(torch::kBatchMean)), of_log_probabilities); },
       target({4, 6}, {4, 6}, distribution), target({1, 7, 3}, {1, 7, 3}, [](const at::Tensor& t) { return t.log_softmax(1); }),
       [] { return calls(nn::KLDivLoss(nn::KLDivLossOptions(torch::kSum).log_target(true)), of_log_probabilities); }},
      {"BCELoss", [] { return calls(nn::BCELoss(), of_probabilities); }, target({4, 6}, {4, 6}, chances),
       target({1, 7, 3}, {1, 7, 3}, bits),
       [] {
         return calls(nn::BCELoss(nn::BCELossOptions().reduction(torch::kSum).weight(torch::tensor({1.f, 2.f, 0.5f}))), of_probabilities);
       }},
      {"BCEWithLogitsLoss", [] { return calls(nn::BCEWithLogitsLoss(), two); }, target({4, 6}, {4, 6}, chances),
       target({1, 7, 3}, {1, 7, 3}, bits),
       [] {
         return calls(nn::BCEWithLogitsLoss(nn::BCEWithLogitsLossOptions().pos_weight(torch::tensor({1.f, 2.f, 0.5f}))), two);
       }},
      {"HingeEmbeddingLoss", [] { return calls(nn::HingeEmbeddingLoss(), two); }, target({4, 6}, {4, 6}, signs),
       target({1, 7, 3}, {1, 7, 3}, signs)},
      {"MultiMarginLoss", [] { return calls(nn::MultiMarginLoss(), two); }, labelled({5, 6}, {5}, 6), labelled({1, 7}, {1}, 7),
       [] { return calls(nn::MultiMarginLoss(nn::MultiMarginLossOptions().p(2).margin(0.5)), two); }},
      {"CosineEmbeddingLoss", [] { return calls(nn::CosineEmbeddingLoss(), three); }, ranked({4, 6}, {4}), ranked({1, 7}, {1}),
       [] { return calls(nn::CosineEmbeddingLoss(nn::CosineEmbeddingLossOptions().margin(0.2)), three); }},
      {"MultiLabelMarginLoss", [] { return calls(nn::MultiLabelMarginLoss(), two); }, target({4, 6}, {4, 6}, class_lists),
       target({1, 5}, {1, 5}, class_lists)},
      {"MultiLabelSoftMarginLoss", [] { return calls(nn::MultiLabelSoftMarginLoss(), two); }, target({4, 6}, {4, 6}, bits),
       target({1, 7}, {1, 7}, bits)},
      {"SoftMarginLoss", [] { return calls(nn::SoftMarginLoss(), two); }, target({4, 6}, {4, 6}, signs),
       target({1, 7, 3}, {1, 7, 3}, signs)},
      {"TripletMarginLoss", [] { return calls(nn::TripletMarginLoss(), three); }, triples({4, 6}), triples({1, 7}),
       [] { return calls(nn::TripletMarginLoss(nn::TripletMarginLossOptions().swap(true).p(1)), three); }},
      {"TripletMarginWithDistanceLoss", [] { return calls(nn::TripletMarginWithDistanceLoss(), three); }, triples({4, 6}), triples({1, 7}),
       [] {
         return calls(nn::TripletMarginWithDistanceLoss(nn::TripletMarginWithDistanceLossOptions().distance_function(
                          [](const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().amax(1); })),
                      three);
       }},
      {"MarginRankingLoss", [] { return calls(nn::MarginRankingLoss(), three); }, ranked({6}, {6}), ranked({1, 7}, {1, 7}),
       [] { return calls(nn::MarginRankingLoss(nn::MarginRankingLossOptions().margin(0.5)), three); }},
      {"PoissonNLLLoss", [] { return calls(nn::PoissonNLLLoss(), two); }, target({4, 6}, {4, 6}, counts),
       target({1, 7, 3}, {1, 7, 3}, counts), [] { return calls(nn::PoissonNLLLoss(nn::PoissonNLLLossOptions().full(true)), two); }},
      {"CTCLoss", [] { return calls(nn::CTCLoss(), ctc); }, sequences(7, 3, 2), sequences(5, 1, 1),
       [] { return calls(nn::CTCLoss(nn::CTCLossOptions().reduction(torch::kSum).zero_infinity(true)), ctc); }},
      stays_eager(
          "depend on its operands' values|two recordings of this step do not agree|two recordings of this call do not agree",
          {"AdaptiveLogSoftmaxWithLoss",
           [] {
             return calls(nn::AdaptiveLogSoftmaxWithLoss(nn::AdaptiveLogSoftmaxWithLossOptions(6, 9, {3, 6}).div_value(2)), adaptive);
           },
           labelled({8, 6}, {8}, 9), labelled({3, 6}, {3}, 9)}),
  };
}

}  // namespace tandem::test
