#include "trainers/compile_again.h"

#include "autograd/autograd_graph.h"
#include "autograd/barrier.h"
#include "autograd/key.h"
#include "trainers/recorded_step.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace tandem {
namespace {

bool counted(const at::Tensor& t) { return t.defined() && !t.is_inference(); }

at::Tensor handle_on(const at::Tensor& t) {
  auto* impl = t.unsafeGetTensorImpl();
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/false));
}

}  // namespace

Again::Again(const detail::Callee& callee, std::shared_ptr<ModuleTensors> world, std::shared_ptr<CallPlan> plan,
             const std::vector<at::Tensor>& inputs, const Again* before)
    : callee_(callee), world_(std::move(world)), plan_(std::move(plan)), training_(world_->training()) {
  for (const auto& t : inputs) {
    Input in;
    // A tensor that is no leaf may become part of a graph that this call is part of: holding it would be a circle.
    in.tensor = t.requires_grad() && t.is_leaf() ? t : handle_on(t);
    if (t.requires_grad() && !t.is_leaf()) in.edge = torch::autograd::impl::gradient_edge(t);
    in.first =
        std::size_t(std::find_if(inputs.begin(), inputs.end(), [&](const at::Tensor& other) { return other.is_same(t); }) - inputs.begin());
    inputs_.push_back(std::move(in));
  }
  if (before) {
    overwritten_ = before->overwritten_;
    generator_ = before->generator_;
  } else if (plan_->random()) {
    generator_ = generator_state();
  }
}

void Again::copy(const RunInputs& bound) {
  for (auto s : plan_->overwritten()) {
    const auto& storage = bound.storages[std::size_t(s)].storage;
    const auto is = [&](const Overwritten& o) { return o.storage.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl(); };
    if (!storage || std::any_of(overwritten_.begin(), overwritten_.end(), is)) continue;
    const auto* data = static_cast<const char*>(storage.data());
    overwritten_.push_back({storage, std::vector<char>(data, data + storage.nbytes())});
  }
}

void Again::follow_up(std::vector<CapturedStorage> captured, std::vector<double> scalars) {
  captured_ = std::move(captured);
  scalars_ = std::move(scalars);
  for (auto& in : inputs_) in.version = version_of(in.tensor);
  auto note = [&](const at::Tensor& t) {
    const auto is = [&](const Overwritten& o) {
      return t.has_storage() && o.storage.unsafeGetStorageImpl() == t.storage().unsafeGetStorageImpl();
    };
    if (counted(t) && std::none_of(overwritten_.begin(), overwritten_.end(), is)) versions_.emplace_back(t, version_of(t));
  };
  for (const auto& l : world_->leaves()) note(l.tensor);
  for (const auto& b : world_->buffers()) note(b.tensor);
}

/// Memory from before the call, as it was before, and the generator; both go back to where they are now.
class Again::Rewind {
 public:
  explicit Rewind(const Again& again) : again_(again), counters_(again.counters()) {
    for (const auto& o : again_.overwritten_) {
      auto* data = static_cast<char*>(const_cast<c10::Storage&>(o.storage).mutable_data());
      now_.emplace_back(data, data + o.storage.nbytes());
      std::memcpy(data, o.before.data(), o.before.size());
    }
    for (const auto& c : counters_) versions_.push_back(c.current_version());
    if (again_.generator_.defined()) generator_.emplace(again_.generator_);
  }
  ~Rewind() {
    for (std::size_t i = 0; i < now_.size(); i++)
      std::memcpy(const_cast<c10::Storage&>(again_.overwritten_[i].storage).mutable_data(), now_[i].data(), now_[i].size());
    for (std::size_t i = 0; i < counters_.size(); i++) counters_[i].set_version(versions_[i]);
  }

 private:
  const Again& again_;
  std::vector<c10::VariableVersion> counters_;
  std::vector<std::uint32_t> versions_;
  std::vector<std::vector<char>> now_;
  std::optional<GeneratorScope> generator_;
};

std::vector<c10::VariableVersion> Again::counters() const {
  std::vector<c10::VariableVersion> out;
  std::vector<at::Tensor> inputs;
  for (const auto& in : inputs_) inputs.push_back(in.tensor);
  for (auto s : plan_->overwritten()) {
    const auto& info = plan_->captured().storages[std::size_t(s)];
    if (info.role == Role::captured) {
      out.push_back(captured_[std::size_t(info.index)].version);
    } else if (const auto t = world_->resolve(info.role, info.index, inputs); counted(t)) {
      out.push_back(t.unsafeGetTensorImpl()->version_counter());
    }
  }
  std::erase_if(out, [](const c10::VariableVersion& v) { return !v.enabled(); });
  return out;
}

void Again::check() const {
  constexpr const char* why = "this backward runs the function again (create_graph, or tangents that no plan was made for), expected ";
  for (std::size_t i = 0; i < inputs_.size(); i++)
    if (version_of(inputs_[i].tensor) != inputs_[i].version)
      throw Error(fmt::format("{}input {} unchanged since the forward, found it overwritten", why, i));
  for (const auto& [t, version] : versions_)
    if (version_of(t) != version)
      throw Error(fmt::format("{}parameters and buffers unchanged since the forward, found one overwritten", why));
  if (world_->training() != training_) throw Error(fmt::format("{}the train flags of the forward, found others", why));
}

std::vector<at::Tensor> Again::inputs_again() const {
  std::vector<at::Tensor> out;
  for (const auto& in : inputs_) {
    const bool again = in.first < out.size();
    out.push_back(again ? out[in.first] : in.edge.is_valid() ? handle_on(in.tensor) : in.tensor);
    if (in.edge.is_valid() && !again) torch::autograd::impl::set_gradient_edge(out.back(), in.edge);
  }
  return out;
}

/// The function once more; it must do what it did, with the numbers that it had then.
detail::Flat Again::call(const std::vector<at::Tensor>& inputs) const {
  Recorder recorder(world_->known(inputs), /*audit=*/false);
  detail::Flat flat;
  {
    ListenScope listen(recorder);
    flat = callee_(inputs);
  }
  auto now = recorder.finish();
  const auto& call = plan_->call();
  auto then = calls_of(call.recording.graph, call.forward_end());
  for (auto* graph : {&then, &now.graph})  // what autograd noted depends on who asked, and on what was done with the results
    for (auto& n : graph->nodes) {
      n.ran_for.clear();
      n.created.clear();
    }
  Outside here;
  here.input_start = starts_of(inputs);
  EagerStep none;
  place_as(then, call.outside, now.graph, here, none, inputs.size());
  auto why = now.refusal.empty() ? moved_numbers(then, calls_of(now.graph, now.graph.nodes.size())).difference : now.refusal;
  if (why.empty())
    for (const auto& p : numbers_of(then)) {
      const auto& number = then.nodes[std::size_t(p.node)].args[std::size_t(p.arg)];
      const auto expected = number.scalar < 0 ? value_of(number) : scalars_[std::size_t(number.scalar)];
      if (!same_bits(expected, value_of(now.graph.nodes[std::size_t(p.node)].args[std::size_t(p.arg)])))
        why = "another number in " + describe(then.nodes[std::size_t(p.node)]);
    }
  if (!why.empty())
    throw Error(
        "this backward runs the function again (create_graph, or tangents that no plan was made for), expected it to do what it did in the "
        "forward, found: " +
        why);
  return flat;
}

std::vector<at::Tensor> Again::gradients(const std::vector<at::Tensor>& tangents, bool differentiable) const {
  check();
  c10::AutoGradMode on(true);
  Rewind rewind(*this);
  const auto inputs = inputs_again();
  Barriers barriers(inputs);
  const auto flat = call(inputs);
  const auto& call = plan_->call();
  std::vector<at::Tensor> roots, given, targets;
  std::size_t k = 0;
  for (std::size_t i = 0; i < flat.tensors.size() && i < call.differentiable.size(); i++) {
    if (!call.differentiable[i]) continue;
    const auto& tangent = tangents[k++];
    if (!tangent.defined()) continue;
    if (!flat.tensors[i].requires_grad())
      throw Error("this backward runs the function again, expected the outputs of the recorded call, found others");
    roots.push_back(flat.tensors[i]);
    given.push_back(tangent);
  }
  for (const auto& t : call.targets)
    targets.push_back(t.input ? inputs[std::size_t(t.index)] : world_->leaves()[std::size_t(t.index)].tensor);
  HooksAside aside(targets);
  auto out = torch::autograd::grad(roots, targets, given, differentiable, differentiable, /*allow_unused=*/true);
  barriers.lift(out);
  return out;
}

}  // namespace tandem
