// Padding layers.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

LayerCases padding_cases() {
  const auto line = batch({2, 3, 6}), odd_line = batch({1, 1, 5}), image = batch({2, 3, 4, 4}), odd_image = batch({1, 1, 3, 5}),
             block = batch({2, 2, 3, 3, 3}), odd_block = batch({1, 1, 3, 5, 4});
  return {
      {"ZeroPad1d",
       [] {
         return of(nn::ZeroPad1d(nn::ZeroPad1dOptions({1, 2})));
       },
       line, odd_line},
      {"ZeroPad2d",
       [] {
         return of(nn::ZeroPad2d(nn::ZeroPad2dOptions({1, 2, 0, 1})));
       },
       image, odd_image,
       [] {
         return of(nn::ZeroPad2d(nn::ZeroPad2dOptions({-1, 0, 1, -1})));
       }},
      {"ZeroPad3d",
       [] {
         return of(nn::ZeroPad3d(nn::ZeroPad3dOptions({1, 2, 0, 1, 1, 0})));
       },
       block, odd_block},
      {"ConstantPad1d",
       [] {
         return of(nn::ConstantPad1d(nn::ConstantPad1dOptions({1, 2}, 3.5)));
       },
       line, odd_line},
      {"ConstantPad2d",
       [] {
         return of(nn::ConstantPad2d(nn::ConstantPad2dOptions({1, 2, 0, 1}, 3.5)));
       },
       image, odd_image},
      {"ConstantPad3d",
       [] {
         return of(nn::ConstantPad3d(nn::ConstantPad3dOptions({1, 2, 0, 1, 1, 0}, 3.5)));
       },
       block, odd_block},
      {"ReflectionPad1d",
       [] {
         return of(nn::ReflectionPad1d(nn::ReflectionPad1dOptions({1, 2})));
       },
       line, odd_line},
      {"ReflectionPad2d",
       [] {
         return of(nn::ReflectionPad2d(nn::ReflectionPad2dOptions({1, 2, 0, 1})));
       },
       image, odd_image},
      {"ReflectionPad3d",
       [] {
         return of(nn::ReflectionPad3d(nn::ReflectionPad3dOptions({1, 2, 0, 1, 1, 0})));
       },
       block, odd_block},
      {"ReplicationPad1d",
       [] {
         return of(nn::ReplicationPad1d(nn::ReplicationPad1dOptions({1, 2})));
       },
       line, odd_line},
      {"ReplicationPad2d",
       [] {
         return of(nn::ReplicationPad2d(nn::ReplicationPad2dOptions({1, 2, 0, 1})));
       },
       image, odd_image},
      {"ReplicationPad3d",
       [] {
         return of(nn::ReplicationPad3d(nn::ReplicationPad3dOptions({1, 2, 0, 1, 1, 0})));
       },
       block, odd_block},
  };
}

}  // namespace tandem::test
