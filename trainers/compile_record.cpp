#include "trainers/compile_record.h"

#include "autograd/autograd_graph.h"
#include "autograd/barrier.h"
#include "trainers/compile_replay.h"

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

std::vector<StorageId> outside_storages(const Graph& graph) {
  std::vector<StorageId> out;
  for (std::size_t s = 0; s < graph.storages.size(); s++)
    if (graph.storages[s].role != Role::internal) out.push_back(StorageId(s));
  return out;
}

std::string bind_call(const Graph& graph, const std::vector<StorageId>& ids, const Outside& outside, const ModuleTensors& world,
                      const std::vector<at::Tensor>& inputs, RunInputs& out) {
  out.storages.resize(graph.storages.size());
  for (StorageId s : ids) {
    const auto& info = graph.storages[std::size_t(s)];
    auto& b = out.storages[std::size_t(s)];
    if (info.role == Role::captured) {
      auto alive = outside.captured[std::size_t(info.index)].storage.lock();
      if (!alive) return "a tensor that the recorded call read is gone (" + info.name + "), expected it to live on";
      for (const auto& t : inputs)
        if (t.has_storage() && t.storage().unsafeGetStorageImpl() == alive.get())
          return "an input shares memory with a tensor that the function captured, expected separate memory as in the recorded call";
      b = {c10::Storage(std::move(alive)), 0};
    } else {
      if (info.role == Role::input && std::size_t(info.index) >= inputs.size()) continue;  // a tangent
      const auto t = world.resolve(info.role, info.index, inputs);
      if (!t.defined() || !t.has_storage())
        return fmt::format("{} '{}': expected a tensor as in the recorded call, found none", name_of(info.role), info.name);
      b = {t.storage(), 0};
      if (info.role == Role::input)
        b.shift = t.storage_offset() * std::int64_t(t.itemsize()) - outside.input_start[std::size_t(info.index)];
    }
    if (info.role != Role::input && std::int64_t(b.storage.nbytes()) != info.bytes)
      return fmt::format("{} '{}': expected {} bytes as in the recorded call, found {}", name_of(info.role), info.name, info.bytes,
                         b.storage.nbytes());
  }
  return "";
}

namespace {

/// The recorded graph with its inputs where another recording has them: batches are slices, and where one lies is no part of the call.
Graph placed_as(const RecordedCall& there, const RecordedCall& here) {
  auto graph = here.recording.graph;
  const auto& model = there.recording.graph;
  for (std::size_t s = 0; s < std::min(graph.storages.size(), model.storages.size()); s++)
    if (graph.storages[s].role == Role::input && model.storages[s].role == Role::input) graph.storages[s].bytes = model.storages[s].bytes;
  for (auto& v : graph.values) {
    const auto& storage = graph.storages[std::size_t(v.storage)];
    const auto i = std::size_t(storage.index);
    if (storage.role == Role::input && i < there.outside.input_start.size() && i < here.outside.input_start.size())
      v.offset += (there.outside.input_start[i] - here.outside.input_start[i]) / std::int64_t(c10::elementSize(v.dtype));
  }
  return graph;
}

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

class CallRecorder {
 public:
  CallRecorder(const RecordRequest& request, RecordedCall& out)
      : request_(request), out_(out), known_(request.world.known(request.inputs)), versions_(versions_of(known_)),
        recorder_(known_, request.audit) {
    first_sequence_ = autograd_sequence();
    out_.outside.input_start = starts_of(request.inputs);
    for (const auto& l : request_.world.leaves()) hooked_.push_back(has_hooks(l.tensor));
  }

  detail::Flat run() {
    take_snapshot();
    Barriers barriers(request_.inputs);
    const auto first_sequence = autograd_sequence();
    {
      ListenScope listen(recorder_);
      flat_ = request_.callee(request_.inputs);
      SilenceScope quiet;
      out_.outside.versions = version_deltas(known_, versions_);
      out_.counts = flat_.counts;
      look(first_sequence);
    }
    if (barriers.hooked()) refuse("the function puts a hook on an input in each call, expected hooks from outside only");
    if (!recorder_.refused()) run_backwards();
    barriers.lift(outputs());
    finish();
    if (request_.observed && !targets_.empty()) watch(flat_.tensors, out_.differentiable, request_.observed);
    return std::move(flat_);
  }

 private:
  const std::vector<at::Tensor>& outputs() const { return flat_.tensors; }

  /// Private copies of what the call will write, as far as the recording before tells.
  void take_snapshot() {
    if (!request_.before) return;
    const auto& graph = request_.before->recording.graph;
    RunInputs live;
    if (!bind_call(graph, outside_storages(graph), request_.before->outside, request_.world, request_.inputs, live).empty()) return;
    out_.eager.before = private_copy(graph, live);
    for (auto& b : out_.eager.before.storages) b.shift = 0;  // this call's graph says where its inputs lie
    for (const auto& b : live.storages) out_.eager.after.push_back(b.storage);
    out_.eager.generator_before = generator_state();
    out_.has_snapshot = true;
  }

  void refuse(std::string sentence) {
    out_.final_refusal = true;
    recorder_.refuse(std::move(sentence));
  }

  void look(std::uint64_t first_sequence) {
    out_.autograd = fingerprint_of(outputs(), first_sequence, request_.world);
    for (const auto& t : outputs()) {
      out_.differentiable.push_back(t.defined() && t.requires_grad());
      if (t.defined() && t.requires_grad() && t.layout() != at::kStrided) refuse("an output is not strided, expected dense outputs");
    }
    check_outputs();
    if (!c10::GradMode::is_enabled()) return;
    auto found = look_at_function(outputs(), request_.inputs, first_sequence);
    if (!found.refusal.empty()) return refuse(std::move(found.refusal));
    if (!found.host_code.empty()) return refuse(std::move(found.host_code));
    const auto& leaves = request_.world.leaves();
    for (std::size_t i = 0; i < leaves.size(); i++)
      if (has_hooks(leaves[i].tensor) != bool(hooked_[i]))
        return refuse("the function puts a gradient hook on '" + leaves[i].name + "' in each call, expected hooks from outside only");
    find_targets(found.leaves);
    for (std::size_t i = 0; i < outputs().size(); i++)
      if (out_.differentiable[i]) out_.reached.push_back(nodes_behind(outputs()[i], first_sequence_));
  }

  /// A result on memory from outside, or two results on the same memory, are views of each other for autograd; a plan's results are not.
  void check_outputs() {
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

  void find_targets(const std::vector<at::Tensor>& leaves) {
    constexpr long held_by_the_graph = 2;  // its AccumulateGrad and the list here: a leaf that the function itself made
    for (const auto& leaf : leaves) {
      const auto& known = request_.world.leaves();
      const auto at = std::find_if(known.begin(), known.end(), [&](const NamedTensor& l) { return l.tensor.is_same(leaf); });
      if (at != known.end()) {
        add_target({false, std::int32_t(at - known.begin())}, leaf);
      } else if (leaf.use_count() > held_by_the_graph && request_.world.add_leaf(leaf)) {
        recorder_.refuse("the function depends on a leaf that its module does not list: it is known from the next call on");
      }
    }
    for (std::size_t i = 0; i < request_.inputs.size(); i++)
      if (request_.inputs[i].requires_grad()) add_target({true, std::int32_t(i)}, request_.inputs[i]);
  }
  void add_target(Target target, const at::Tensor& tensor) {
    const auto same = [&](const at::Tensor& t) {
      return torch::autograd::impl::gradient_edge(t) == torch::autograd::impl::gradient_edge(tensor);
    };
    if (std::any_of(targets_.begin(), targets_.end(), same)) return;  // the same tensor in two places has one gradient
    out_.targets.push_back(target);
    targets_.push_back(tensor);
  }

  std::vector<TangentKey> keys() const {
    std::vector<TangentKey> list;
    std::size_t count = 0;
    for (char d : out_.differentiable) count += d != 0;
    for (const auto& key : request_.wanted)
      if (key.size() == count) list.push_back(key);
    if (!list.empty() || count == 0) return list;
    TangentKey all;
    for (std::size_t i = 0; i < outputs().size(); i++)
      if (out_.differentiable[i]) all.emplace_back(outputs()[i].strides().vec());
    return {all};
  }

  void run_backwards() {
    if (targets_.empty()) return;
    HooksAside aside(targets_);
    for (auto& key : keys()) run_backward(std::move(key));
  }

  void run_backward(TangentKey key) {
    RecordedBackward b;
    b.begin = recorder_.graph().nodes.size();
    b.first_tangent = std::int32_t(out_.outside.input_start.size());
    b.first_gradient = recorder_.graph().gradients.size();
    std::vector<at::Tensor> roots, tangents;
    for (std::size_t i = 0, k = 0; i < outputs().size(); i++) {
      if (!out_.differentiable[i] || !key[k++]) continue;
      const auto number = out_.outside.input_start.size();
      roots.push_back(outputs()[i]);
      tangents.push_back(make_tangent(outputs()[i], *key[k - 1], number + 1));
      out_.outside.input_start.push_back(0);
      recorder_.know({Role::input, std::int32_t(number), fmt::format("tangent {}", tangents_.size()), tangents.back()});
      tangents_.push_back(tangents.back());
    }
    recorder_.set_side(Side::backward);
    std::vector<at::Tensor> gradients;
    try {
      ListenScope listen(recorder_);
      gradients = torch::autograd::grad(roots, targets_, tangents, /*retain_graph=*/true, /*create_graph=*/false, /*allow_unused=*/true);
    } catch (const std::exception& e) {
      const std::string what = e.what();
      return refuse("its backward throws: " + what.substr(0, what.find('\n')));
    }
    for (std::size_t i = 0; i < gradients.size(); i++) {
      if (!gradients[i].defined()) continue;
      const auto name = name_of_target(out_.targets[i]);
      recorder_.graph().gradients.push_back(
          {std::int32_t(i), name, recorder_.value_of(gradients[i], "the gradient of '" + name + "'"), -1});
      gradients_.push_back(gradients[i]);
    }
    b.gradients = recorder_.graph().gradients.size() - b.first_gradient;
    b.key = std::move(key);
    out_.backwards.push_back(std::move(b));
  }

  std::string name_of_target(const Target& t) const {
    return t.input ? fmt::format("input {}", t.index) : request_.world.leaves()[std::size_t(t.index)].name;
  }

  void finish() {
    auto& graph = recorder_.graph();
    for (std::size_t i = 0; i < outputs().size(); i++)
      graph.outputs.push_back(recorder_.value_of(outputs()[i], fmt::format("output {}", i)));
    for (const auto& n : graph.nodes)
      for (auto s : n.writes)
        if (n.side == Side::backward && graph.storages[std::size_t(s)].role != Role::internal)
          refuse(describe(n) + " writes memory from before the backward, expected a backward that only computes");
    if (auto why = host_read(graph); !why.empty()) refuse(std::move(why));
    out_.recording = recorder_.finish();
    out_.outside.captured = out_.recording.captured;
    if (out_.has_snapshot) fill_eager();
    if (out_.recording.refusal.empty()) out_.recording.refusal = kept();
  }

  void fill_eager() {
    auto& eager = out_.eager;
    for (const auto& t : outputs()) eager.outputs.push_back(t.defined() ? t.detach() : t);
    eager.gradients.resize(gradients_.size());
    eager.kept = gradients_;
    eager.generator_after = generator_state();
    const auto& graph = out_.recording.graph;
    eager.before.storages.resize(graph.storages.size());
    eager.after.resize(graph.storages.size());
    const auto n = request_.inputs.size();
    for (std::size_t s = 0; s < graph.storages.size(); s++)
      if (const auto& info = graph.storages[s]; info.role == Role::input && std::size_t(info.index) >= n)
        eager.before.storages[s] = {tangents_[std::size_t(info.index) - n].storage(), 0};
  }

  /// Autograd holds what some backward reads, the caller holds the outputs; what else is alive the function itself keeps. Known only where all
  /// outputs are differentiated.
  std::string kept() const {
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
    if (escapes(out_.recording, exempt).empty()) return "";
    return "the function keeps a tensor that it made alive after its end, expected results only: a plan would not refresh it";
  }

  const RecordRequest& request_;
  RecordedCall& out_;
  std::vector<KnownTensor> known_;
  std::vector<std::uint32_t> versions_;
  std::vector<char> hooked_;
  Recorder recorder_;
  std::uint64_t first_sequence_ = 0;  // as the recorder's
  detail::Flat flat_;
  std::vector<at::Tensor> targets_, tangents_, gradients_;
};

}  // namespace

detail::Flat record_call(const RecordRequest& request, RecordedCall& out) { return CallRecorder(request, out).run(); }

std::string disagreement(const RecordedCall& before, const RecordedCall& now) {
  if (auto d = first_difference(before.recording.graph, placed_as(before, now)); !d.empty()) return d;
  if (before.backwards != now.backwards) return "the backwards that were recorded are others, expected the same tangents";
  if (before.differentiable != now.differentiable || before.counts != now.counts || before.targets != now.targets)
    return "what the function returns and depends on differs, expected the same outputs and leaves";
  return replaced(before.recording, now.recording);
}

}  // namespace tandem
