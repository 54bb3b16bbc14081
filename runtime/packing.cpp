#include "runtime/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace tandem {
namespace {

std::int64_t rounded(std::int64_t bytes) { return (std::max<std::int64_t>(bytes, 1) + alignment - 1) / alignment * alignment; }

bool meet(const Interval& a, const Interval& b) { return a.first <= b.last && b.first <= a.last; }

/// Each in the given order at the lowest offset where it fits below, between or above those placed so far.
Packing place_in_order(const std::vector<Interval>& all, const std::vector<std::size_t>& order) {
  Packing p;
  p.offsets.assign(all.size(), 0);
  std::vector<std::size_t> placed;  // by ascending offset
  for (std::size_t i : order) {
    const auto bytes = rounded(all[i].bytes);
    std::int64_t at = 0;
    for (std::size_t k : placed) {
      if (!meet(all[i], all[k])) continue;
      if (at + bytes <= p.offsets[k]) break;
      at = std::max(at, p.offsets[k] + rounded(all[k].bytes));
    }
    p.offsets[i] = at;
    p.bytes = std::max(p.bytes, at + all[i].bytes);  // nothing follows the highest one
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), i, [&](std::size_t a, std::size_t b) { return p.offsets[a] < p.offsets[b]; }), i);
  }
  return p;
}

}  // namespace

std::int64_t highest_load(const std::vector<Interval>& intervals) {
  std::vector<std::pair<std::int64_t, std::int64_t>> changes;  // (time, bytes); frees come after the call that they follow
  for (const auto& i : intervals) {
    changes.emplace_back(2 * std::int64_t(i.first), rounded(i.bytes));
    changes.emplace_back(2 * std::int64_t(i.last) + 1, -rounded(i.bytes));
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t load = 0, highest = 0;
  for (const auto& [time, bytes] : changes) highest = std::max(highest, load += bytes);
  return highest;
}

namespace {

/// Moves one interval at a time to another place of the order, keeping what is not worse. The seed is fixed, so equal input gives equal offsets.
Packing improved(Packing best, std::vector<std::size_t> order, const std::vector<Interval>& intervals, std::int64_t bound) {
  constexpr std::size_t work = 20'000'000;  // pairs looked at, some tens of milliseconds
  std::mt19937 random(1);
  const auto n = order.size();
  for (std::size_t i = 0; n > 1 && i < work / (n * n) && best.bytes > bound; i++) {
    auto other = order;
    const auto from = random() % n, to = random() % n;
    const auto moved = other[from];
    other.erase(other.begin() + std::ptrdiff_t(from));
    other.insert(other.begin() + std::ptrdiff_t(to), moved);
    auto p = place_in_order(intervals, other);
    if (p.bytes > best.bytes) continue;
    best = std::move(p);
    order = std::move(other);
  }
  return best;
}

}  // namespace

Packing pack(const std::vector<Interval>& intervals) {
  using Key = std::function<std::int64_t(const Interval&)>;
  const auto length = [](const Interval& i) { return std::int64_t(i.last) - i.first + 1; };
  const Key keys[] = {
      [](const Interval& i) { return -i.bytes; },
      [&](const Interval& i) { return -i.bytes * length(i); },
      [&](const Interval& i) { return -length(i); },
      [](const Interval& i) { return std::int64_t(i.first); },
      [](const Interval& i) { return -std::int64_t(i.last); },
  };
  const auto bound = highest_load(intervals);
  Packing best;
  std::vector<std::size_t> best_order;
  for (const Key& key : keys) {
    std::vector<std::size_t> order(intervals.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const auto x = key(intervals[a]), y = key(intervals[b]);
      return x != y ? x < y : intervals[a].bytes > intervals[b].bytes;
    });
    auto p = place_in_order(intervals, order);
    if (!best_order.empty() && p.bytes >= best.bytes) continue;
    best = std::move(p);
    best_order = std::move(order);
    if (best.bytes <= bound) return best;
  }
  return improved(std::move(best), std::move(best_order), intervals, bound);
}

std::string validate(const Packing& p, const std::vector<Interval>& intervals) {
  if (p.offsets.size() != intervals.size())
    return fmt::format("expected an offset for each of {} intervals, found {}", intervals.size(), p.offsets.size());
  for (std::size_t i = 0; i < intervals.size(); i++) {
    const auto& a = intervals[i];
    const auto from = p.offsets[i], to = from + a.bytes;
    if (from < 0 || to > p.bytes || from % alignment)
      return fmt::format("interval {} lies at [{}, {}), expected an aligned place inside [0, {})", i, from, to, p.bytes);
    for (std::size_t k = 0; k < i; k++) {
      const auto& b = intervals[k];
      if (a.first <= b.last && b.first <= a.last && from < p.offsets[k] + b.bytes && p.offsets[k] < to)
        return fmt::format("intervals {} and {} are in use at the same time and share memory", k, i);
    }
  }
  return "";
}

}  // namespace tandem
