// One loop in other dims. Both lists of sizes are cut into blocks of equal products; within a block a loop must be linear.
#include "autograd/text.h"
#include "partitioner/nest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace tandem {
namespace {

struct Block {
  std::size_t from, from_end, to, to_end;  // dims of the nest, dims of the new sizes
};

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

/// The finest blocks; empty when the products differ.
std::vector<Block> blocks_of(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) {
  std::vector<Block> blocks;
  if (product(from) != product(to)) return blocks;
  std::size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    Block b{i, i + 1, j, j + 1};
    std::int64_t left = from[i++], right = to[j++];
    while (left != right) {
      if (left < right)
        left *= from[i++];
      else
        right *= to[j++];
    }
    b.from_end = i;
    b.to_end = j;
    blocks.push_back(b);
  }
  return blocks;
}

/// The strides over the new dims, or false where the access is not linear over a block.
bool refit_strides(std::vector<std::int64_t>& strides, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& to,
                   const std::vector<Block>& blocks) {
  std::vector<std::int64_t> out(to.size());
  for (const Block& b : blocks) {
    for (std::size_t d = b.from; d + 1 < b.from_end; ++d)
      if (strides[d] != strides[d + 1] * sizes[d + 1]) return false;
    std::int64_t stride = strides[b.from_end - 1];
    for (std::size_t d = b.to_end; d-- > b.to; stride *= to[d]) out[d] = stride;
  }
  strides = std::move(out);
  return true;
}

bool refit_reduced(std::vector<bool>& reduced, std::size_t dims, const std::vector<Block>& blocks) {
  std::vector<bool> out(dims);
  for (const Block& b : blocks) {
    for (std::size_t d = b.from; d < b.from_end; ++d)
      if (reduced[d] != reduced[b.from]) return false;
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(b.to), out.begin() + static_cast<std::ptrdiff_t>(b.to_end), reduced[b.from]);
  }
  reduced = std::move(out);
  return true;
}

}  // namespace

std::optional<Nest> refit(const Nest& nest, const std::vector<std::int64_t>& sizes) {
  if (nest.sizes == sizes) return nest;
  const std::vector<Block> blocks = blocks_of(nest.sizes, sizes);
  if (blocks.empty()) return std::nullopt;
  Nest out = nest;
  out.sizes = sizes;
  if (!refit_reduced(out.reduced, sizes.size(), blocks)) return std::nullopt;
  for (std::vector<Access>* list : {&out.operands, &out.results})
    for (Access& a : *list)
      if (a.value >= 0 && !refit_strides(a.strides, nest.sizes, sizes, blocks)) return std::nullopt;
  return out;
}

std::optional<std::vector<Nest>> nests_of(const Graph& graph, const std::vector<const Node*>& nodes, std::string* why) {
  std::vector<Nest> own;
  for (const Node* n : nodes) {
    auto nest = nest_of(graph, *n, why);
    if (!nest) return std::nullopt;
    own.push_back(std::move(*nest));
  }
  std::vector<std::vector<std::int64_t>> tried;
  for (const Nest& space : own) {
    if (std::find(tried.begin(), tried.end(), space.sizes) != tried.end()) continue;
    tried.push_back(space.sizes);
    std::vector<Nest> fitted;
    for (const Nest& nest : own) {
      auto fit = refit(nest, space.sizes);
      if (!fit) break;
      fitted.push_back(std::move(*fit));
    }
    if (fitted.size() == own.size()) return fitted;
  }
  if (why && !nodes.empty()) *why = fmt::format("no loop fits both {} and all other nodes of its group", describe(*nodes.front()));
  return std::nullopt;
}

}  // namespace tandem
