// What the callers of a compiled function do with its results: which tangents their backwards bring.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

/// What one backward brings: the strides of the tangent of each differentiable output, nothing where there is none. Eager runs other ops for other
/// strides (sum() brings an expanded tangent), and none for an output that is not used.
using TangentKey = std::vector<std::optional<std::vector<std::int64_t>>>;

/// What backwards of eager calls, and backwards that no plan was made for, brought; and what happened in them.
class Observed {
 public:
  void tangent(int task, std::size_t outputs, std::size_t output, const at::Tensor& tangent);
  void backward(TangentKey key);
  void say(std::string sentence);
  /// Each once, and forgotten afterwards.
  std::vector<TangentKey> take_keys();
  std::vector<std::string> take_sentences();

 private:
  static constexpr std::size_t most = 16;
  std::mutex mutex_;
  std::vector<std::pair<int, TangentKey>> seen_;
  std::vector<std::string> sentences_;
};

/// Handles on the results of an eager call, behind autograd nodes that tell `observed` which tangents arrive. `differentiable`: per result.
void watch(std::vector<at::Tensor>& results, const std::vector<char>& differentiable, const std::shared_ptr<Observed>& observed);

}  // namespace tandem
