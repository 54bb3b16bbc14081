#include "trainers/compile_record.h"

#include "autograd/autograd_graph.h"
#include "autograd/key.h"
#include "trainers/recorded_step.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>

namespace tandem {

at::Tensor make_tangent(const at::Tensor& like, const std::vector<std::int64_t>& strides, std::uint64_t seed) {
  c10::AutoGradMode off(false);
  auto t = at::empty_strided(like.sizes(), strides, like.options().requires_grad(false));
  // Strides of zero: elements share memory, which ops refuse to write, so the memory is filled as one row.
  Value row;
  row.sizes = {std::int64_t(t.storage().nbytes() / t.itemsize())};
  row.strides = {1};
  row.dtype = t.scalar_type();
  auto flat = make_tensor(row, t.storage());
  if (t.is_floating_point() || t.is_complex())
    flat.normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(seed));
  else
    flat.fill_(1);
  return t;
}

namespace {

/// The autograd nodes of this call behind a result.
std::set<std::string> nodes_behind(const at::Tensor& result, std::uint64_t first_sequence) {
  using torch::autograd::Node;
  std::set<std::string> names;
  std::vector<Node*> todo{torch::autograd::impl::gradient_edge(result).function.get()};
  while (!todo.empty()) {
    auto* n = todo.back();
    todo.pop_back();
    const auto number = n->sequence_nr();
    if (number < first_sequence || number == std::uint64_t(-1)) continue;  // from before, or a leaf's
    if (!names.insert(n->name() + "#" + std::to_string(number - first_sequence)).second) continue;
    for (const auto& edge : n->next_edges())
      if (edge.function) todo.push_back(edge.function.get());
  }
  return names;
}

}  // namespace

std::uint64_t fingerprint_of(const std::vector<at::Tensor>& outputs, std::uint64_t first_sequence, const ModuleTensors& world) {
  if (!c10::GradMode::is_enabled()) return 0;
  LeafSet lasting;
  for (const auto& l : world.leaves()) lasting.insert(l.tensor.unsafeGetTensorImpl());
  std::uint64_t hash = 0;
  for (const auto& t : outputs) {
    const bool graph = t.defined() && t.requires_grad() && t.grad_fn();
    hash = hash * 1099511628211ull + (graph ? autograd_fingerprint(t, first_sequence, lasting) : t.defined() && t.requires_grad());
  }
  return hash;
}

void RecordedCall::drop_data() {
  eager = {};
  has_data = false;
  recording.outside.clear();
  recording.before.clear();
}

CallRecorder::CallRecorder(const RecordRequest& request)
    : request_(request), versions_(request.world.versions(request.inputs)), barriers_(request.inputs),
      first_sequence_(autograd_sequence()) {}

std::unique_ptr<Recorder> CallRecorder::start(bool audit, bool data) {
  known_ = request_.world.known(request_.inputs);
  out_.outside.input_start = starts_of(request_.inputs);
  auto recorder = std::make_unique<Recorder>(known_, audit);
  if (request_.fullgraph) recorder->forbid_host_reads();
  if (request_.pointers) recorder->expect_pointers(*request_.pointers);
  if (data) {
    recorder->copy_outside(request_.recorded);
    out_.has_data = true;
    generator_before_ = generator_state();
  }
  return recorder;
}

void CallRecorder::put_back_versions() {
  std::size_t i = 0;
  request_.world.for_each(request_.inputs, [&](Role, std::size_t, const std::string&, const at::Tensor& t) {
    const auto before = versions_[i++];
    if (version_of(t) == before) return;
    auto counter = t.unsafeGetTensorImpl()->version_counter();  // a handle on the same counter
    counter.set_version(before);
  });
}

RecordedCall CallRecorder::finish(Recorder& recorder, detail::Flat& flat) {
  recorder_ = &recorder;
  flat_ = &flat;
  recorder.end_forward();
  out_.outside.versions = version_deltas(known_, versions_);
  out_.counts = flat.counts;
  look();
  if (barriers_.hooked()) refuse("the function puts a hook on an input in each call, expected hooks from outside only");
  if (!recorder.refused()) run_backwards();
  barriers_.lift(outputs());
  finish_graph();
  if (!targets_.empty()) {
    out_.observed = std::make_shared<Observed>();
    watch(flat.tensors, out_.differentiable, out_.observed);
  }
  return std::move(out_);
}

void CallRecorder::refuse(std::string sentence) {
  out_.final_refusal = true;
  recorder_->refuse(std::move(sentence));
}

void CallRecorder::look() {
  out_.autograd = fingerprint_of(outputs(), first_sequence_, request_.world);
  for (const auto& t : outputs()) {
    out_.differentiable.push_back(t.defined() && t.requires_grad());
    if (t.defined() && t.requires_grad() && t.layout() != at::kStrided) refuse("an output is not strided, expected dense outputs");
  }
  check_outputs();
  if (!c10::GradMode::is_enabled()) return;
  auto found = look_at_function(outputs(), request_.inputs, first_sequence_);
  if (!found.refusal.empty()) return refuse(std::move(found.refusal));
  if (!found.host_code.empty()) return refuse(std::move(found.host_code));
  const auto& leaves = request_.world.leaves();
  for (std::size_t i = 0; i < leaves.size(); i++)
    if (has_hooks(leaves[i].tensor) != bool(request_.hooked[i]))
      return refuse("the function puts a gradient hook on '" + leaves[i].name + "' in each call, expected hooks from outside only");
  find_targets(found.leaves);
  for (std::size_t i = 0; i < outputs().size(); i++)
    if (out_.differentiable[i]) out_.reached.push_back(nodes_behind(outputs()[i], first_sequence_));
}

/// A result on memory from outside, or two results on the same memory, are views of each other for autograd; a plan's results are not.
void CallRecorder::check_outputs() {
  std::set<const void*> seen;
  for (std::size_t i = 0; i < outputs().size(); i++) {
    const auto& t = outputs()[i];
    if (!t.defined() || !t.has_storage()) continue;
    const void* storage = t.storage().unsafeGetStorageImpl();
    for (const auto& k : known_)
      if (k.tensor.defined() && k.tensor.has_storage() && k.tensor.storage().unsafeGetStorageImpl() == storage)
        return refuse(
            fmt::format("output {} is, or is a view of, {} '{}', expected results with memory of their own", i, name_of(k.role), k.name));
    if (!seen.insert(storage).second)
      return refuse(fmt::format("output {} shares memory with another output, expected results with memory of their own", i));
  }
}

void CallRecorder::find_targets(const std::vector<at::Tensor>& leaves) {
  constexpr long held_by_the_graph = 2;  // its AccumulateGrad and the list here: a leaf that the function itself made
  for (const auto& leaf : leaves) {
    const auto& known = request_.world.leaves();
    const auto at = std::find_if(known.begin(), known.end(), [&](const NamedTensor& l) { return l.tensor.is_same(leaf); });
    if (at != known.end()) {
      add_target({false, std::int32_t(at - known.begin())}, leaf);
    } else if (leaf.use_count() > held_by_the_graph && request_.world.add_leaf(leaf)) {
      recorder_->refuse("the function depends on a leaf that its module does not list: it is known from the next call on");
    }
  }
  for (std::size_t i = 0; i < request_.inputs.size(); i++)
    if (request_.inputs[i].requires_grad()) add_target({true, std::int32_t(i)}, request_.inputs[i]);
}
void CallRecorder::add_target(Target target, const at::Tensor& tensor) {
  const auto same = [&](const at::Tensor& t) {
    return torch::autograd::impl::gradient_edge(t) == torch::autograd::impl::gradient_edge(tensor);
  };
  if (std::any_of(targets_.begin(), targets_.end(), same)) return;  // the same tensor in two places has one gradient
  out_.targets.push_back(target);
  targets_.push_back(tensor);
}

std::vector<TangentKey> CallRecorder::keys() {
  std::vector<TangentKey> list;
  std::size_t count = 0;
  for (char d : out_.differentiable) count += d != 0;
  if (request_.wanted)
    for (auto& key : request_.wanted(recorder_->graph()))
      if (key.size() == count) list.push_back(std::move(key));
  if (!list.empty() || count == 0) return list;
  TangentKey all;
  for (std::size_t i = 0; i < outputs().size(); i++)
    if (out_.differentiable[i]) all.emplace_back(outputs()[i].strides().vec());
  return {all};
}

void CallRecorder::run_backwards() {
  if (targets_.empty()) return;
  HooksAside aside(targets_);
  for (auto& key : keys()) run_backward(std::move(key));
}

void CallRecorder::run_backward(TangentKey key) {
  RecordedBackward b;
  b.begin = recorder_->graph().nodes.size();
  b.first_tangent = std::int32_t(out_.outside.input_start.size());
  b.first_gradient = recorder_->graph().gradients.size();
  std::vector<at::Tensor> roots, tangents;
  for (std::size_t i = 0, k = 0; i < outputs().size(); i++) {
    if (!out_.differentiable[i] || !key[k++]) continue;
    const auto number = out_.outside.input_start.size();
    roots.push_back(outputs()[i]);
    tangents.push_back(make_tangent(outputs()[i], *key[k - 1], number + 1));
    out_.outside.input_start.push_back(0);
    recorder_->know({Role::input, std::int32_t(number), fmt::format("tangent {}", tangents_.size()), tangents.back()});
    tangents_.push_back(tangents.back());
  }
  recorder_->set_side(Side::backward);
  std::vector<at::Tensor> gradients;
  try {
    ListenScope listen(*recorder_);
    gradients = torch::autograd::grad(roots, targets_, tangents, /*retain_graph=*/true, /*create_graph=*/false, /*allow_unused=*/true);
  } catch (const std::exception& e) {
    const std::string what = e.what();
    return refuse("its backward throws: " + what.substr(0, what.find('\n')));
  }
  for (std::size_t i = 0; i < gradients.size(); i++) {
    if (!gradients[i].defined()) continue;
    const auto name = name_of_target(out_.targets[i]);
    recorder_->graph().gradients.push_back(
        {std::int32_t(i), name, recorder_->value_of(gradients[i], "the gradient of '" + name + "'"), -1});
    gradients_.push_back(gradients[i]);
  }
  b.gradients = recorder_->graph().gradients.size() - b.first_gradient;
  b.key = std::move(key);
  out_.backwards.push_back(std::move(b));
}

std::string CallRecorder::name_of_target(const Target& t) const {
  return t.input ? fmt::format("input {}", t.index) : request_.world.leaves()[std::size_t(t.index)].name;
}

void CallRecorder::finish_graph() {
  auto& graph = recorder_->graph();
  for (std::size_t i = 0; i < outputs().size(); i++)
    graph.outputs.push_back(recorder_->value_of(outputs()[i], fmt::format("output {}", i)));
  for (const auto& n : graph.nodes) {
    if (n.side != Side::backward) continue;
    for (auto s : n.writes)
      if (graph.storages[std::size_t(s)].role != Role::internal)
        refuse(describe(n) + " writes memory from before the backward, expected a backward that only computes");
    if (n.effects.host_read) refuse("the backward reads a number in " + describe(n) + ", expected none");
  }
  out_.recording = recorder_->finish();
  out_.outside.captured = out_.recording.captured;
  out_.has_data = out_.has_data && out_.recording.refusal.empty() && copied_all(out_.recording);
  if (out_.has_data) take_data();
  if (out_.recording.refusal.empty() && !request_.called) out_.recording.refusal = kept();
}

void CallRecorder::take_data() {
  auto& eager = out_.eager;
  tandem::take_data(out_.recording, generator_before_, eager);
  for (const auto& t : outputs()) eager.outputs.push_back(t.defined() ? t.detach() : t);
  eager.gradients.resize(gradients_.size());
  eager.kept = gradients_;
}

/// Autograd holds what some backward reads, the caller holds the outputs; what else is alive the function itself keeps. Known only where all
/// outputs are differentiated.
std::string CallRecorder::kept() const {
  const auto& graph = out_.recording.graph;
  const auto is_full = [](const RecordedBackward& b) {
    return std::all_of(b.key.begin(), b.key.end(), [](const auto& k) { return k.has_value(); });
  };
  const bool none = std::find(out_.differentiable.begin(), out_.differentiable.end(), true) == out_.differentiable.end();
  if (!none && std::none_of(out_.backwards.begin(), out_.backwards.end(), is_full)) return "";
  std::vector<c10::StorageImpl*> exempt;
  auto spare = [&](const at::Tensor& t) {
    if (t.defined() && t.has_storage()) exempt.push_back(t.storage().unsafeGetStorageImpl());
  };
  for (const auto& t : outputs()) spare(t);
  for (const auto& t : gradients_) spare(t);
  for (const auto& n : graph.nodes)
    if (n.side == Side::backward)
      for_each_value(n.args, [&](ValueId v) {
        exempt.push_back(out_.recording.storages[std::size_t(graph.values[std::size_t(v)].storage)]._unsafe_get_target());
      });
  return escaped(out_.recording, exempt);
}

detail::Flat record_call(const RecordRequest& request, bool audit, bool data, RecordedCall& out) {
  CallRecorder call(request);
  auto recorder = call.start(audit, data);
  detail::Flat flat;
  {
    ListenScope listen(*recorder);
    flat = request.callee(request.inputs);
  }
  out = call.finish(*recorder, flat);
  return flat;
}

}  // namespace tandem
