#include "trainers/compile_edge.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace tandem {
namespace {

using NodePtr = decltype(torch::autograd::Edge::function);

template <class T, class... Args>
NodePtr make_node(Args&&... args) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<T>(std::forward<Args>(args)...);
  else
    return c10::make_intrusive<T>(std::forward<Args>(args)...);
}

bool same_outputs(const TangentKey& a, const TangentKey& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) { return x.has_value() == y.has_value(); });
}

/// Whether a tangent can be copied into the layout: an expanded one has several elements in one place.
bool has_room(const TangentKey& layout, const torch::autograd::variable_list& tangents) {
  for (std::size_t i = 0; i < tangents.size(); i++)
    for (std::int64_t d = 0; tangents[i].defined() && d < tangents[i].dim(); d++)
      if (tangents[i].size(d) > 1 && (*layout[i])[std::size_t(d)] == 0) return false;
  return true;
}

bool plain(const at::Tensor& t) {
  return t.layout() == at::kStrided && t.has_storage() && !t.is_conj() && !t.is_neg() && !t._is_zerotensor();
}

}  // namespace

PlanEdge::PlanEdge(torch::autograd::edge_list&& next, CallState state) : Node(std::move(next)), state_(std::move(state)) {}

void PlanEdge::save(const std::vector<at::Tensor>& exposed, const std::vector<char>& output) {
  for (std::size_t i = 0; i < exposed.size(); i++) saved_.emplace_back(exposed[i], output[i] != 0);
}

PlannedBackward* PlanEdge::find(const TangentKey& key) {
  for (auto& b : state_.plan->backwards())
    if (b.key == key) return &b;
  return nullptr;
}

PlannedBackward* PlanEdge::find_by_place(const TangentKey& key) {
  for (auto& b : state_.plan->backwards())
    if (same_outputs(b.key, key)) return &b;
  return nullptr;
}

/// Throws in eager's own words where a saved value is gone or was overwritten since.
void PlanEdge::check_saved(const PlannedBackward& backward) {
  for (const auto& node : backward.frees) TORCH_CHECK(!freed_.count(node), torch::autograd::ERR_BACKWARD_TWICE);
  for (auto i : backward.guarded) saved_[i].unpack(getptr());
}

void PlanEdge::bind(const PlannedBackward& backward, const Tensors& tangents, RunInputs& in) const {
  in.storages.resize(state_.plan->captured().storages.size());
  in.scalars = state_.scalars;
  const auto& exposed = state_.plan->exposed();
  for (auto i : backward.guarded) in.storages[std::size_t(exposed[i].storage)] = state_.exposed[i];
  std::size_t k = 0;
  for (const auto& t : tangents) {
    if (!t.defined()) continue;
    if (const auto s = backward.tangents[k++]; s >= 0)
      in.storages[std::size_t(s)] = {t.storage(), t.storage_offset() * std::int64_t(t.itemsize())};
  }
}

PlanEdge::Tensors PlanEdge::run(PlannedBackward& backward, const Tensors& tangents) {
  check_saved(backward);
  auto& plan = *state_.plan;
  const auto link = plan.forwards() + std::size_t(&backward - plan.backwards().data());
  RunInputs in;
  bind(backward, tangents, in);
  auto& executor = plan.chain().executor(link);
  struct End {
    Executor& executor;
    ~End() { executor.end(); }
  } end{executor};
  plan.chain().run(link, in, state_.held);
  Tensors out(num_outputs());
  for (const auto& g : backward.gives) {
    auto& place = out[g.target];
    if (!g.outside) {
      place = executor.value(g.value);
    } else {
      const auto& value = plan.captured().values[std::size_t(g.value)];
      const auto& from = in.storages[std::size_t(value.storage)];
      for (const auto& t : tangents)  // the tangent itself where it is the gradient, as eager: who holds it decides whether it is copied
        if (t.defined() && t.is_alias_of(make_tensor(value, from.storage, from.shift)) && t.sizes() == value.sizes &&
            t.strides() == value.strides)
          place = t;
      if (!place.defined()) place = make_tensor(value, from.storage, from.shift);
    }
    if (g.copied) place = place.clone();
  }
  backward.used++;
  return out;
}

PlanEdge::Tensors PlanEdge::run_again(const TangentKey& key, const Tensors& tangents, bool differentiable) {
  for (const auto& node : state_.plan->frees(key)) TORCH_CHECK(!freed_.count(node), torch::autograd::ERR_BACKWARD_TWICE);
  if (auto* known = find_by_place(key)) check_saved(*known);
  TORCH_CHECK(state_.again, torch::autograd::ERR_BACKWARD_TWICE);
  state_.observed->say(differentiable
                           ? "a backward with create_graph ran the function again in eager: derivatives of derivatives are not compiled"
                           : "a backward brought tangents that no plan was made for: it ran the function again in eager, and a plan for "
                             "them is made with the next calls");
  return state_.again->gradients(tangents, differentiable);
}

PlanEdge::Tensors PlanEdge::apply(Tensors&& tangents) {
  const std::lock_guard lock(*state_.mutex);
  last_ = nullptr;
  last_key_ = TangentKey(tangents.size());
  bool any = false, all_plain = true;
  for (std::size_t i = 0; i < tangents.size(); i++) {
    if (!tangents[i].defined()) continue;
    any = true;
    all_plain &= plain(tangents[i]);
    if (tangents[i].layout() == at::kStrided) last_key_[i] = tangents[i].strides().vec();
  }
  if (!any) return Tensors(num_outputs());
  if (c10::GradMode::is_enabled()) return run_again(last_key_, tangents, true);
  last_ = all_plain ? find(last_key_) : nullptr;
  if (last_) return run(*last_, tangents);
  if (all_plain) state_.observed->backward(last_key_);
  last_ = find_by_place(last_key_);
  if (last_ && !has_room(last_->key, tangents)) last_ = nullptr;
  if (!last_) return run_again(last_key_, tangents, false);
  for (std::size_t i = 0; i < tangents.size(); i++)
    if (tangents[i].defined())
      tangents[i] = at::empty_strided(tangents[i].sizes(), *last_->key[i], tangents[i].options()).copy_(tangents[i]);
  return run(*last_, tangents);
}

/// Each backward frees what eager's autograd nodes on its way hold; what a backward from another output may still need stays.
void PlanEdge::release_variables() {
  const std::lock_guard lock(*state_.mutex);
  const auto frees = state_.plan->frees(last_key_);
  if (frees.empty()) return;
  freed_outputs_.resize(last_key_.size());
  for (std::size_t i = 0; i < last_key_.size(); i++) freed_outputs_[i] |= last_key_[i].has_value();
  freed_.insert(frees.begin(), frees.end());
  if (std::find(freed_outputs_.begin(), freed_outputs_.end(), false) == freed_outputs_.end()) state_.again.reset();
  std::set<std::size_t> places, exposed;
  auto& backwards = state_.plan->backwards();
  for (std::size_t m = 0; m < backwards.size(); m++) {
    const auto& b = backwards[m];
    if (std::any_of(b.frees.begin(), b.frees.end(), [&](const std::string& node) { return freed_.count(node) != 0; })) continue;
    for (const auto& c : state_.plan->chain()[state_.plan->forwards() + m].takes) places.insert(c.place);
    exposed.insert(b.guarded.begin(), b.guarded.end());
  }
  for (std::size_t i = 0; i < state_.held.size(); i++)
    if (!places.count(i)) state_.held[i] = {};
  for (std::size_t i = 0; i < saved_.size(); i++) {
    if (exposed.count(i)) continue;
    saved_[i].reset_data();
    state_.exposed[i] = {};
  }
}

namespace {

/// The tensor whose version counter tells whether exposed memory was overwritten.
at::Tensor tensor_of(const CallPlan& plan, const Exposed& e, const ModuleTensors& world, const std::vector<at::Tensor>& inputs,
                     const RunInputs& bound, const std::vector<CapturedStorage>& captured, const std::vector<at::Tensor>& outputs) {
  if (e.output >= 0) return outputs[std::size_t(e.output)];
  const auto& info = plan.captured().storages[std::size_t(e.storage)];
  if (info.role != Role::captured) return world.resolve(info.role, info.index, inputs);
  auto t = tensor_on(plan.captured(), e.storage, bound.storages[std::size_t(e.storage)]);
  if (const auto& counter = captured[std::size_t(info.index)].version; counter.enabled())
    t.unsafeGetTensorImpl()->set_version_counter(counter);
  return t;
}

}  // namespace

void connect(CallState state, const ModuleTensors& world, const std::vector<at::Tensor>& inputs, const RunInputs& bound,
             const std::vector<CapturedStorage>& captured, std::vector<at::Tensor>& outputs) {
  const auto plan = state.plan;
  const auto& call = plan->call();
  torch::autograd::edge_list next;
  for (const auto& t : call.targets)
    next.push_back(
        torch::autograd::impl::gradient_edge(t.input ? inputs[std::size_t(t.index)] : world.leaves()[std::size_t(t.index)].tensor));
  for (const auto& e : plan->exposed()) state.exposed.push_back(e.output >= 0 ? Binding{} : bound.storages[std::size_t(e.storage)]);
  auto node = make_node<PlanEdge>(std::move(next), std::move(state));
  for (std::size_t i = 0; i < outputs.size(); i++)
    if (call.differentiable[i]) torch::autograd::create_gradient_edge(outputs[i], node);
  std::vector<at::Tensor> exposed;
  std::vector<char> output;
  for (const auto& e : plan->exposed()) {
    exposed.push_back(tensor_of(*plan, e, world, inputs, bound, captured, outputs));
    output.push_back(e.output >= 0 && call.differentiable[std::size_t(e.output)]);
  }
  static_cast<PlanEdge&>(*node).save(exposed, output);
}

}  // namespace tandem
