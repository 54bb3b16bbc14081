#include "tests/fuzz/layers.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>

#include <stdexcept>

namespace tandem::fuzz {
namespace {

namespace nn = torch::nn;
using Ints = std::vector<std::int64_t>;

Tensors as_list(at::Tensor t) { return {std::move(t)}; }
Tensors as_list(std::tuple<at::Tensor, at::Tensor> t) { return {std::get<0>(t), std::get<1>(t)}; }
Tensors as_list(std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>> t) {
  return {std::get<0>(t), std::get<0>(std::get<1>(t)), std::get<1>(std::get<1>(t))};
}

template <class Holder>
MadeLayer of(Holder layer) {
  return {layer.ptr(), [layer](const Tensors& in) mutable { return as_list(layer(in.at(0))); }};
}

bool suits(const at::Tensor& t, std::int64_t low, std::int64_t high) {
  return t.scalar_type() == at::kFloat && t.dim() >= low && t.dim() <= high && t.numel() > 0;
}
Ints channels(const at::Tensor& t, Random& r, std::int64_t low, std::int64_t high) {
  return suits(t, low, high) ? Ints{t.size(1), r.below(2), r.below(2)} : Ints{};
}
Ints kernel(const at::Tensor& t, Random& r, std::int64_t rank) {
  return suits(t, rank, rank) ? Ints{r.between(1, std::min<std::int64_t>(3, t.size(-1))), r.between(1, 2)} : Ints{};
}
Ints filter(const at::Tensor& t, Random& r, std::int64_t rank) {
  if (!suits(t, rank, rank)) return {};
  return {t.size(1), r.between(1, 4), r.between(1, std::min<std::int64_t>(3, t.size(-1))), r.between(1, 2), r.below(2), r.below(2)};
}
template <class Conv, class Settings>
MadeLayer convolution(const Ints& a) {
  return of(Conv(Settings(a[0], a[1], a[2]).stride(a[3]).padding(a[4]).bias(a[5])));
}
Ints recurrent(const at::Tensor& t, Random& r, std::int64_t rank) {
  return suits(t, rank, rank) ? Ints{t.size(-1), r.between(1, 4), r.below(2)} : Ints{};
}
template <class Recurrent, class Settings>
MadeLayer sequence(const Ints& a) {
  return of(Recurrent(Settings(a[0], a[1]).batch_first(a[2])));
}
Ints heads(const at::Tensor& t, Random& r) { return suits(t, 3, 3) ? Ints{t.size(-1), t.size(-1) % 2 ? 1 : r.between(1, 2)} : Ints{}; }

std::vector<LayerKind> make_kinds() {
  std::vector<LayerKind> k;
  k.push_back({"Linear", 1, 1,
               [](auto& t, auto& r) {
                 return suits(t, 1, 4) ? Ints{t.size(-1), r.between(1, 6), r.below(2)} : Ints{};
               },
               [](auto& a) { return of(nn::Linear(nn::LinearOptions(a[0], a[1]).bias(a[2]))); }});
  k.push_back({"Bilinear", 2, 1,
               [](auto& t, auto& r) {
                 return suits(t, 2, 3) ? Ints{t.size(-1), t.size(-1), r.between(1, 4)} : Ints{};
               },
               [](auto& a) {
                 nn::Bilinear layer(nn::BilinearOptions(a[0], a[1], a[2]));
                 return MadeLayer{layer.ptr(), [layer](auto& in) mutable { return Tensors{layer(in.at(0), in.at(1))}; }};
               }});
  k.push_back({"Conv1d", 1, 1, [](auto& t, auto& r) { return filter(t, r, 3); }, convolution<nn::Conv1d, nn::Conv1dOptions>});
  k.push_back({"Conv2d", 1, 1, [](auto& t, auto& r) { return filter(t, r, 4); }, convolution<nn::Conv2d, nn::Conv2dOptions>});
  k.push_back({"ConvTranspose1d", 1, 1, [](auto& t, auto& r) { return filter(t, r, 3); },
               convolution<nn::ConvTranspose1d, nn::ConvTranspose1dOptions>});
  k.push_back({"BatchNorm1d", 1, 1, [](auto& t, auto& r) { return channels(t, r, 2, 3); },
               [](auto& a) { return of(nn::BatchNorm1d(nn::BatchNorm1dOptions(a[0]).affine(a[1]).track_running_stats(a[2]))); }});
  k.push_back({"BatchNorm2d", 1, 1, [](auto& t, auto& r) { return channels(t, r, 4, 4); },
               [](auto& a) { return of(nn::BatchNorm2d(nn::BatchNorm2dOptions(a[0]).affine(a[1]).track_running_stats(a[2]))); }});
  k.push_back({"InstanceNorm1d", 1, 1, [](auto& t, auto& r) { return channels(t, r, 3, 3); },
               [](auto& a) { return of(nn::InstanceNorm1d(nn::InstanceNorm1dOptions(a[0]).affine(a[1]).track_running_stats(a[2]))); }});
  k.push_back({"LayerNorm", 1, 1,
               [](auto& t, auto& r) {
                 if (!suits(t, 2, 4)) return Ints{};
                 const auto n = r.between(1, t.dim() - 1);
                 return t.sizes().slice(std::size_t(t.dim() - n)).vec();
               },
               [](auto& a) { return of(nn::LayerNorm(nn::LayerNormOptions(a))); }});
  k.push_back({"GroupNorm", 1, 1,
               [](auto& t, auto& r) {
                 return suits(t, 2, 4) ? Ints{t.size(1) % 2 ? 1 : r.between(1, 2), t.size(1)} : Ints{};
               },
               [](auto& a) { return of(nn::GroupNorm(nn::GroupNormOptions(a[0], a[1]))); }});
  k.push_back({"Embedding", 1, 1,
               [](auto& t, auto& r) {
                 return t.scalar_type() == at::kLong ? Ints{8, r.between(1, 5)} : Ints{};
               },
               [](auto& a) { return of(nn::Embedding(nn::EmbeddingOptions(a[0], a[1]))); }});
  k.push_back({"EmbeddingBag", 1, 1,
               [](auto& t, auto& r) {
                 return t.scalar_type() == at::kLong && t.dim() == 2 ? Ints{8, r.between(1, 5)} : Ints{};
               },
               [](auto& a) { return of(nn::EmbeddingBag(nn::EmbeddingBagOptions(a[0], a[1]).mode(torch::kSum))); }});
  k.push_back({"Dropout", 1, 1,
               [](auto& t, auto& r) {
                 return suits(t, 0, 4) ? Ints{r.between(0, 9), r.below(2)} : Ints{};
               },
               [](auto& a) { return of(nn::Dropout(nn::DropoutOptions(double(a[0]) / 10).inplace(a[1]))); }});
  k.push_back({"PReLU", 1, 1, [](auto& t, auto& r) { return suits(t, 2, 4) ? Ints{r.chance(0.5) ? 1 : t.size(1)} : Ints{}; },
               [](auto& a) { return of(nn::PReLU(nn::PReLUOptions().num_parameters(a[0]))); }});
  k.push_back({"MaxPool1d", 1, 1, [](auto& t, auto& r) { return kernel(t, r, 3); },
               [](auto& a) { return of(nn::MaxPool1d(nn::MaxPool1dOptions(a[0]).stride(a[1]))); }});
  k.push_back({"MaxPool2d", 1, 1, [](auto& t, auto& r) { return kernel(t, r, 4); },
               [](auto& a) { return of(nn::MaxPool2d(nn::MaxPool2dOptions(a[0]).stride(a[1]))); }});
  k.push_back({"AvgPool2d", 1, 1, [](auto& t, auto& r) { return kernel(t, r, 4); },
               [](auto& a) { return of(nn::AvgPool2d(nn::AvgPool2dOptions(a[0]).stride(a[1]))); }});
  k.push_back({"AdaptiveAvgPool2d", 1, 1, [](auto& t, auto& r) { return kernel(t, r, 4); },
               [](auto& a) { return of(nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(a[0]))); }});
  k.push_back({"RNN", 1, 2, [](auto& t, auto& r) { return recurrent(t, r, 3); }, sequence<nn::RNN, nn::RNNOptions>});
  k.push_back({"GRU", 1, 2, [](auto& t, auto& r) { return recurrent(t, r, 3); }, sequence<nn::GRU, nn::GRUOptions>});
  k.push_back({"LSTM", 1, 3, [](auto& t, auto& r) { return recurrent(t, r, 3); }, sequence<nn::LSTM, nn::LSTMOptions>});
  k.push_back({"GRUCell", 1, 1, [](auto& t, auto& r) { return recurrent(t, r, 2); },
               [](auto& a) { return of(nn::GRUCell(nn::GRUCellOptions(a[0], a[1]))); }});
  k.push_back({"LSTMCell", 1, 2, [](auto& t, auto& r) { return recurrent(t, r, 2); },
               [](auto& a) { return of(nn::LSTMCell(nn::LSTMCellOptions(a[0], a[1]))); }});
  k.push_back({"MultiheadAttention", 1, 2, [](auto& t, auto& r) { return heads(t, r); },
               [](auto& a) {
                 nn::MultiheadAttention layer(nn::MultiheadAttentionOptions(a[0], a[1]));
                 return MadeLayer{layer.ptr(), [layer](auto& in) mutable { return as_list(layer(in.at(0), in.at(0), in.at(0))); }};
               }});
  k.push_back({"TransformerEncoderLayer", 1, 1, [](auto& t, auto& r) { return heads(t, r); },
               [](auto& a) { return of(nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(a[0], a[1]).dim_feedforward(6))); }});
  return k;
}

}  // namespace

const std::vector<LayerKind>& layer_kinds() {
  static const std::vector<LayerKind> kinds = make_kinds();
  return kinds;
}

const LayerKind& layer_kind(const std::string& name) {
  for (const auto& k : layer_kinds())
    if (k.name == name) return k;
  throw std::invalid_argument("expected a layer of torch::nn that programs have, found '" + name + "'");
}

}  // namespace tandem::fuzz
