#include "tests/fuzz/draft.h"

#include <algorithm>
#include <cmath>

namespace tandem::fuzz {
namespace {

bool among(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return name == n; });
}

}  // namespace

Argument Draft::scalar(const Asked& asked) {
  static const std::vector<double> numbers{0.5, 2, -1, 1, 3, 0.1, -0.25, 1.5, 0};
  if (among(asked.name, {"p", "ord"})) return r_.chance(0.2) ? real(INFINITY) : r_.chance(0.5) ? whole(2) : real(double(r_.between(1, 3)));
  if (asked.name == "alpha" && r_.chance(0.5)) return whole(1);
  const double v = r_.pick(numbers);
  const bool exact = v == std::floor(v) && (r_.chance(0.4) || (!taken_.empty() && !taken_.front().is_floating_point()));
  return exact ? whole(std::int64_t(v)) : real(v);
}

std::optional<Argument> Draft::whole_number(const Asked& asked) {
  const std::int64_t rank = taken_.empty() ? 1 : taken_.front().dim();
  const auto& name = asked.name;
  if (name.find("dim") != std::string::npos || name == "axis") return whole(rank == 0 ? r_.between(-1, 0) : r_.between(-rank, rank - 1));
  if (name == "index") return whole(r_.between(-1, 1));
  if (name == "start") return whole(r_.between(0, 1));
  if (name == "end") return whole(r_.chance(0.3) ? std::int64_t(1) << 40 : r_.chance(0.3) ? -1 : r_.between(1, 6));
  if (name == "step") return whole(r_.between(1, 2));
  if (name == "reduction") return whole(r_.between(0, 2));
  if (name == "groups" || name == "num_groups") return whole(r_.between(1, 2));
  if (name == "diagonal" || name == "offset") return whole(r_.between(-1, 1));
  if (name == "padding_idx") return whole(r_.between(-1, 0));
  if (name == "ignore_index") return whole(r_.chance(0.7) ? -100 : 1);
  if (name == "N" && rank > 1) return size_of(taken_.front().size(0), source_.batch);
  if (name == "C" && rank > 1) return size_of(taken_.front().size(1), source_.batch);
  if (name == "HxW" && rank > 1)
    return size_of(taken_.front().numel() / std::max<std::int64_t>(taken_.front().size(0) * taken_.front().size(1), 1), source_.batch);
  return whole(r_.between(1, 3));
}

Argument Draft::sizes(const Sizes& s) const {
  std::vector<Argument> items;
  for (const auto n : s) items.push_back(size_of(n, source_.batch));
  return list(std::move(items));
}

std::optional<Argument> Draft::whole_numbers(const Asked& asked) {
  const auto& name = asked.name;
  const auto t = taken_.empty() ? at::Tensor() : taken_.front();
  const std::int64_t rank = t.defined() ? t.dim() : 0;
  Sizes s;
  if (!t.defined()) {
    const auto like = existing([](auto&, const at::Tensor& o) { return o.numel() < 200; });
    return like ? std::optional(sizes(value_of(*like).sizes().vec())) : std::nullopt;
  }
  const bool expands = asked.op.name.find("expand") != std::string::npos || asked.op.name.find("broadcast") != std::string::npos;
  if (name == "size" || name == "shape") return sizes(expands ? expanded(t.sizes().vec()) : reshaped(t.sizes().vec()));
  if (name == "normalized_shape") {
    if (rank == 0) return {};
    last_sizes_ = Sizes(t.sizes().end() - r_.between(1, std::min<std::int64_t>(rank, 2)), t.sizes().end());
    return sizes(last_sizes_);
  }
  if (name == "dims" || name == "dim") {
    for (std::int64_t d = 0; d < rank; d++) s.push_back(r_.chance(0.2) ? d - rank : d);
    for (std::size_t i = s.size(); i > 1; i--) std::swap(s[i - 1], s[std::size_t(r_.below(std::int64_t(i)))]);
    if (name == "dim" || asked.op.name != "aten::permute") s.resize(std::size_t(rank == 0 ? 0 : r_.chance(0.7) ? 1 : r_.between(1, rank)));
  } else if (name == "repeats") {
    for (std::int64_t d = 0; d < rank + r_.below(2); d++) s.push_back(r_.between(1, 2));
  } else if (name == "pad") {
    for (std::int64_t d = 0; d < std::min<std::int64_t>(rank, 2) * 2; d++) s.push_back(r_.between(-(r_.chance(0.1)), 2));
  } else if (name == "split_sizes") {
    if (rank == 0) return {};
    const auto n = t.size(r_.below(rank)), cut = r_.between(0, n);
    s = {cut, n - cut};
  } else {
    const auto spatial = std::max<std::int64_t>(rank - 2, 1);
    for (std::int64_t d = 0; d < spatial; d++) s.push_back(r_.between(name.find("padding") == std::string::npos ? 1 : 0, 2));
  }
  std::vector<Argument> items;
  for (const auto n : s) items.push_back(whole(n));
  return list(std::move(items));
}

Draft::Sizes Draft::reshaped(Sizes s) {
  if (s.empty()) return r_.chance(0.5) ? Sizes{1} : Sizes{1, 1};
  if (r_.chance(0.15)) return {-1};
  const auto i = std::size_t(r_.below(std::int64_t(s.size())));
  if (i + 1 < s.size() && r_.chance(0.5)) {
    s[i] *= s[i + 1];
    s.erase(s.begin() + std::ptrdiff_t(i) + 1);
    return s;
  }
  for (const std::int64_t by : {2, 3, 1})
    if (s[i] % by == 0 && s[i] > 0 && r_.chance(0.7)) {
      s[i] /= by;
      s.insert(s.begin() + std::ptrdiff_t(i) + r_.below(2), by);
      return s;
    }
  if (s.size() > 1) std::swap(s[i], s[s.size() - 1 - i]);
  return s;
}

Draft::Sizes Draft::expanded(Sizes s) {
  for (auto& n : s)
    if (n == 1) n = r_.between(1, 4);
  if (r_.chance(0.5)) s.insert(s.begin(), r_.chance(0.3) ? source_.batch : r_.between(1, 3));
  return s;
}

}  // namespace tandem::fuzz
