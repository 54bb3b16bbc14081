#include "tests/fuzz/compare.h"

#include "tests/support/state_equal.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace tandem::fuzz {
namespace {

constexpr std::uint64_t noisy_runs = 8;
constexpr double spread_factor = 8;  // a maximum of few samples stands for all
constexpr double infinity = std::numeric_limits<double>::infinity();

/// With memory of its own: a gradient may be a zero tensor that has none.
at::Tensor dense(const at::Tensor& t) { return t._is_zerotensor() ? at::zeros(t.sizes(), t.options()) : t.detach().contiguous(); }
at::Tensor flat_double(const at::Tensor& t) { return dense(t).to(at::kDouble).view(-1); }

/// Tensors that old graphs may hold, whose version counters they would look at.
bool outlives(const std::string& name) {
  return name != "loss" && name.rfind("output ", 0) != 0 && name.find(".grad") == std::string::npos;
}

std::string geometry(const Left& found, const Left& expected) {
  if (found.error != expected.error) return fmt::format("error: expected '{}', found '{}'", expected.error, found.error);
  if (found.tensors.size() != expected.tensors.size())
    return fmt::format("expected {} tensors, found {}", expected.tensors.size(), found.tensors.size());
  for (std::size_t i = 0; i < found.tensors.size(); i++) {
    const auto &f = found.tensors[i], &e = expected.tensors[i];
    if (f.first != e.first) return fmt::format("expected {}, found {}", e.first, f.first);
    if (test::describe(f.second) != test::describe(e.second))
      return fmt::format("{}: expected {}, found {}", e.first, test::describe(e.second), test::describe(f.second));
    if (f.second.defined() && f.second._is_zerotensor() != e.second._is_zerotensor())
      return e.first + ": a zero tensor without memory on one side only";
    if (f.second.defined() && outlives(e.first) && f.second._version() != e.second._version())
      return fmt::format("{}: expected version {}, found {}", e.first, e.second._version(), f.second._version());
  }
  if (found.counters != expected.counters) return "a step counter of the optimizer differs";
  return "";
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined()) return true;
  const auto x = dense(a), y = dense(b);
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

std::string first_apart(const std::string& name, const at::Tensor& found, const at::Tensor& expected, const at::Tensor& bad) {
  const auto f = flat_double(found), e = flat_double(expected);
  const auto i = bad.to(at::kInt).argmax().item<std::int64_t>();
  return fmt::format("{}: element {}: expected {:.9g}, found {:.9g} ({} of {} differ)", name, i, e[i].item<double>(), f[i].item<double>(),
                     bad.sum().item<std::int64_t>(), bad.numel());
}

at::Tensor alike(const at::Tensor& f, const at::Tensor& e) { return f.eq(e).logical_or(f.isnan().logical_and(e.isnan())); }

double largest(const at::Tensor& t) { return t.numel() == 0 ? 0 : t.nan_to_num(0, 0, 0).abs().max().item<double>(); }

/// Elements farther apart than roundings alone make likely.
at::Tensor suspects(const at::Tensor& found, const at::Tensor& expected) {
  const auto f = flat_double(found), e = flat_double(expected);
  const double u = expected.is_floating_point() ? 2e-5 : 0;
  return alike(f, e).logical_or((f - e).abs().le(u * largest(e) + (u > 0 ? 1e-9 : 0))).logical_not();
}

/// |a - b| with infinity where either is not finite, 0 where both are alike.
at::Tensor gap(const at::Tensor& a, const at::Tensor& b) {
  const auto d = (a - b).abs();
  return d.masked_fill(d.isnan(), infinity).masked_fill(alike(a, b), 0);
}

}  // namespace

std::string bits_apart(const Left& found, const Left& expected) {
  if (auto g = geometry(found, expected); !g.empty()) return g;
  for (std::size_t i = 0; i < found.tensors.size(); i++) {
    const auto &f = found.tensors[i].second, &e = expected.tensors[i].second;
    if (same_bits(f, e)) continue;
    const auto bad = alike(flat_double(f), flat_double(e)).logical_not();
    if (bad.any().item<bool>()) return first_apart(found.tensors[i].first, f, e, bad);
    return found.tensors[i].first + ": the bits of a zero or a NaN differ";
  }
  return "";
}

std::string values_apart(const Left& found, const Left& expected, const std::function<Left(const Judge&)>& judge) {
  if (auto g = geometry(found, expected); !g.empty()) return g;
  std::vector<std::size_t> suspected;
  for (std::size_t i = 0; i < found.tensors.size(); i++) {
    const auto &f = found.tensors[i].second, &e = expected.tensors[i].second;
    if (!same_bits(f, e) && suspects(f, e).any().item<bool>()) suspected.push_back(i);
  }
  if (suspected.empty()) return "";
  const auto reference = judge({});
  std::vector<Left> in_double, natively;  // rounding inside an op shows in its own dtype only
  for (std::uint64_t seed = 1; seed <= noisy_runs; seed++) {
    in_double.push_back(judge({.in_double = true, .noise = 4, .seed = seed}));
    natively.push_back(judge({.in_double = false, .noise = 4, .seed = seed}));
  }
  for (const auto i : suspected) {
    const auto f = flat_double(found.tensors[i].second), e = flat_double(expected.tensors[i].second);
    const auto r = flat_double(reference.tensors.at(i).second);
    auto spread = at::zeros_like(r);
    for (const auto& n : in_double) spread = at::maximum(spread, gap(flat_double(n.tensors.at(i).second), r));
    for (const auto& n : natively) spread = at::maximum(spread, gap(flat_double(n.tensors.at(i).second), e));
    const double common = spread.numel() == 0 ? 0 : spread.max().item<double>();
    const auto error = gap(e, r);
    const double typical = largest(error.masked_fill(error.isinf(), 0));  // rounding falls on neighbours alike
    const auto allowed = error * 2 + 2 * typical + spread_factor * common + 1e-6 * largest(r) + 1e-9;
    const auto bad = gap(f, r).le(allowed).logical_or(alike(f, e)).logical_not();
    if (bad.any().item<bool>()) return first_apart(found.tensors[i].first, found.tensors[i].second, expected.tensors[i].second, bad);
  }
  return "";
}

}  // namespace tandem::fuzz
