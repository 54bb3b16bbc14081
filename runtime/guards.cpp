#include "runtime/guards.h"

#include "autograd/autograd_graph.h"
#include "autograd/text.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <unordered_map>

namespace tandem {
namespace {

const char* start_of(const at::Tensor& t) {
  const auto* data = static_cast<const char*>(t.storage().data());
  return data ? data + t.storage_offset() * std::int64_t(t.itemsize()) : nullptr;
}

enum class Place { moves, offset_fixed, storage_fixed };

TensorGuard guard_of(const at::Tensor& t, Place place) {
  TensorGuard g;
  g.defined = t.defined();
  if (!g.defined) return g;
  g.strided = t.layout() == at::kStrided && t.has_storage();
  g.requires_grad = t.requires_grad();
  g.leaf = t.is_leaf();
  g.inference = t.is_inference();
  g.number = t.unsafeGetTensorImpl()->is_wrapped_number();
  g.zero = t._is_zerotensor();
  g.dtype = t.scalar_type();
  g.device = t.device();
  g.sizes = t.sizes().vec();
  if (!g.strided) return g;
  g.conj = t.is_conj();
  g.neg = t.is_neg();
  g.strides = t.strides().vec();
  g.alignment = std::int64_t(reinterpret_cast<std::uintptr_t>(start_of(t)) % t.itemsize());
  if (place != Place::moves) g.offset = t.storage_offset() * std::int64_t(t.itemsize());
  if (place == Place::storage_fixed) g.storage = t.storage().unsafeGetStorageImpl();
  return g;
}

std::string geometry(const TensorGuard& g) {
  if (!g.defined) return "an undefined tensor";
  auto text = fmt::format("{} {}", dtype_name(g.dtype), g.sizes);
  if (g.device.type() != c10::DeviceType::CPU) text += " on " + g.device.str();
  return text;
}

std::string yes_no(bool b) { return b ? "yes" : "no"; }

/// One line per property: its name, and how it reads on both sides.
std::string tensor_difference(const TensorGuard& a, const TensorGuard& b, const std::string& where) {
  auto say = [&](const std::string& what, const std::string& expected, const std::string& found) {
    return fmt::format("{}: expected {} {}, found {}", where, what, expected, found);
  };
  if (a.defined != b.defined || a.dtype != b.dtype || a.sizes != b.sizes || a.device != b.device)
    return fmt::format("{}: expected {}, found {}", where, geometry(a), geometry(b));
  if (a.strides != b.strides) return say("strides", fmt::format("{}", a.strides), fmt::format("{}", b.strides));
  if (a.requires_grad != b.requires_grad) return say("requires_grad", yes_no(a.requires_grad), yes_no(b.requires_grad));
  if (a.leaf != b.leaf) return say("a leaf:", yes_no(a.leaf), yes_no(b.leaf));
  if (a.alignment != b.alignment)
    return say("an address that is off its element size by", fmt::format("{} bytes", a.alignment), fmt::format("{} bytes", b.alignment));
  if (a.storage != b.storage)
    return fmt::format("{}: expected the storage that was recorded, found another (set_data, a swap or a new tensor)", where);
  if (a.offset != b.offset)
    return say("an offset into its storage of", fmt::format("{} bytes", a.offset), fmt::format("{} bytes", b.offset));
  if (a.number != b.number) return say("a wrapped number:", yes_no(a.number), yes_no(b.number));
  if (a.zero != b.zero) return say("a zero tensor without memory:", yes_no(a.zero), yes_no(b.zero));
  if (a.shares_with != b.shares_with)
    return say("memory shared with", a.shares_with < 0 ? "nothing" : fmt::format("tensor {} of the step", a.shares_with),
               b.shares_with < 0 ? "nothing" : fmt::format("tensor {} of the step", b.shares_with));
  if (a.shift != b.shift) return say("an overlap shifted by", fmt::format("{} bytes", a.shift), fmt::format("{} bytes", b.shift));
  if (a.conj != b.conj || a.neg != b.neg)
    return say("a lazily conjugated or negated tensor:", yes_no(a.conj || a.neg), yes_no(b.conj || b.neg));
  if (a.inference != b.inference) return say("an inference tensor:", yes_no(a.inference), yes_no(b.inference));
  if (a.strided != b.strided) return say("a strided tensor:", yes_no(a.strided), yes_no(b.strided));
  return "";
}

std::string list_difference(const std::vector<TensorGuard>& a, const std::vector<TensorGuard>& b, const std::string& kind,
                            const std::vector<NamedTensor>* names) {
  if (a.size() != b.size()) return fmt::format("expected {} {}s, found {}", a.size(), kind, b.size());
  for (std::size_t i = 0; i < a.size(); i++) {
    const auto where = names && i < names->size() ? fmt::format("{} '{}'", kind, (*names)[i].name) : fmt::format("{} {}", kind, i);
    if (auto d = tensor_difference(a[i], b[i], where); !d.empty()) return d;
  }
  return "";
}

}  // namespace

Signature observe(const Tensors& tensors) {
  Signature s;
  std::unordered_map<const void*, std::pair<std::int32_t, const char*>> first_on;
  std::int32_t index = 0;
  auto see = [&](const at::Tensor& t, Place place, std::vector<TensorGuard>& list) {
    auto g = guard_of(t, place);
    if (g.defined && g.strided) {
      const auto [it, fresh] = first_on.try_emplace(t.storage().unsafeGetStorageImpl(), index, start_of(t));
      if (!fresh) {
        g.shares_with = it->second.first;
        g.shift = start_of(t) - it->second.second;
      }
    }
    index++;
    list.push_back(std::move(g));
  };
  for (const auto& t : tensors.inputs) see(t, Place::moves, s.inputs);
  for (const auto& l : tensors.leaves) see(l.tensor, Place::storage_fixed, s.leaves);
  for (const auto& b : tensors.buffers) see(b.tensor, Place::storage_fixed, s.buffers);
  for (const auto& t : tensors.state) see(t, Place::offset_fixed, s.state);
  for (const auto& t : tensors.gradients) see(t, Place::offset_fixed, s.gradients);
  for (const auto& l : tensors.leaves) s.hooked.push_back(has_hooks(l.tensor));
  s.grad_mode = c10::GradMode::is_enabled();
  s.inference_mode = c10::InferenceMode::is_enabled();
  s.deterministic = at::globalContext().deterministicAlgorithms();
  s.anomaly = torch::autograd::AnomalyMode::is_enabled();
  s.autocast = at::autocast::is_autocast_enabled(at::kCPU);
  if (s.autocast) s.autocast_dtype = at::autocast::get_autocast_dtype(at::kCPU);
  s.default_dtype = c10::typeMetaToScalarType(at::get_default_dtype());
  return s;
}

std::string difference(const Signature& plan, const Signature& now, const std::vector<NamedTensor>& leaves,
                       const std::vector<NamedTensor>& buffers) {
  if (auto d = list_difference(plan.inputs, now.inputs, "input", nullptr); !d.empty()) return d;
  if (auto d = list_difference(plan.leaves, now.leaves, "parameter", &leaves); !d.empty()) return d;
  if (auto d = list_difference(plan.buffers, now.buffers, "buffer", &buffers); !d.empty()) return d;
  if (auto d = list_difference(plan.state, now.state, "optimizer state tensor", nullptr); !d.empty()) return d;
  for (std::size_t i = 0; i < plan.gradients.size(); i++) {
    if (plan.gradients[i].defined != now.gradients[i].defined)
      return fmt::format("parameter '{}': expected {} gradient at the start of the step, found {}", leaves[i].name,
                         plan.gradients[i].defined ? "a defined" : "no", now.gradients[i].defined ? "a defined one" : "none");
    if (auto d = tensor_difference(plan.gradients[i], now.gradients[i], "gradient of '" + leaves[i].name + "'"); !d.empty()) return d;
    if (plan.hooked[i] != now.hooked[i])
      return fmt::format("parameter '{}': expected a gradient hook: {}, found: {}", leaves[i].name, yes_no(plan.hooked[i]),
                         yes_no(now.hooked[i]));
  }
  auto flag = [](const char* what, bool expected, bool found) { return fmt::format("{}: expected {}, found {}", what, expected, found); };
  if (plan.training != now.training)
    return "train flags of the modules: expected those of the recorded step, found others (train() or eval())";
  if (plan.optimizer != now.optimizer) return fmt::format("optimizer formula: expected {}, found {}", plan.optimizer, now.optimizer);
  if (plan.first_micro != now.first_micro) return flag("first micro-batch of an accumulation", plan.first_micro, now.first_micro);
  if (plan.updates != now.updates) return flag("micro-batch that ends an accumulation", plan.updates, now.updates);
  if (plan.grad_mode != now.grad_mode) return flag("grad mode", plan.grad_mode, now.grad_mode);
  if (plan.inference_mode != now.inference_mode) return flag("inference mode", plan.inference_mode, now.inference_mode);
  if (plan.deterministic != now.deterministic) return flag("deterministic algorithms", plan.deterministic, now.deterministic);
  if (plan.anomaly != now.anomaly) return flag("autograd's anomaly mode", plan.anomaly, now.anomaly);
  if (plan.autocast != now.autocast) return flag("autocast on the CPU", plan.autocast, now.autocast);
  if (plan.autocast_dtype != now.autocast_dtype || plan.default_dtype != now.default_dtype)
    return fmt::format("autocast or default dtype: expected {}, {}, found {}, {}", dtype_name(plan.autocast_dtype),
                       dtype_name(plan.default_dtype), dtype_name(now.autocast_dtype), dtype_name(now.default_dtype));
  return "";
}

std::string describe(const Signature& s) {
  std::string text;
  for (const auto& g : s.inputs) text += (text.empty() ? "" : ", ") + geometry(g);
  if (text.empty()) text = "no inputs";
  if (!s.first_micro || !s.updates)
    text += fmt::format(" (micro-batch: {}{})", s.first_micro ? "first" : "later", s.updates ? ", updates" : "");
  return text;
}

}  // namespace tandem
