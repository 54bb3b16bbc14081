// Dims of a loop: which is innermost, and which are one.
#include "codegen/lower.h"

#include <algorithm>
#include <numeric>

namespace tandem {
namespace {

using Order = std::vector<std::size_t>;

/// Whether dim a should run inside dim b: written memory decides first, then what is read; memory that one of them does not move in decides nothing.
bool belongs_inside(const Loop& loop, const std::vector<std::int64_t>& sizes, std::size_t a, std::size_t b) {
  for (const bool written : {true, false})
    for (const LoopParameter& p : loop.parameters) {
      if (p.written != written || p.strides[a] == 0 || p.strides[b] == 0) continue;
      if (p.strides[a] != p.strides[b]) return p.strides[a] < p.strides[b];
      if (sizes[a] != sizes[b]) return sizes[a] < sizes[b];
    }
  return false;
}

/// Insertion sort, because belongs_inside() is no strict order: dims that nothing tells apart stay as they are.
void sort_dims(const Loop& loop, const Space& space, Order& order) {
  for (std::size_t i = 1; i < order.size(); ++i)
    for (std::size_t k = i; k > 0; --k) {
      if (space.row[order[k - 1]] != space.row[order[k]] || !belongs_inside(loop, space.sizes, order[k - 1], order[k])) break;
      std::swap(order[k - 1], order[k]);
    }
}

template <class T>
void permute(std::vector<T>& v, const Order& order) {
  std::vector<T> out;
  for (std::size_t d : order) out.push_back(v[d]);
  v = std::move(out);
}

/// Whether dims d and d + 1 are one dim for every access.
bool is_one_dim(const Loop& loop, const std::vector<bool>& row, std::size_t d) {
  if (row[d] != row[d + 1]) return false;
  for (const LoopParameter& p : loop.parameters)
    if (p.strides[d] != p.strides[d + 1] * loop.sizes[d + 1]) return false;
  for (const Instruction& n : loop.code)
    if (n.kind == Instruction::Kind::total && n.over[d] != n.over[d + 1]) return false;
  return true;
}

template <class T>
void drop(std::vector<T>& v, std::size_t d) {
  v.erase(v.begin() + static_cast<std::ptrdiff_t>(d));
}

void for_each_list(Loop& loop, auto&& strides, auto&& marks) {
  for (LoopParameter& p : loop.parameters) strides(p.strides);
  for (Instruction& n : loop.code)
    if (n.kind == Instruction::Kind::total) marks(n.over);
}

}  // namespace

void collapse(Loop& loop, const Space& space) {
  Order order(space.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_partition(order.begin(), order.end(), [&](std::size_t d) { return !space.row[d]; });
  sort_dims(loop, space, order);
  std::vector<bool> row = space.row;
  loop.sizes = space.sizes;
  permute(row, order);
  permute(loop.sizes, order);
  for_each_list(
      loop, [&](auto& strides) { permute(strides, order); }, [&](auto& marks) { permute(marks, order); });
  for (std::size_t d = loop.sizes.size(); d-- > 1;) {
    if (!is_one_dim(loop, row, d - 1)) continue;
    loop.sizes[d] *= loop.sizes[d - 1];
    drop(loop.sizes, d - 1);
    drop(row, d - 1);
    for_each_list(
        loop, [&](auto& strides) { drop(strides, d - 1); }, [&](auto& marks) { drop(marks, d - 1); });
  }
  loop.row = static_cast<std::int32_t>(std::count(row.begin(), row.end(), true));
  if (loop.row > 0) return;
  loop.row = 1;
  if (loop.sizes.size() == 1) loop.sizes = {any_size};
}

std::int64_t chunks_of(const Loop& loop, std::int64_t units) {
  constexpr std::int64_t most = 16, work = 16 * 1024, adds = 16;
  const std::int64_t elements = units * loop.row_elements();
  std::int64_t chunks = 0;
  for (const Instruction& n : loop.code) {
    if (n.kind != Instruction::Kind::total) continue;
    std::int64_t kept = 1;
    for (std::size_t d = 0; d < loop.sizes.size(); ++d)
      if (!n.over[d]) kept *= loop.sizes[d];  // a flat loop keeps nothing
    // Partial sums that few elements are added to cost more memory than they save time.
    const std::int64_t useful = std::min({most, elements / work, elements / (kept * adds), units});
    chunks = chunks == 0 ? useful : std::min(chunks, useful);
  }
  return std::max<std::int64_t>(chunks, 1);
}

}  // namespace tandem
