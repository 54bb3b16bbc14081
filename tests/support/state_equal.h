// Bit comparison of tensors, and the default generator's state, for tests that hold a step against eager.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_indices.h>
#include <ATen/ops/_values.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace tandem::test {

/// "float32 [3, 4] strides [4, 1] on cpu", or "undefined".
inline std::string describe(const at::Tensor& t) {
  if (!t.defined()) return "undefined";
  std::string text = c10::str(t.scalar_type(), " ", t.sizes());
  if (t.layout() == at::kStrided) text += c10::str(" strides ", t.strides());
  text += c10::str(" on ", t.device());
  if (t.layout() != at::kStrided) text += c10::str(" layout ", t.layout());
  if (t.is_conj()) text += " conjugate";
  if (t.is_neg()) text += " negative";
  return text;
}

/// Whether plans under test have generated kernels. Then floating results may differ from eager's by rounding; without (the tests run a second time
/// with TANDEM_TEST_KERNELS=0) every bit must be equal.
inline bool with_kernels() {
  static const bool on = [] {
    const char* text = std::getenv("TANDEM_TEST_KERNELS");
    return !text || std::string(text) != "0";
  }();
  return on;
}

/// Empty when no element is farther than a few roundings of the tensor's largest one, NaN and infinities at the same places.
inline std::string beyond_rounding(const at::Tensor& found, const at::Tensor& expected) {
  const auto f = found.detach().resolve_conj().resolve_neg().to(at::kDouble),
             e = expected.detach().resolve_conj().resolve_neg().to(at::kDouble);
  if (e.numel() == 0) return "";
  const double largest = e.nan_to_num(0, 0, 0).abs().max().item<double>();
  const double allowed = 4e-5 * largest + 1e-7;  // a double may be made of floats
  const auto same = f.eq(e).logical_or(f.isnan().logical_and(e.isnan())).logical_or(f.sub(e).abs().le(allowed));
  if (same.all().item<bool>()) return "";
  const auto i = same.logical_not().reshape(-1).to(at::kInt).argmax().item<std::int64_t>();
  return fmt::format("element {}: expected {:.9g}, found {:.9g}, allowed is a gap of {:.3g}", i, e.reshape(-1)[i].item<double>(),
                     f.reshape(-1)[i].item<double>(), allowed);
}

/// Empty when both are undefined, or alike in geometry (see describe) and in every bit of every element; else one sentence. A NaN equals the NaN
/// with the same bits, and 0 differs from -0. Whether they require a gradient is not compared. With generated kernels: see beyond_rounding().
inline std::string difference(const at::Tensor& found, const at::Tensor& expected) {
  if (describe(found) != describe(expected)) return fmt::format("expected {}, found {}", describe(expected), describe(found));
  if (!expected.defined()) return "";
  if (with_kernels() && expected.layout() == at::kStrided && expected.is_floating_point()) return beyond_rounding(found, expected);
  if (expected.layout() == at::kSparse) {
    const std::string indices = difference(found._indices(), expected._indices());
    return indices.empty() ? difference(found._values(), expected._values()) : "indices: " + indices;
  }
  const at::Tensor f = found.detach().resolve_conj().resolve_neg().cpu().contiguous().view(-1);
  const at::Tensor e = expected.detach().resolve_conj().resolve_neg().cpu().contiguous().view(-1);
  const std::size_t size = e.element_size();
  const char* const f_bytes = static_cast<const char*>(f.const_data_ptr());
  const char* const e_bytes = static_cast<const char*>(e.const_data_ptr());
  std::int64_t count = 0, first = -1;
  for (std::int64_t i = 0; i < e.numel(); i++) {
    if (std::memcmp(f_bytes + i * size, e_bytes + i * size, size) == 0) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return "";
  const auto value = [first](const at::Tensor& t) {
    if (t.is_complex()) return c10::str(t[first].item().toComplexDouble());
    if (t.is_floating_point()) return fmt::format("{:.17g}", t[first].item().toDouble());
    return fmt::format("{}", t[first].item().toLong());
  };
  return fmt::format("element {}: expected {}, found {} ({} of {} differ)", first, value(e), value(f), count, e.numel());
}

/// A copy of the default CPU generator's whole state; its position is part of it.
inline at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state().clone();
}

inline void set_generator_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state.clone());
}

}  // namespace tandem::test
