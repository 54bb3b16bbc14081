#include "runtime/execute.h"

#include "autograd/formula.h"
#include "autograd/key.h"
#include "autograd/liveness.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

namespace tandem {
namespace {

bool needs_nothing(const Graph& g, const Node& n) {
  const auto f = formula_of(g, n);
  return f && f->has(Term::arbitrary) && n.effects == Effects{};
}

c10::Storage make_storage(std::int64_t bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::GetAllocator(c10::DeviceType::CPU), /*resizable=*/true);
}

}  // namespace

Executor::Executor(const Plan& plan, const jit::Settings& jit)
    : plan_(plan), index_(index_calls(plan)), slots_(plan.graph), escaped_(plan.graph.storages.size()),
      shortest_us_(plan.program.calls.size(), std::numeric_limits<double>::infinity()) {
  if (!plan.program.kernels.empty()) module_ = jit::compile(c_source(plan.program), jit);
  const auto uses = storage_uses(plan.graph, plan.program);
  first_use_ = uses.first;
  last_use_ = uses.last;
  place_arena();
  const auto to_release = releases(plan.graph, plan.program, plan.memory);
  actions_.resize(plan.program.calls.size());
  for (std::size_t k = 0; k < actions_.size(); k++) {
    prepare(k);
    actions_[k].to_release = to_release[k];
    for (StorageId s : uses.of_call[k])
      if (const auto home = plan.memory.homes[std::size_t(s)];
          uses.first[std::size_t(s)] == std::int32_t(k) && (home == Home::own || home == Home::escapes))
        actions_[k].to_allocate.push_back(s);
  }
  run_folded();
}

void Executor::place_arena() {
  // Without a byte there may be blocks still: of empty tensors.
  if (plan_.memory.arena_bytes > 0) arena_ = c10::GetAllocator(c10::DeviceType::CPU)->allocate(std::size_t(plan_.memory.arena_bytes));
  for (const auto& b : plan_.memory.blocks) {
    if (b.storage < 0) continue;
    auto* at = static_cast<char*>(arena_.get()) + b.offset;
    const auto bytes = plan_.graph.storages[std::size_t(b.storage)].bytes;
    slots_.place(b.storage, c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(at, c10::DeviceType::CPU), nullptr, false));
    slots_.keep(b.storage);
  }
}

void Executor::prepare(std::size_t k) {
  const auto& call = plan_.program.calls[k];
  const auto& graph = plan_.graph;
  auto& action = actions_[k];
  if (call.kind == Call::Kind::kernel) {
    void* workspace = nullptr;
    for (const auto& b : plan_.memory.blocks)
      if (b.storage < 0 && b.first == std::int32_t(k)) workspace = static_cast<char*>(arena_.get()) + b.offset;
    action.what = Action::What::kernels;
    action.number = kernel_calls_.size();
    kernel_calls_.emplace_back(graph, plan_.program, call, *module_, workspace);
  }
  if (call.kind != Call::Kind::library) return;
  const auto& node = graph.nodes[index_.nodes[k].front()];
  bool given = node.writes.empty() && !node.results.empty();
  for_each_value(node.results, [&](ValueId v) {
    const auto home = plan_.memory.homes[std::size_t(graph.values[std::size_t(v)].storage)];
    given &= home == Home::arena || home == Home::own || home == Home::escapes;
  });
  if (given && needs_nothing(graph, node)) return;
  if (given && plan_.memory.blas && BlasCall::can_run(graph, node)) {
    action.what = Action::What::blas;
    action.number = blas_calls_.size();
    blas_calls_.emplace_back(graph, node);
    return;
  }
  action.what = Action::What::dispatch;
  action.number = node_calls_.size();
  const auto out = given ? out_overload(graph, node) : std::nullopt;
  out ? node_calls_.emplace_back(graph, node, *out) : node_calls_.emplace_back(graph, node);
}

void Executor::run_folded() {
  ReplayScope below;
  for (std::size_t k = 0; k < actions_.size(); k++) {
    if (plan_.program.calls[k].kind != Call::Kind::once) continue;
    const auto& n = plan_.graph.nodes[index_.nodes[k].front()];
    NodeCall(plan_.graph, n).run(slots_, {}, stack_);
    for_each_value(n.results, [&](ValueId v) { slots_.keep(plan_.graph.values[std::size_t(v)].storage); });
  }
}

/// A buffer that the caller has let go of, else a new one; the two latest are remembered.
void Executor::allocate(StorageId s) {
  const auto bytes = plan_.graph.storages[std::size_t(s)].bytes;
  if (plan_.memory.homes[std::size_t(s)] == Home::own) return slots_.place(s, make_storage(bytes));
  auto& buffers = escaped_[std::size_t(s)];
  const auto free = std::find_if(buffers.begin(), buffers.end(),
                                 [&](const c10::Storage& b) { return b.use_count() == 1 && b.nbytes() == std::size_t(bytes); });
  if (free != buffers.end()) return slots_.place(s, *free);
  constexpr std::size_t remembered = 2;
  if (buffers.size() == remembered) buffers.erase(buffers.begin());
  buffers.push_back(make_storage(bytes));
  slots_.place(s, buffers.back());
}

void Executor::act(const Action& action, const std::vector<double>& scalars) {
  switch (action.what) {
    case Action::What::nothing: return;
    case Action::What::dispatch: return node_calls_[action.number].run(slots_, scalars, stack_);
    case Action::What::blas: return blas_calls_[action.number].run(slots_, scalars);
    case Action::What::kernels: return kernel_calls_[action.number].run(slots_, scalars);
  }
}

void Executor::run(const RunInputs& inputs, const Probe& probe) {
  slots_.release_internal();
  slots_.bind(inputs);
  failed_ = reached_ = -1;
  if (poisoned_ && arena_) std::memset(arena_.get(), 0xff, std::size_t(plan_.memory.arena_bytes));
  ReplayScope below;
  for (std::size_t k = 0; k < actions_.size(); k++) {
    const auto& action = actions_[k];
    const auto start = timing_ ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
    try {
      for (auto s : action.to_allocate) allocate(s);
      act(action, inputs.scalars);
    } catch (...) {
      failed_ = std::int64_t(k);
      throw;
    }
    if (timing_ && action.what != Action::What::nothing) {
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
      shortest_us_[k] = std::min(shortest_us_[k], took.count());
    }
    reached_ = std::int64_t(k);
    if (probe) probe(k, slots_);
    for (auto s : action.to_release) slots_.release(s);
  }
}

bool Executor::has(ValueId v) const {
  if (v < 0) return false;
  const auto s = std::size_t(plan_.graph.values[std::size_t(v)].storage);
  if (!slots_.has_storage(StorageId(s))) return false;
  if (plan_.memory.homes[s] != Home::arena) return true;
  return first_use_[s] >= 0 && first_use_[s] <= reached_ && reached_ <= last_use_[s];
}

void Executor::end() { slots_.release_step(); }

std::vector<ValueId> Executor::made_by(std::size_t k) const {
  const auto& graph = plan_.graph;
  const auto& call = plan_.program.calls[k];
  std::vector<ValueId> operands, made;
  for (const auto& l : call.launches) operands.insert(operands.end(), l.operands.begin(), l.operands.end());
  for (auto n : index_.nodes[k])
    for_each_value(graph.nodes[n].results, [&](ValueId v) {
      // A kernel stores the last version only, and its operand may name an earlier one at the same place.
      const bool stored = call.kind != Call::Kind::kernel ||
                          std::any_of(operands.begin(), operands.end(), [&](ValueId o) { return slots_.same_slot(o, v); });
      if (!stored || !has(v)) return;
      std::erase_if(made, [&](ValueId o) { return slots_.same_slot(o, v); });
      made.push_back(v);
    });
  return made;
}

}  // namespace tandem
