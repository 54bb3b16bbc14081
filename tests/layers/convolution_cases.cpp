// Convolutions and transposed convolutions.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

namespace {
/// Images whose memory is in channels_last order.
MakeBatch channels_last(std::vector<std::int64_t> sizes) {
  return [sizes](std::uint64_t seed) -> Inputs { return {normal(sizes, seed).contiguous(at::MemoryFormat::ChannelsLast)}; };
}
}  // namespace

LayerCases convolution_cases() {
  return {
      {"Conv1d", [] { return of(nn::Conv1d(nn::Conv1dOptions(3, 4, 3).padding(1))); }, batch({2, 3, 8}), batch({1, 3, 11}),
       [] { return of(nn::Conv1d(nn::Conv1dOptions(3, 6, 2).stride(2).groups(3).bias(false))); }},
      {"Conv2d", [] { return of(nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1))); }, batch({2, 3, 6, 6}), channels_last({1, 4, 7, 5}),
       [] {
         return of(
             nn::Conv2d(nn::Conv2dOptions(4, 2, {3, 2}).dilation({2, 1}).groups(2).padding(torch::kSame).padding_mode(torch::kReflect)));
       }},
      {"Conv3d", [] { return of(nn::Conv3d(nn::Conv3dOptions(2, 3, 3).padding(1))); }, batch({2, 2, 4, 4, 4}), batch({1, 2, 5, 3, 4}),
       [] {
         return of(nn::Conv3d(nn::Conv3dOptions(2, 1, {1, 2, 3}).stride({2, 1, 1})));
       }},
      {"ConvTranspose1d", [] { return of(nn::ConvTranspose1d(nn::ConvTranspose1dOptions(3, 4, 3))); }, batch({2, 3, 5}), batch({1, 3, 7}),
       [] { return of(nn::ConvTranspose1d(nn::ConvTranspose1dOptions(3, 6, 4).stride(2).output_padding(1).groups(3))); }},
      {"ConvTranspose2d", [] { return of(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 4, 3))); }, batch({2, 3, 5, 5}),
       batch({1, 3, 3, 7}),
       [] {
         return of(nn::ConvTranspose2d(nn::ConvTranspose2dOptions(3, 2, {2, 3}).stride(2).padding(1).bias(false)));
       }},
      {"ConvTranspose3d", [] { return of(nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2, 3, 2))); }, batch({2, 2, 3, 3, 3}),
       batch({1, 2, 1, 3, 5}),
       [] {
         return of(nn::ConvTranspose3d(nn::ConvTranspose3dOptions(2, 2, {1, 2, 3}).stride({2, 1, 1})));
       }},
  };
}

}  // namespace tandem::test
