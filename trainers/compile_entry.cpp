#include "trainers/compile_entry.h"

#include "trainers/recorded_step.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

/// Plans that run without their function must do what the function does.
std::string departed(const std::string& difference) {
  return "a shadow call no longer agrees with the plan (does the function depend on host state?): " + difference;
}

void add(CallEntry& e, CallPath& path, RecordedCall now, const std::vector<std::size_t>& moved, const Options& options, Journal& journal,
         bool shadow) {
  const bool known =
      path.state == CallPath::State::active && std::includes(path.moved.begin(), path.moved.end(), moved.begin(), moved.end());
  const bool was_active = path.state == CallPath::State::active;
  known&& shadow ? check_shadow(path, std::move(now), options, journal) : add_recording(path, std::move(now), moved, options, journal);
  if (path.state == CallPath::State::eager) e.follow(path);
  if (path.state == CallPath::State::active && !was_active) e.followed = e.diverged = 0;
}

}  // namespace

CallPath* settle(CallEntry& e, RecordedCall now, const Options& options, Journal& journal, std::int64_t& next_id, CallPath* shadowed) {
  if (!shadowed && e.learn(now.recording, journal)) return nullptr;
  if (!now.recording.refusal.empty()) {
    if (shadowed) e.retire(*shadowed, departed(now.recording.refusal), journal);
    e.refuse(now.recording.refusal, now.final_refusal, journal);
    return nullptr;
  }
  journal.say("recorded", fmt::format("{} nodes for {}", now.recording.graph.nodes.size(), e.guard));
  if (!e.paths.empty()) place_as(e.paths.front().last, now);
  const bool trusted = shadowed && options.replay == Replay::trusted;
  std::string difference;
  std::vector<std::size_t> moved;
  for (auto p = e.paths.rbegin(); p != e.paths.rend(); ++p) {
    auto d = disagreement(*p, now, moved);
    if (d.empty()) {
      if (trusted && !moved.empty()) d = "a number of the function is another than in the recorded calls";
      if (trusted && d.empty()) d = replaced(p->last.recording, now.recording);
      if (trusted && !d.empty()) {
        e.retire(*p, departed(d), journal);
        return &*p;
      }
      add(e, *p, std::move(now), moved, options, journal, shadowed != nullptr);
      return &*p;
    }
    if (difference.empty()) difference = std::move(d);
  }
  if (trusted) {
    e.retire(*shadowed, departed(difference), journal);
    return shadowed;
  }
  return e.make_path(std::move(now), difference, options.max_paths, "call", journal, next_id);
}

}  // namespace tandem
