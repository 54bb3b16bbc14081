// Linear layers, layers that only change shapes, distances.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

LayerCases linear_cases() {
  const auto two = [](auto& m, const Inputs& in) { return m.forward(in[0], in[1]); };
  return {
      {"Linear", [] { return of(nn::Linear(6, 4)); }, batch({5, 6}), batch({1, 3, 7}),
       [] { return of(nn::Linear(nn::LinearOptions(7, 1).bias(false))); }},
      {"Bilinear", [=] { return calls(nn::Bilinear(4, 3, 5), two); }, batch({6, 4}, {6, 3}), batch({2, 1, 4}, {2, 1, 3})},
      {"Identity", [] { return of(nn::Identity()); }, batch({4, 3}), batch({1, 7, 5})},
      {"Flatten", [] { return of(nn::Flatten()); }, batch({4, 3, 2}), batch({1, 7, 1, 5})},
      {"Unflatten",
       [] {
         return of(nn::Unflatten(nn::UnflattenOptions(1, {3, 2})));
       },
       batch({4, 6}), batch({1, 6, 5})},
      {"Fold",
       [] {
         return of(nn::Fold(nn::FoldOptions({4, 5}, {2, 2})));
       },
       batch({2, 12, 12}), batch({1, 4, 12})},
      {"Unfold",
       [] {
         return of(nn::Unfold(nn::UnfoldOptions({2, 3}).padding({1, 0}).stride({2, 1})));
       },
       batch({2, 3, 4, 6}), batch({1, 1, 5, 7})},
      {"PixelShuffle", [] { return of(nn::PixelShuffle(2)); }, batch({2, 8, 3, 3}), batch({1, 4, 1, 5})},
      {"PixelUnshuffle", [] { return of(nn::PixelUnshuffle(2)); }, batch({2, 2, 4, 6}), batch({1, 1, 2, 10})},
      {"Upsample (nearest)",
       [] {
         return of(nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2})));
       },
       batch({2, 3, 4, 4}), batch({1, 1, 3, 5})},
      {"Upsample (linear)",
       [] { return of(nn::Upsample(nn::UpsampleOptions().size(std::vector<std::int64_t>{9}).mode(torch::kLinear).align_corners(false))); },
       batch({2, 3, 4}), batch({1, 1, 7})},
      {"Upsample (bilinear)",
       [] {
         return of(nn::Upsample(nn::UpsampleOptions().size(std::vector<std::int64_t>{7, 5}).mode(torch::kBilinear).align_corners(true)));
       },
       batch({2, 3, 4, 4}), batch({1, 1, 3, 5})},
      {"Upsample (bicubic)",
       [] {
         return of(nn::Upsample(nn::UpsampleOptions().size(std::vector<std::int64_t>{7, 5}).mode(torch::kBicubic).align_corners(false)));
       },
       batch({2, 3, 4, 4}), batch({1, 1, 3, 5})},
      {"Upsample (trilinear)",
       [] {
         return of(
             nn::Upsample(nn::UpsampleOptions().size(std::vector<std::int64_t>{3, 4, 5}).mode(torch::kTrilinear).align_corners(false)));
       },
       batch({2, 2, 2, 3, 3}), batch({1, 1, 5, 3, 2})},
      {"CosineSimilarity", [=] { return calls(nn::CosineSimilarity(nn::CosineSimilarityOptions().dim(1)), two); }, batch({4, 6}, {4, 6}),
       batch({1, 7, 3}, {1, 7, 3})},
      {"PairwiseDistance", [=] { return calls(nn::PairwiseDistance(nn::PairwiseDistanceOptions().p(2)), two); }, batch({4, 6}, {4, 6}),
       batch({1, 7}, {1, 7}), [=] { return calls(nn::PairwiseDistance(nn::PairwiseDistanceOptions().p(1).keepdim(true)), two); }},
  };
}

}  // namespace tandem::test
