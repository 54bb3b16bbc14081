// Embeddings.
#include "tests/layers/layer_case.h"

namespace tandem::test {

namespace nn = torch::nn;

namespace {
/// Ids of bags that begin at the offsets of the second input.
MakeBatch bags(std::int64_t n, std::int64_t count, std::vector<std::int64_t> offsets) {
  return [=](std::uint64_t seed) -> Inputs { return {labels({n}, count, seed), torch::tensor(offsets)}; };
}
const auto with_offsets = [](auto& m, const Inputs& in) { return m.forward(in[0], in[1]); };

Layer bag_of(const nn::EmbeddingBagMode& mode, bool last = false) {
  return calls(nn::EmbeddingBag(nn::EmbeddingBagOptions(9, 4).mode(mode).include_last_offset(last)), with_offsets);
}
}  // namespace

LayerCases embedding_cases() {
  const auto small = bags(8, 9, {0, 3, 5}), odd = bags(7, 9, {0, 0, 1, 7});
  return {
      {"Embedding", [] { return of(nn::Embedding(9, 4)); }, ids({3, 5}, 9), ids({1, 7}, 9),
       [] { return of(nn::Embedding(nn::EmbeddingOptions(9, 3).padding_idx(2).scale_grad_by_freq(true))); }},
      {"Embedding (max norm)", [] { return of(nn::Embedding(nn::EmbeddingOptions(9, 4).max_norm(1.))); }, ids({3, 5}, 9), ids({1, 7}, 9)},
      stays_eager("no strided storage|sparse",
                  {"Embedding (sparse)", [] { return of(nn::Embedding(nn::EmbeddingOptions(9, 4).sparse(true))); }, ids({3, 5}, 9),
                   ids({1, 7}, 9)}),
      {"EmbeddingBag (sum)", [] { return bag_of(torch::kSum); }, small, odd, [] { return bag_of(torch::kSum, true); }},
      {"EmbeddingBag (mean)", [] { return bag_of(torch::kMean); }, small, odd},
      {"EmbeddingBag (max)", [] { return bag_of(torch::kMax); }, small, odd},
  };
}

}  // namespace tandem::test
