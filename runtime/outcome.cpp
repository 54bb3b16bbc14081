#include "runtime/outcome.h"

#include "autograd/key.h"
#include "autograd/text.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace tandem {
namespace {

c10::Storage copy_of(const c10::Storage& s) {
  auto* allocator = c10::GetAllocator(s.device_type());
  c10::Storage copy(c10::Storage::use_byte_size_t(), s.nbytes(), allocator, /*resizable=*/true);
  if (s.nbytes()) std::memcpy(copy.mutable_data(), s.data(), s.nbytes());
  return copy;
}

/// Elements in logical order, packed. A zero tensor has no memory until now.
at::Tensor packed(const at::Tensor& t) {
  if (t._is_zerotensor()) return at::zeros(t.sizes(), t.options());
  return t.detach().resolve_conj().resolve_neg().contiguous();
}

std::string difference_of(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return a.defined() ? "is undefined, expected a tensor" : "is defined, expected none";
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.strides() != b.strides())
    return fmt::format("has geometry {} {} {}, expected {} {} {}", dtype_name(b.scalar_type()), b.sizes(), b.strides(),
                       dtype_name(a.scalar_type()), a.sizes(), a.strides());
  const auto gap = (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs();
  const auto differing = gap.ne(0).sum().item<std::int64_t>();
  return fmt::format("differs in {} of {} elements, at most by {:g}", differing, a.numel(), gap.nan_to_num(HUGE_VAL).max().item<double>());
}

}  // namespace

std::vector<StorageId> written_outside(const Graph& graph) {
  std::vector<char> written(graph.storages.size(), false);
  for (const auto& n : graph.nodes)
    for (auto s : n.writes) written[s] = graph.storages[s].role != Role::internal;
  std::vector<StorageId> out;
  for (std::size_t s = 0; s < written.size(); s++)
    if (written[s]) out.push_back(StorageId(s));
  return out;
}

at::Tensor tensor_on(const Graph& graph, StorageId id, const Binding& binding) {
  for (const auto& v : graph.values)
    if (v.storage == id) return make_tensor(v, binding.storage, binding.shift);
  return {};
}

RunInputs private_copy(const Graph& graph, const RunInputs& inputs) {
  auto copy = inputs;
  for (auto s : written_outside(graph)) copy.storages[s].storage = copy_of(inputs.storages[s].storage);
  return copy;
}

namespace {
Outcome list(const Graph& graph, const at::Tensor& loss, const std::function<at::Tensor(std::size_t)>& output,
             const std::vector<at::Tensor>& gradients, const std::function<at::Tensor(std::size_t)>& kept, const at::Tensor& norm,
             const std::function<Binding(StorageId)>& binding) {
  Outcome out{{"loss", loss}};
  for (std::size_t i = 0; i < graph.outputs.size(); i++) out.push_back({fmt::format("output {}", i), output(i)});
  for (std::size_t i = 0; i < graph.gradients.size(); i++) out.push_back({"gradient of '" + graph.gradients[i].name + "'", gradients[i]});
  for (std::size_t i = 0; i < graph.gradients.size(); i++)
    if (graph.gradients[i].value >= 0) out.push_back({"gradient left for '" + graph.gradients[i].name + "'", kept(i)});
  out.push_back({"gradient norm", norm});
  for (auto s : written_outside(graph))
    out.push_back({fmt::format("{} '{}'", name_of(graph.storages[s].role), graph.storages[s].name), tensor_on(graph, s, binding(s))});
  return out;
}
}  // namespace

Outcome outcome_of(const EagerStep& eager, const Graph& graph) {
  return list(
      graph, eager.loss, [&](std::size_t i) { return eager.outputs[i]; }, eager.gradients, [&](std::size_t i) { return eager.kept[i]; },
      eager.grad_norm,
      [&](StorageId s) {
        return Binding{eager.after[s], eager.before.storages[s].shift};
      });
}

Outcome outcome_of(const Graph& graph, const RunInputs& inputs, const std::function<at::Tensor(ValueId)>& value,
                   const std::vector<at::Tensor>& gradients) {
  return list(
      graph, value(graph.loss), [&](std::size_t i) { return value(graph.outputs[i]); }, gradients,
      [&](std::size_t i) { return value(graph.gradients[i].value); }, value(graph.grad_norm),
      [&](StorageId s) { return inputs.storages[s]; });
}

Outcome outcome_of(const Graph& graph, const RunInputs& inputs, const Delivered& d) {
  return list(
      graph, d.loss, [&](std::size_t i) { return d.outputs[i]; }, d.gradients, [&](std::size_t i) { return d.kept[i]; }, d.grad_norm,
      [&](StorageId s) { return inputs.storages[s]; });
}

void GradientKeeper::keep(Slots& slots) {
  for (std::size_t i = 0; i < gradients_.size(); i++)
    if (const auto v = graph_.gradients[i].before; v >= 0) gradients_[i] = slots.get(v).clone();
}

bool bit_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.strides() != b.strides()) return false;
  const auto x = packed(a), y = packed(b);
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), std::size_t(x.numel()) * x.itemsize()) == 0;
}

std::string bit_difference(const Outcome& expected, const Outcome& found) {
  if (expected.size() != found.size()) return fmt::format("the step leaves {} tensors, expected {}", found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); i++)
    if (!bit_equal(expected[i].tensor, found[i].tensor)) return expected[i].name + " " + difference_of(expected[i].tensor, found[i].tensor);
  return "";
}

namespace {
bool draws(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.effects.random; });
}
}  // namespace

at::Tensor generator_state() {
  SilenceScope quiet;
  auto generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator(const at::Tensor& state) {
  SilenceScope quiet;
  auto generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

GeneratorScope::GeneratorScope(const at::Tensor& state) : saved_(generator_state()) { set_generator(state); }
GeneratorScope::GeneratorScope(const Graph& graph, const at::Tensor& state) {
  if (!draws(graph)) return;
  saved_ = generator_state();
  set_generator(state);
}
GeneratorScope::~GeneratorScope() {
  if (saved_.defined()) set_generator(saved_);
}
bool generator_stands(const Graph& graph, const at::Tensor& state) { return !draws(graph) || bit_equal(generator_state(), state); }

}  // namespace tandem
