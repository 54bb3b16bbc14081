// Where a replay ends: what it hands to a plan, and how it becomes an eager run in the middle of a step.
#include "autograd/audit.h"
#include "autograd/node_call.h"
#include "autograd/placeholder.h"
#include "autograd/replay.h"

#include <algorithm>

namespace tandem {

RunInputs Replayer::inputs() const {
  RunInputs out;
  out.storages.resize(places_.size());
  for (std::size_t s = 0; s < places_.size(); s++) out.storages[s] = {places_[s].outside, places_[s].shift};
  const auto& tape = *tape_;
  out.scalars.resize(tape.graph().scalars.size());
  for (std::size_t i = 0; i < tape.numbers().size(); i++)
    if (tape.is_free(i)) out.scalars[std::size_t(tape.scalar_of(i))] = i < numbers_.size() ? numbers_[i] : tape.recorded_number(i);
  return out;
}

bool Replayer::is_held(StorageId s) const {
  const auto& p = places_[std::size_t(s)];
  return p.impl && tape_->graph().storages[std::size_t(s)].role == Role::internal && !p.weak.expired();
}

std::vector<StorageId> Replayer::held() const {
  std::vector<StorageId> out;
  for (std::size_t s = 0; s < places_.size(); s++)
    if (is_held(StorageId(s)) && is_placeholder(*places_[s].impl)) out.push_back(StorageId(s));
  return out;
}

void Replayer::fill(StorageId s, const c10::Storage& data) {
  auto& p = places_[std::size_t(s)];
  const auto alive = p.impl ? p.weak.lock() : c10::intrusive_ptr<c10::StorageImpl>();
  if (alive && is_placeholder(*alive)) tandem::fill(*alive, data);
}

void Replayer::run_nodes(std::size_t end, const RunInputs& in) {
  unveil();
  const auto& g = tape_->graph();
  std::vector<std::size_t> last_use(g.storages.size(), end);
  std::vector<ValueId> made(g.storages.size(), -1);
  auto touch = [&](std::size_t n) { return [&, n](ValueId v) { last_use[std::size_t(g.values[std::size_t(v)].storage)] = n; }; };
  Slots slots(g);
  slots.bind(in);
  auto place = [&](ValueId v) {  // what the parts that have run made
    const auto s = g.values[std::size_t(v)].storage;
    if (g.storages[std::size_t(s)].role != Role::internal || slots.has_storage(s) || made[std::size_t(s)] >= 0) return;
    if (carried_[std::size_t(s)])
      slots.place(s, carried_[std::size_t(s)]);
    else if (is_held(s))
      slots.place(s, c10::Storage(places_[std::size_t(s)].weak.lock()));
  };
  for (std::size_t n = started_; n < end; n++) {
    for_each_value(g.nodes[n].args, place);
    for_each_value(g.nodes[n].args, touch(n));
    for_each_value(g.nodes[n].results, touch(n));
    for_each_value(g.nodes[n].results, [&](ValueId v) {
      if (const auto s = std::size_t(g.values[std::size_t(v)].storage); !slots.has_storage(StorageId(s))) made[s] = v;
    });
  }
  std::fill(made.begin(), made.end(), -1);
  torch::jit::Stack stack;
  for (std::size_t n = started_; n < end; n++) {
    const auto& node = g.nodes[n];
    if (tape_->parts().free_reads[n]) continue;
    {
      ReplayScope below;
      NodeCall(g, node).run(slots, in.scalars, stack);
    }
    for_each_value(node.results, [&](ValueId v) { made[std::size_t(g.values[std::size_t(v)].storage)] = v; });
    auto let_go = [&](ValueId v) {
      const auto s = g.values[std::size_t(v)].storage;
      if (g.storages[std::size_t(s)].role == Role::internal && last_use[std::size_t(s)] == n && !is_held(s)) slots.release(s);
    };
    for_each_value(node.args, let_go);
    for_each_value(node.results, let_go);
  }
  for (auto s : held())
    if (made[std::size_t(s)] >= 0 && slots.has_storage(s)) fill(s, slots.get(made[std::size_t(s)]).storage());
}

void Replayer::diverge(std::string why) {
  if (recorder_) return;
  why_ = std::move(why);
  unveil();
  recorder_ = make_recorder_(*tape_, why_);
  Prefix prefix{&tape_->recorded(), position_, {}, captured_, first_sequence_, numbers_};
  for (std::size_t s = 0; s < places_.size(); s++) {
    const auto& p = places_[s];
    prefix.storages.push_back(p.outside || is_held(StorageId(s)) ? p.impl : nullptr);
  }
  recorder_->resume(prefix);
  run_nodes(position_, inputs());
  recorder_->resumed();
  for (auto& p : places_) p.outside = {};
}

/// Takes the path on which this read gives results of these sizes, if there is one.
bool Replayer::switch_path_by_results(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const torch::jit::Stack& stack) {
  const auto* before = tape_;
  const auto& call = tape_->calls()[position_];
  const auto first = stack.size() - call.results.size();
  auto go_to = [&](const Tape& tape) {
    take(tape);
    numbers_.resize(std::size_t(call.first_number));
    return follows(tape, op, arguments);
  };
  for (const auto* other : tapes_) {
    numbers_.resize(std::size_t(call.first_number));
    if (other == before || !agrees_so_far(*other)) continue;
    if (go_to(*other) && takes_results(stack, first)) return true;
    take(*before);
  }
  go_to(*before);
  return false;
}

}  // namespace tandem
