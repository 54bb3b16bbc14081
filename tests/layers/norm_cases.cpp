// Normalisations.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

LayerCases norm_cases() {
  return {
      {"BatchNorm1d", [] { return of(nn::BatchNorm1d(5)); }, batch({6, 5}), batch({3, 5, 7}),
       [] { return of(nn::BatchNorm1d(nn::BatchNorm1dOptions(5).affine(false).momentum(0.3))); }},
      {"BatchNorm1d (cumulative)", [] { return of(nn::BatchNorm1d(nn::BatchNorm1dOptions(5).momentum(std::nullopt))); }, batch({6, 5}),
       batch({3, 5, 7})},
      {"BatchNorm2d", [] { return of(nn::BatchNorm2d(3)); }, batch({4, 3, 4, 4}), batch({1, 3, 5, 7}),
       [] { return of(nn::BatchNorm2d(nn::BatchNorm2dOptions(3).track_running_stats(false))); }},
      {"BatchNorm3d", [] { return of(nn::BatchNorm3d(3)); }, batch({2, 3, 2, 4, 3}), batch({1, 3, 1, 5, 7})},
      {"InstanceNorm1d", [] { return of(nn::InstanceNorm1d(3)); }, batch({4, 3, 6}), batch({1, 3, 7}),
       [] { return of(nn::InstanceNorm1d(nn::InstanceNorm1dOptions(3).affine(true).track_running_stats(true))); }},
      {"InstanceNorm2d", [] { return of(nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true))); }, batch({2, 3, 4, 4}),
       batch({1, 3, 5, 7})},
      {"InstanceNorm3d", [] { return of(nn::InstanceNorm3d(nn::InstanceNorm3dOptions(3).affine(true))); }, batch({2, 3, 2, 4, 3}),
       batch({1, 3, 1, 5, 7})},
      {"LayerNorm", [] { return of(nn::LayerNorm(nn::LayerNormOptions({8}))); }, batch({4, 8}), batch({2, 1, 3, 7}),
       [] {
         return of(nn::LayerNorm(nn::LayerNormOptions({3, 7})));
       }},
      {"GroupNorm", [] { return of(nn::GroupNorm(2, 6)); }, batch({3, 6, 4}), batch({1, 6, 3, 5}),
       [] { return of(nn::GroupNorm(nn::GroupNormOptions(3, 6).affine(false))); }},
      {"LocalResponseNorm", [] { return of(nn::LocalResponseNorm(2)); }, batch({2, 5, 4, 4}), batch({1, 7, 3}),
       [] { return of(nn::LocalResponseNorm(nn::LocalResponseNormOptions(3).k(2))); }},
      eager_behind_compile("autograd::Function",
                           {"CrossMapLRN2d", [] { return of(nn::CrossMapLRN2d(3)); }, batch({2, 5, 4, 4}), batch({1, 7, 3, 2})}),
  };
}

}  // namespace tandem::test
