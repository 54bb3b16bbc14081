// Workloads on sequences of characters: a transformer in two sizes and a hand-written LSTM that makes many small ops.
#include "bench/support/workload_builders.h"

#include <torch/torch.h>

#include <cmath>
#include <limits>

namespace tandem::bench {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using torch::Tensor;

struct GptShape {
  std::int64_t vocabulary, length, width, heads, layers;
  double dropout;
};

/// Pre-norm transformer block with causal attention.
class BlockImpl : public nn::Module {
 public:
  explicit BlockImpl(const GptShape& s) : heads_(s.heads) {
    norm1_ = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({s.width})));
    norm2_ = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({s.width})));
    qkv_ = register_module("qkv", nn::Linear(s.width, 3 * s.width));
    project_ = register_module("project", nn::Linear(s.width, s.width));
    widen_ = register_module("widen", nn::Linear(s.width, 4 * s.width));
    narrow_ = register_module("narrow", nn::Linear(4 * s.width, s.width));
    drop_ = register_module("drop", nn::Dropout(s.dropout));
  }

  Tensor forward(const Tensor& in) {
    const Tensor x = in + drop_(project_(attend(norm1_(in))));
    return x + drop_(narrow_(torch::gelu(widen_(norm2_(x)))));
  }

 private:
  Tensor attend(const Tensor& x) {
    const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2), per_head = width / heads_;
    const std::vector<Tensor> parts = qkv_(x).split(width, 2);
    const auto by_head = [&](const Tensor& t) { return t.view({batch, length, heads_, per_head}).transpose(1, 2); };
    const Tensor q = by_head(parts[0]), k = by_head(parts[1]), v = by_head(parts[2]);
    Tensor scores = torch::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(per_head));
    const Tensor future = torch::ones({length, length}, torch::kBool).tril().logical_not();
    scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity()).softmax(-1);
    return torch::matmul(drop_(scores), v).transpose(1, 2).reshape({batch, length, width});
  }

  std::int64_t heads_;
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  nn::Linear qkv_{nullptr}, project_{nullptr}, widen_{nullptr}, narrow_{nullptr};
  nn::Dropout drop_{nullptr};
};
TORCH_MODULE(Block);

/// A decoder whose output layer is tied to the token embedding.
class GptImpl : public nn::Module {
 public:
  explicit GptImpl(const GptShape& s) {
    tokens_ = register_module("tokens", nn::Embedding(s.vocabulary, s.width));
    positions_ = register_module("positions", nn::Embedding(s.length, s.width));
    register_module("blocks", blocks_);
    // GPT-2's scale. The default N(0, 1) drives the backward into denormals, which are slow and not the subject here.
    nn::init::normal_(tokens_->weight, 0, 0.02);
    nn::init::normal_(positions_->weight, 0, 0.02);
    for (std::int64_t i = 0; i < s.layers; i++) blocks_->push_back(Block(s));
    norm_ = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({s.width})));
  }

  Tensor forward(const Tensor& index) {
    Tensor x = tokens_(index) + positions_(torch::arange(index.size(1)));
    for (const auto& block : *blocks_) x = block->as<Block>()->forward(x);
    return torch::linear(norm_(x), tokens_->weight);
  }

 private:
  nn::Embedding tokens_{nullptr}, positions_{nullptr};
  nn::ModuleList blocks_;
  nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(Gpt);

/// An LSTM cell of single ops, called once per character.
class CharLstmImpl : public nn::Module {
 public:
  CharLstmImpl(std::int64_t vocabulary, std::int64_t width) : width_(width) {
    embed_ = register_module("embed", nn::Embedding(vocabulary, width));
    gates_ = register_module("gates", nn::Linear(2 * width, 4 * width));
    head_ = register_module("head", nn::Linear(width, vocabulary));
  }

  Tensor forward(const Tensor& index) {
    const Tensor x = embed_(index);
    Tensor hidden = torch::zeros({index.size(0), width_}), cell = torch::zeros({index.size(0), width_});
    std::vector<Tensor> outputs;
    for (std::int64_t t = 0; t < index.size(1); t++) {
      const std::vector<Tensor> gate = gates_(torch::cat({x.select(1, t), hidden}, 1)).chunk(4, 1);
      cell = torch::sigmoid(gate[1]) * cell + torch::sigmoid(gate[0]) * torch::tanh(gate[2]);
      hidden = torch::sigmoid(gate[3]) * torch::tanh(cell);
      outputs.push_back(hidden);
    }
    return head_(torch::stack(outputs, 1));
  }

 private:
  std::int64_t width_;
  nn::Embedding embed_{nullptr};
  nn::Linear gates_{nullptr}, head_{nullptr};
};
TORCH_MODULE(CharLstm);

/// The average loss over all positions of all sequences.
template <class Model>
auto predict_next(Model model) {
  return [model](Tensor x, Tensor y) mutable { return nn::functional::cross_entropy(model->forward(x).flatten(0, 1), y.flatten()); };
}

auto sequences(std::int64_t vocabulary, std::int64_t length) {
  return [vocabulary, length](std::int64_t batch) {
    Tensor x = torch::randint(vocabulary, {batch, length}, torch::kLong);
    return std::pair(x, torch::randint(vocabulary, {batch, length}, torch::kLong));
  };
}

Workload gpt(const GptShape& shape) {
  const Gpt model(shape);
  Workload w;
  w.module = model.ptr();
  w.loss = predict_next(model);
  w.data = sequences(shape.vocabulary, shape.length);
  w.make_optimizer = [](std::vector<Tensor> params) {
    return std::make_unique<optim::AdamW>(std::move(params), optim::AdamWOptions(3e-4).weight_decay(0.1));
  };
  return w;
}

}  // namespace

Workload gpt_char() {
  Workload w = gpt({.vocabulary = 65, .length = 64, .width = 128, .heads = 4, .layers = 4, .dropout = 0.1});
  w.batch = 16;
  w.small_batch = 12;
  return w;
}

Workload gpt_wide() {
  Workload w = gpt({.vocabulary = 4096, .length = 128, .width = 768, .heads = 12, .layers = 2, .dropout = 0.1});
  w.batch = 4;
  w.small_batch = 3;
  return w;
}

Workload lstm_cell() {
  const CharLstm model(65, 128);
  Workload w;
  w.module = model.ptr();
  w.loss = predict_next(model);
  w.batch = 16;
  w.small_batch = 12;
  w.data = sequences(65, 32);
  w.make_optimizer = [](std::vector<Tensor> params) { return std::make_unique<optim::Adam>(std::move(params), optim::AdamOptions(1e-3)); };
  return w;
}

}  // namespace tandem::bench
