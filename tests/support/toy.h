// Small models with their losses and batches.
#pragma once

#include "tests/support/bugbank.h"

#include <cmath>
#include <functional>

namespace tandem::test {

using Loss = std::function<Inputs(const at::Tensor& x, const at::Tensor& y)>;
using Toy = Trainer<Loss>;
using MakeToy = std::function<Toy()>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

inline std::unique_ptr<torch::optim::Optimizer> momentum_sgd(std::vector<at::Tensor> p) { return sgd(std::move(p), 0.05, 0.9); }

/// Linear, tanh, batch norm, ReLU, dropout, linear. Without the tanh the first bias would have a gradient of mere rounding, which Adam amplifies.
struct MlpNet : torch::nn::Module {
  MlpNet() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("drop", drop);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) { return last(drop(torch::relu(norm(torch::tanh(first(x.to(at::kFloat))))))); }
  torch::nn::Linear first{6, 8}, last{8, 4};
  torch::nn::BatchNorm1d norm{8};
  torch::nn::Dropout drop{0.25};
};

/// One pre-norm causal self-attention block with a residual connection and a head, on [rows, 3, 4].
struct AttentionNet : torch::nn::Module {
  AttentionNet() {
    register_module("norm", norm);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("head", head);
    mask = register_buffer("mask", torch::ones({3, 3}).tril().eq(0));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = qkv(norm(x)).chunk(3, -1);
    const auto scores = parts[0].matmul(parts[1].transpose(1, 2)) / 2.0;
    const auto weights = torch::dropout(torch::softmax(scores.masked_fill(mask, -INFINITY), -1), 0.2, is_training());
    return head(x + out(weights.matmul(parts[2])));
  }
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({4})};
  torch::nn::Linear qkv{4, 12}, out{4, 4}, head{4, 5};
  at::Tensor mask;
};

/// Makes a toy of a net and a loss that is called with the net, x and y.
template <class Net, class F>
Toy make_toy(const MakeOptimizer& optimizer, F loss) {
  torch::manual_seed(11);
  auto net = std::make_shared<Net>();
  auto parameters = net->parameters();
  return {net, optimizer(std::move(parameters)),
          [n = net.get(), loss](const at::Tensor& x, const at::Tensor& y) -> Inputs { return detail::as_list(loss(*n, x, y)); }};
}

/// Cross entropy of the MLP; its scores are the further output.
inline Toy mlp(const MakeOptimizer& optimizer = momentum_sgd) {
  return make_toy<MlpNet>(optimizer, [](MlpNet& net, const at::Tensor& x, const at::Tensor& y) {
    const auto scores = net.forward(x);
    return std::tuple(torch::cross_entropy_loss(scores, y.to(at::kLong)), scores);
  });
}

inline Toy attention(const MakeOptimizer& optimizer = momentum_sgd) {
  return make_toy<AttentionNet>(optimizer, [](AttentionNet& net, const at::Tensor& x, const at::Tensor& y) {
    return torch::cross_entropy_loss(net.forward(x).flatten(0, 1), y.flatten());
  });
}

/// The MLP with another loss, which is called with the net, x and y.
template <class F>
MakeToy mlp_with(F loss, const MakeOptimizer& optimizer = momentum_sgd) {
  return [=] { return make_toy<MlpNet>(optimizer, loss); };
}

/// Normal numbers that do not move the default generator.
inline at::Tensor normal(at::IntArrayRef sizes, std::uint64_t seed) { return torch::randn(sizes, at::detail::createCPUGenerator(seed)); }
inline at::Tensor labels(at::IntArrayRef sizes, std::int64_t classes, std::uint64_t seed) {
  return torch::randint(0, classes, sizes, at::detail::createCPUGenerator(seed), at::kLong);
}
inline Inputs mlp_batch(std::uint64_t seed, std::int64_t rows = 5) { return {normal({rows, 6}, seed), labels({rows}, 4, seed)}; }
inline Inputs attention_batch(std::uint64_t seed) { return {normal({2, 3, 4}, seed), labels({2, 3}, 5, seed)}; }

}  // namespace tandem::test
