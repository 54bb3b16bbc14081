// Activations.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

LayerCases activation_cases() {
  const auto small = batch({4, 6}), odd = batch({1, 7, 5});
  return {
      {"ELU", [] { return of(nn::ELU(nn::ELUOptions().alpha(0.7))); }, small, odd,
       [] { return of(nn::ELU(nn::ELUOptions().inplace(true))); }},
      {"SELU", [] { return of(nn::SELU()); }, small, odd},
      {"CELU", [] { return of(nn::CELU(nn::CELUOptions().alpha(1.3))); }, small, odd},
      {"Hardshrink", [] { return of(nn::Hardshrink(0.3)); }, small, odd},
      {"Hardtanh", [] { return of(nn::Hardtanh(nn::HardtanhOptions().min_val(-0.4).max_val(0.8))); }, small, odd},
      {"LeakyReLU", [] { return of(nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2))); }, small, odd,
       [] { return of(nn::LeakyReLU(nn::LeakyReLUOptions().inplace(true))); }},
      {"LogSigmoid", [] { return of(nn::LogSigmoid()); }, small, odd},
      {"Softmax", [] { return of(nn::Softmax(1)); }, small, odd},
      {"Softmin", [] { return of(nn::Softmin(1)); }, small, odd},
      {"LogSoftmax", [] { return of(nn::LogSoftmax(1)); }, small, odd},
      {"Softmax2d", [] { return of(nn::Softmax2d()); }, batch({2, 4, 3, 3}), batch({1, 7, 1, 5})},
      {"PReLU", [] { return of(nn::PReLU()); }, small, odd, [] { return of(nn::PReLU(nn::PReLUOptions().num_parameters(7).init(0.1))); }},
      {"ReLU", [] { return of(nn::ReLU()); }, small, odd, [] { return of(nn::ReLU(nn::ReLUOptions().inplace(true))); }},
      {"ReLU6", [] { return of(nn::ReLU6()); }, small, odd},
      {"RReLU", [] { return of(nn::RReLU()); }, small, odd},
      {"GLU", [] { return of(nn::GLU(1)); }, small, batch({1, 2, 5})},
      {"GELU", [] { return of(nn::GELU()); }, small, odd, [] { return of(nn::GELU(nn::GELUOptions().approximate("tanh"))); }},
      {"SiLU", [] { return of(nn::SiLU()); }, small, odd},
      {"Mish", [] { return of(nn::Mish()); }, small, odd},
      {"Sigmoid", [] { return of(nn::Sigmoid()); }, small, odd},
      {"Softplus", [] { return of(nn::Softplus(nn::SoftplusOptions().beta(2).threshold(1.5))); }, small, odd},
      {"Softshrink", [] { return of(nn::Softshrink(0.3)); }, small, odd},
      {"Softsign", [] { return of(nn::Softsign()); }, small, odd},
      {"Tanh", [] { return of(nn::Tanh()); }, small, odd},
      {"Tanhshrink", [] { return of(nn::Tanhshrink()); }, small, odd},
      {"Threshold", [] { return of(nn::Threshold(0.2, 5)); }, small, odd},
  };
}

}  // namespace tandem::test
