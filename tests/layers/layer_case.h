// A layer of torch::nn as a row: how it is made, what it is fed with, and what its training step is expected to be.
#pragma once

#include "tests/support/toy.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tandem::test {

/// A module and how it is called: the results of a batch. Where these are one tensor without dims, it is the loss itself.
struct Layer {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Inputs(const Inputs&)> forward;
};

using MakeLayer = std::function<Layer()>;
using MakeBatch = std::function<Inputs(std::uint64_t seed)>;

/// Two shapes of each layer: a small one and an odd one (prime sizes, one row, strides, other options).
struct LayerCase {
  std::string layer;  // its row in the table
  MakeLayer make;
  MakeBatch small, odd;
  MakeLayer make_odd = {};  // where the odd shape needs another layer
  // Parts of the reason why its step stays eager, "this|or that"; empty: it must be compiled.
  std::string eager = {};
  std::string eager_behind_compile = {};  // the same for tandem::compile()
};
using LayerCases = std::vector<LayerCase>;

inline LayerCase stays_eager(std::string why, LayerCase layer) {
  layer.eager = layer.eager_behind_compile = std::move(why);
  return layer;
}
/// Compiled by TrainStep, not by compile().
inline LayerCase eager_behind_compile(std::string why, LayerCase layer) {
  layer.eager_behind_compile = std::move(why);
  return layer;
}

/// A layer of one tensor.
template <class Holder>
Layer of(Holder layer) {
  return {layer.ptr(), [m = layer.get()](const Inputs& in) -> Inputs { return {m->forward(in.at(0))}; }};
}

/// A layer that `forward` calls; it returns a tensor, or a list of them.
template <class Holder, class F>
Layer calls(Holder layer, F forward) {
  return {layer.ptr(), [m = layer.get(), forward](const Inputs& in) -> Inputs {
            if constexpr (std::is_convertible_v<decltype(forward(*m, in)), at::Tensor>)
              return {forward(*m, in)};
            else
              return forward(*m, in);
          }};
}

inline MakeBatch batch(std::vector<std::int64_t> sizes) {
  return [sizes](std::uint64_t seed) -> Inputs { return {normal(sizes, seed)}; };
}
inline MakeBatch batch(std::vector<std::int64_t> first, std::vector<std::int64_t> second) {
  return [=](std::uint64_t seed) -> Inputs { return {normal(first, seed), normal(second, seed + 100)}; };
}
inline MakeBatch labelled(std::vector<std::int64_t> sizes, std::vector<std::int64_t> label_sizes, std::int64_t classes) {
  return [=](std::uint64_t seed) -> Inputs { return {normal(sizes, seed), labels(label_sizes, classes, seed)}; };
}
inline MakeBatch ids(std::vector<std::int64_t> sizes, std::int64_t count) {
  return [=](std::uint64_t seed) -> Inputs { return {labels(sizes, count, seed)}; };
}

LayerCases linear_cases();
LayerCases convolution_cases();
LayerCases norm_cases();
LayerCases pooling_cases();
LayerCases padding_cases();
LayerCases recurrent_cases();
LayerCases attention_cases();
LayerCases activation_cases();
LayerCases loss_cases();
LayerCases embedding_cases();
LayerCases dropout_cases();

}  // namespace tandem::test
