#include "trainers/entry.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

/// A plan that runs without its closure must do what the closure does.
std::string departed(const std::string& difference) {
  return "a shadow step no longer agrees with the plan (does the loss function depend on host state?): " + difference;
}

}  // namespace

Path* settle(Entry& e, RecordedStep now, const Options& options, Journal& journal, std::int64_t& next_id, Path* shadowed) {
  if (!shadowed && e.learn(now.recording, journal)) return nullptr;
  if (!now.recording.refusal.empty()) {
    if (shadowed) e.retire(*shadowed, departed(now.recording.refusal), journal);
    e.refuse(now.recording.refusal, now.final_refusal, journal);
    return nullptr;
  }
  journal.say("recorded", fmt::format("{} nodes for {}", now.recording.graph.nodes.size(), e.guard));
  if (!e.paths.empty()) place_as(e.paths.front().last, now);
  std::string difference;
  std::vector<std::size_t> moved;
  for (auto p = e.paths.rbegin(); p != e.paths.rend(); ++p) {
    auto d = disagreement(*p, now, moved);
    if (d.empty()) {
      const bool trusted = shadowed && p->step && p->step->level() == CompiledStep::Level::trusted;
      if (trusted) d = first_difference(p->last.recording.graph, now.recording.graph);
      const bool known = p->state == Path::State::active && std::includes(p->moved.begin(), p->moved.end(), moved.begin(), moved.end());
      if (trusted && d.empty()) d = replaced(p->step->recorded().recording, now.recording);
      if (shadowed && !d.empty()) {
        e.retire(*p, departed(d), journal);
        return &*p;
      }
      known&& shadowed ? check_shadow(*p, std::move(now), options, journal) : add_recording(*p, std::move(now), moved, options, journal);
      if (p->state == Path::State::eager) e.follow(*p);
      return &*p;
    }
    if (difference.empty()) difference = std::move(d);
  }
  if (shadowed && shadowed->step->level() == CompiledStep::Level::trusted) {
    e.retire(*shadowed, departed(difference), journal);
    return shadowed;
  }
  return e.make_path(std::move(now), difference, options.max_paths, "step", journal, next_id);
}

}  // namespace tandem
