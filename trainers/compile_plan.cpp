#include "trainers/compile_plan.h"

#include "autograd/passes/emitter.h"
#include "autograd/support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tandem {
namespace {

/// Memory that the caller may change between forward and backward although eager's autograd does not save it: the backward must not read it. A node at
/// the end that writes it tells the partitioner so; it is taken out again.
Graph with_pins(const Graph& g, const std::set<StorageId>& readable) {
  std::vector<char> named(g.storages.size(), false), exposed(g.storages.size(), false);
  std::vector<std::int32_t> version(g.storages.size(), 0);
  for (const auto& n : g.nodes) {
    for_each_value(n.args, [&](ValueId v) { named[std::size_t(g.values[std::size_t(v)].storage)] = true; });
    for (auto s : n.writes) version[std::size_t(s)]++;
  }
  for (std::size_t s = 0; s < exposed.size(); s++) exposed[s] = g.storages[s].role != Role::internal && named[s];
  for (auto v : g.outputs)
    if (v >= 0) exposed[std::size_t(g.values[std::size_t(v)].storage)] = true;
  Graph out = g;
  NodeId next = 0;
  for (const auto& n : g.nodes) next = std::max(next, n.id + 1);
  for (std::size_t s = 0; s < exposed.size(); s++) {
    if (!exposed[s] || readable.count(StorageId(s))) continue;
    Value before;
    before.storage = StorageId(s);
    for (const auto& v : g.values)
      if (v.storage == StorageId(s)) before = v;
    before.version = version[s];
    auto after = before;
    after.version++;
    Node pin;
    pin.id = next++;
    pin.op = overwriting_op();
    pin.side = Side::backward;
    pin.writes = {StorageId(s)};
    for (auto* list : {&pin.args, &pin.results}) {
      out.values.push_back(list == &pin.args ? before : after);
      auto& a = list->emplace_back();
      a.kind = Argument::Kind::tensor;
      a.values = {ValueId(out.values.size() - 1)};
    }
    out.nodes.push_back(std::move(pin));
  }
  return out;
}

Graph without_pins(Graph g, NodeId first) {
  std::erase_if(g.nodes, [&](const Node& n) { return n.id >= first && n.op == overwriting_op(); });
  return g;
}

std::size_t first_backward(const Graph& g) {
  const auto at = std::find_if(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return n.side == Side::backward; });
  if (std::any_of(at, g.nodes.end(), [](const Node& n) { return n.side == Side::forward; }))
    throw InternalError("a forward node stands behind a backward one, expected the forward to come first");
  return std::size_t(at - g.nodes.begin());
}

}  // namespace

CallPlan::CallPlan(const RecordedCall& call, std::vector<Derived> derived, const PlanSwitches& switches, const jit::Settings& jit)
    : call_(call), derived_(std::move(derived)) {
  const auto& g = captured();
  call_.drop_data();
  inputs_ = call_.inputs();
  born_.assign(g.storages.size(), -1);
  for (std::size_t i = 0; i < g.nodes.size(); i++) {
    random_ |= g.nodes[i].effects.random;
    for_each_value(g.nodes[i].results, [&](ValueId v) {
      const auto s = std::size_t(g.values[std::size_t(v)].storage);
      if (g.storages[s].role == Role::internal && born_[s] < 0) born_[s] = std::int64_t(i);
    });
  }
  overwritten_ = written_outside(g);
  auto parts = parts_of(call_.recording, /*forward_first=*/false);
  forwards_ = parts.parts.size();
  make_chain(switches, parts, jit);
  tape_ = std::make_unique<Tape>(call_.recording, call_.forward_end(), std::move(parts));
  for (std::size_t m = 0; m < call_.backwards.size(); m++) describe_backward(m);
}

bool CallPlan::is_tangent(StorageId s) const {
  const auto& info = captured().storages[std::size_t(s)];
  return info.role == Role::input && std::size_t(info.index) >= inputs_;
}

std::size_t CallPlan::end_of(std::size_t m) const {
  return m + 1 < call_.backwards.size() ? call_.backwards[m + 1].begin : captured().nodes.size();
}

/// What the nodes of one backward read and the forward, or nobody, made: the tensors that eager's autograd saved.
std::set<StorageId> CallPlan::saved_by_eager(std::size_t m) const {
  const auto& g = captured();
  std::set<StorageId> out;
  for (std::size_t i = call_.backwards[m].begin; i < end_of(m); i++)
    for_each_value(g.nodes[i].args, [&](ValueId v) {
      const auto s = g.values[std::size_t(v)].storage;
      if (!is_tangent(s) && born_[std::size_t(s)] < std::int64_t(call_.backwards.front().begin)) out.insert(s);
    });
  return out;
}

/// One backward: forward and backward are chosen together, so that the backward may make again what is dear to keep. Several: what one of them makes
/// again another would miss, so each reads what eager saves.
/// Nor is anything made again across the places where the host waits for a value.
std::vector<Segment> CallPlan::segments(const PlanSwitches& switches, const Parts& parts, bool recompute) {
  auto drop = [&](Graph& g) { std::erase_if(g.nodes, [&](const Node& n) { return parts.free_reads[std::size_t(n.id)] != 0; }); };
  if (call_.backwards.size() != 1 || forwards_ > 1 || !recompute) {
    std::vector<std::size_t> at;
    for (std::size_t i = 1; i < forwards_; i++) at.push_back(parts.parts[i].begin);
    for (const auto& b : call_.backwards) at.push_back(b.begin);
    auto out = cut(captured(), at, parts.alive);
    for (auto& segment : out) drop(segment.graph);
    return out;
  }
  auto ours = captured();
  drop(ours);
  auto passes = switches.passes;
  passes.fold = false;  // what runs once in one part would be missing in the other
  const auto whole = run_passes(ours, passes);
  NodeId first = 0;
  for (const auto& n : whole.nodes) first = std::max(first, n.id + 1);
  auto made = partition(with_pins(whole, saved_by_eager(0)), switches.partition);
  const auto graph = without_pins(std::move(made.graph), first);
  recomputed_nodes_ = std::int64_t(made.partition.recomputed.size());
  recomputed_bytes_ = made.partition.recomputed_bytes;
  return cut(graph, {first_backward(graph)});
}

void CallPlan::make_chain(const PlanSwitches& switches, const Parts& parts, const jit::Settings& jit) {
  auto each = switches;
  each.partition.recompute = false;  // chosen for the whole already
  for (bool recompute : {switches.partition.recompute, false}) {
    recomputed_nodes_ = recomputed_bytes_ = 0;
    chain_ = std::make_unique<Chain>(segments(switches, parts, recompute), captured().outputs.size() + parts.alive.size(), each, jit);
    if (reads_only_what_eager_saves()) return;
  }
  throw InternalError("a backward plan reads memory that eager's backward does not, expected none");
}

bool CallPlan::reads_only_what_eager_saves() const {
  std::set<StorageId> outputs;
  for (auto v : captured().outputs)
    if (v >= 0) outputs.insert(captured().values[std::size_t(v)].storage);
  for (std::size_t m = 0; m < call_.backwards.size(); m++) {
    const auto saved = saved_by_eager(m);
    const auto& part = (*chain_)[forwards_ + m].plan->graph;
    bool sound = true;
    for (const auto& n : part.nodes)
      for_each_value(n.args, [&](ValueId v) {
        const auto s = part.values[std::size_t(v)].storage;
        const auto role = part.storages[std::size_t(s)].role;
        const bool open = role == Role::carried ? outputs.count(s) != 0 : role != Role::internal && !is_tangent(s);
        sound &= !open || saved.count(s) != 0;
      });
    if (!sound) return false;
  }
  return true;
}

void CallPlan::describe_backward(std::size_t m) {
  const auto& g = captured();
  const auto& recorded = call_.backwards[m];
  PlannedBackward out;
  out.key = recorded.key;
  auto output_on = [&](StorageId s) {
    const auto at =
        std::find_if(g.outputs.begin(), g.outputs.end(), [&](ValueId v) { return v >= 0 && g.values[std::size_t(v)].storage == s; });
    return at == g.outputs.end() ? -1 : std::int32_t(at - g.outputs.begin());
  };
  for (auto s : saved_by_eager(m)) {
    const auto output = output_on(s);
    if (g.storages[std::size_t(s)].role == Role::internal && output < 0) continue;
    auto at = std::find_if(exposed_.begin(), exposed_.end(), [&](const Exposed& e) { return e.storage == s; });
    if (at == exposed_.end()) at = exposed_.insert(exposed_.end(), {s, output});
    out.guarded.push_back(std::size_t(at - exposed_.begin()));
  }
  const auto forward_end = std::int64_t(call_.backwards.front().begin);
  for (std::size_t i = recorded.begin; i < end_of(m); i++)
    for_each_value(g.nodes[i].args, [&](ValueId v) {
      const auto s = g.values[std::size_t(v)].storage;
      if (!is_tangent(s) && born_[std::size_t(s)] < forward_end) out.frees.insert(g.nodes[i].ran_for);
    });
  const auto present = std::int32_t(std::count_if(recorded.key.begin(), recorded.key.end(), [](const auto& k) { return k.has_value(); }));
  out.tangents.assign(std::size_t(present), -1);
  for (std::size_t s = 0; s < g.storages.size(); s++)
    if (const auto i = g.storages[s].index - recorded.first_tangent; is_tangent(StorageId(s)) && i >= 0 && i < present)
      out.tangents[std::size_t(i)] = StorageId(s);
  const auto& part = (*chain_)[forwards_ + m].plan->graph;
  for (std::size_t i = recorded.first_gradient; i < recorded.first_gradient + recorded.gradients; i++) {
    const auto value = g.gradients[i].value;
    const auto s = g.values[std::size_t(value)].storage;
    PlannedBackward::Gives gives{std::size_t(g.gradients[i].leaf), part.gradients[i].value, false};
    if (g.storages[std::size_t(s)].role != Role::internal) {
      if (!is_tangent(s))
        throw Error("the gradient of '" + g.gradients[i].name + "' is memory from outside, expected a new tensor or the tangent");
      gives.value = value;
      gives.outside = true;
    } else if (gives.value < 0) {
      throw Error("the gradient of '" + g.gradients[i].name + "' is made by the forward, expected the backward to make it");
    }
    out.gives.push_back(gives);
  }
  auto memory = [&](const PlannedBackward::Gives& x) { return (x.outside ? g : part).values[std::size_t(x.value)].storage; };
  for (auto& x : out.gives) {
    x.copied = !x.outside && part.storages[std::size_t(memory(x))].role == Role::carried;
    for (const auto& y : out.gives) x.copied |= x.value != y.value && memory(x) == memory(y);
  }
  backwards_.push_back(std::move(out));
}

void CallPlan::derive_numbers(std::vector<double>& scalars) const {
  for (const auto& d : derived_)
    scalars[std::size_t(tape_->scalar_of(d.number))] = derive(d.how, scalars[std::size_t(tape_->scalar_of(d.from))]);
}

std::set<std::string> CallPlan::frees(const TangentKey& key) const {
  std::set<std::string> out;
  for (std::size_t i = 0; i < key.size() && i < call_.reached.size(); i++) {
    if (!key[i]) continue;
    for (const auto& b : backwards_)
      std::set_intersection(b.frees.begin(), b.frees.end(), call_.reached[i].begin(), call_.reached[i].end(),
                            std::inserter(out, out.end()));
  }
  return out;
}

}  // namespace tandem
