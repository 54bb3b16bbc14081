// Pooling of all kinds.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

namespace {
/// Pools, then puts the values back where they were.
template <class Pool, class Unpool>
Layer unpooling(Pool pool, Unpool unpool) {
  return calls(pool, [unpool = unpool.ptr()](auto& m, const Inputs& in) {
    const auto [values, indices] = m.forward_with_indices(in[0]);
    return unpool->forward(values, indices);
  });
}
const auto with_indices = [](auto& m, const Inputs& in) -> Inputs {
  const auto [values, indices] = m.forward_with_indices(in[0]);
  return {values, indices};
};
}  // namespace

LayerCases pooling_cases() {
  const auto line = batch({2, 3, 8}), odd_line = batch({1, 1, 7}), image = batch({2, 3, 6, 6}), odd_image = batch({1, 1, 5, 7}),
             block = batch({2, 2, 4, 4, 4}), odd_block = batch({1, 1, 3, 5, 4});
  return {
      {"MaxPool1d", [] { return of(nn::MaxPool1d(2)); }, line, odd_line,
       [] { return of(nn::MaxPool1d(nn::MaxPool1dOptions(3).stride(2).padding(1))); }},
      {"MaxPool2d", [] { return of(nn::MaxPool2d(2)); }, image, odd_image,
       [] { return calls(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(1).dilation(2).ceil_mode(true)), with_indices); }},
      {"MaxPool3d", [] { return of(nn::MaxPool3d(2)); }, block, odd_block,
       [] {
         return of(nn::MaxPool3d(nn::MaxPool3dOptions({1, 2, 2}).ceil_mode(true)));
       }},
      {"MaxUnpool1d", [] { return unpooling(nn::MaxPool1d(2), nn::MaxUnpool1d(2)); }, line, odd_line},
      {"MaxUnpool2d", [] { return unpooling(nn::MaxPool2d(2), nn::MaxUnpool2d(2)); }, image, batch({1, 1, 2, 10})},
      {"MaxUnpool3d", [] { return unpooling(nn::MaxPool3d(2), nn::MaxUnpool3d(2)); }, block, batch({1, 1, 2, 6, 4})},
      {"AvgPool1d", [] { return of(nn::AvgPool1d(2)); }, line, odd_line,
       [] { return of(nn::AvgPool1d(nn::AvgPool1dOptions(3).padding(1).count_include_pad(false))); }},
      {"AvgPool2d", [] { return of(nn::AvgPool2d(2)); }, image, odd_image,
       [] { return of(nn::AvgPool2d(nn::AvgPool2dOptions(3).stride(2).padding(1).ceil_mode(true).divisor_override(5))); }},
      {"AvgPool3d", [] { return of(nn::AvgPool3d(2)); }, block, odd_block},
      {"AdaptiveMaxPool1d", [] { return of(nn::AdaptiveMaxPool1d(3)); }, line, odd_line},
      {"AdaptiveMaxPool2d",
       [] {
         return of(nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({3, 2})));
       },
       image, odd_image},
      {"AdaptiveMaxPool3d",
       [] {
         return of(nn::AdaptiveMaxPool3d(nn::AdaptiveMaxPool3dOptions({2, 3, 2})));
       },
       block, odd_block},
      {"AdaptiveAvgPool1d", [] { return of(nn::AdaptiveAvgPool1d(3)); }, line, odd_line},
      {"AdaptiveAvgPool2d",
       [] {
         return of(nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, 2})));
       },
       image, odd_image},
      {"AdaptiveAvgPool3d",
       [] {
         return of(nn::AdaptiveAvgPool3d(nn::AdaptiveAvgPool3dOptions({2, 3, 2})));
       },
       block, odd_block},
      {"FractionalMaxPool2d", [] { return of(nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(3))); }, image,
       odd_image},
      {"FractionalMaxPool3d", [] { return of(nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(2).output_size(2))); }, block,
       batch({1, 1, 5, 7, 4})},
      {"LPPool1d", [] { return of(nn::LPPool1d(nn::LPPool1dOptions(2, 2))); }, line, odd_line},
      {"LPPool2d", [] { return of(nn::LPPool2d(nn::LPPool2dOptions(2, 2))); }, image, odd_image},
      {"LPPool3d", [] { return of(nn::LPPool3d(nn::LPPool3dOptions(2, 2))); }, block, odd_block},
  };
}

}  // namespace tandem::test
