// Dropout of all kinds.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

LayerCases dropout_cases() {
  const auto small = batch({4, 6}), odd = batch({1, 7, 5});
  return {
      {"Dropout", [] { return of(nn::Dropout(0.4)); }, small, odd, [] { return of(nn::Dropout(nn::DropoutOptions(0.5).inplace(true))); }},
      {"Dropout2d", [] { return of(nn::Dropout2d(0.4)); }, batch({2, 5, 3, 3}), batch({1, 7, 1, 5})},
      {"Dropout3d", [] { return of(nn::Dropout3d(0.4)); }, batch({2, 5, 2, 3, 3}), batch({1, 7, 1, 5, 3})},
      {"AlphaDropout", [] { return of(nn::AlphaDropout(0.4)); }, small, odd},
      {"FeatureAlphaDropout", [] { return of(nn::FeatureAlphaDropout(0.4)); }, batch({2, 5, 3, 3}), batch({1, 7, 1, 5})},
  };
}

}  // namespace tandem::test
