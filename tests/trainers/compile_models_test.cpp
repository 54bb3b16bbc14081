// Small models trained through compile(): outputs, gradients, buffers, generator and version counters as eager's.
#include "tests/trainers/compile_twins.h"

namespace tandem {
namespace {

using test::CallTwins;
using test::Inputs;
using test::normal;

struct Mlp : torch::nn::Module {
  Mlp() {
    register_module("first", first);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::relu(first(x))); }
  torch::nn::Linear first{6, 8}, last{8, 4};
};

struct ConvNet : torch::nn::Module {
  ConvNet() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("last", last);
    register_module("drop", drop);
  }
  at::Tensor forward(const at::Tensor& x) { return last(drop(torch::max_pool2d(torch::relu(norm(conv(x))), 2).flatten(1))); }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(2, 4, 3).padding(1)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Dropout drop{0.25};
  torch::nn::Linear last{16, 3};
};

using Block = test::AttentionNet;

template <class Net>
void train(const at::IntArrayRef& sizes, bool input_gradient) {
  CallTwins<Net> twins;
  int compiled = 0;
  for (std::uint64_t i = 1; i <= 7; i++) {
    twins.call({normal(sizes, i).requires_grad_(input_gradient)});
    compiled += twins.was_compiled();
    twins.update();
  }
  EXPECT_GE(compiled, 3) << twins.report().to_string();
  EXPECT_TRUE(twins.report().active) << twins.report().to_string();
}

TEST(CompileModels, AMultiLayerPerceptron) { train<Mlp>({5, 6}, false); }
TEST(CompileModels, WithTheGradientOfItsInput) { train<Mlp>({5, 6}, true); }
TEST(CompileModels, AConvolutionalNetWithBatchNormAndDropout) { train<ConvNet>({3, 2, 4, 4}, true); }
TEST(CompileModels, AnAttentionBlock) { train<Block>({2, 3, 4}, true); }

}  // namespace
}  // namespace tandem
