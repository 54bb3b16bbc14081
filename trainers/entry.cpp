#include "trainers/entry.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem {
namespace {

constexpr int max_refusals = 2, max_idle_paths = 5;

bool has_active(const Entry& e) {
  return std::any_of(e.paths.begin(), e.paths.end(), [](const Path& p) { return p.state == Path::State::active; });
}

Path* refused(Entry& e, const RecordedStep& now, Journal& journal) {
  e.refusals++;
  e.reason = now.recording.refusal;
  journal.say("refused", e.reason);
  if (!has_active(e) && (now.final_refusal || e.refusals >= max_refusals)) e.eager_reason = e.reason;
  return nullptr;
}

/// A plan that runs without its closure must do what the closure does.
void retire(Entry& e, Path& path, const std::string& difference, Journal& journal) {
  journal.shadow_steps++;
  path.since_shadow = 0;
  const auto why = "a shadow step no longer agrees with the plan (does the loss function depend on host state?): " + difference;
  journal.say("retired", why);
  path.stay_eager(why);
  e.follow(path);
}

/// Another path, if there is room: the least used one that has no plan goes. Where no path ever comes twice none is kept.
Path* make_path(Entry& e, RecordedStep now, const std::string& difference, const Options& options, Journal& journal,
                std::int64_t& next_id) {
  if (!e.paths.empty()) {
    e.reason = "two recordings of this step do not agree: " + difference;
    if (!has_active(e) && e.made_paths >= max_idle_paths) {
      journal.say("refused", e.reason);
      e.eager_reason = e.reason;
      return nullptr;
    }
    journal.say("path", "the step takes another path: " + difference);
  }
  if (std::int64_t(e.paths.size()) >= options.max_paths) {
    auto oldest = e.paths.end();
    for (auto p = e.paths.begin(); p != e.paths.end(); ++p)
      if (p->state != Path::State::active && (oldest == e.paths.end() || p->used < oldest->used)) oldest = p;
    if (oldest == e.paths.end()) {
      journal.say("refused", "the step takes more paths than Options::max_paths keeps, expected fewer: this one runs eager");
      return nullptr;
    }
    e.paths.erase(oldest);
  }
  e.made_paths++;
  auto& p = e.paths.emplace_back();
  p.report.id = e.made_paths == 1 ? e.id : next_id++;
  p.report.guard = e.guard;
  p.recordings = 1;
  now.drop_data();
  p.last = std::move(now);
  return &p;
}

}  // namespace

std::vector<Path*> Entry::active() {
  std::vector<Path*> out;
  for (auto& p : paths)
    if (p.state == Path::State::active) out.push_back(&p);
  std::sort(out.begin(), out.end(), [](const Path* a, const Path* b) { return a->used > b->used; });
  return out;
}

std::vector<const Graph*> Entry::recorded() const {
  std::vector<const Graph*> out;
  for (const auto& p : paths) out.push_back(&p.last.recording.graph);
  return out;
}

bool Entry::failed() const {
  return refusals > 0 || std::any_of(paths.begin(), paths.end(), [](const Path& p) { return p.state == Path::State::eager; });
}

std::string Entry::why() const {
  if (!eager_reason.empty()) return eager_reason;
  for (const auto& p : paths)
    if (p.state == Path::State::eager) return p.reason;
  return reason;
}

void Entry::follow(const Path& path) {
  if (active().empty()) eager_reason = path.reason;
}

Path* settle(Entry& e, RecordedStep now, const Options& options, Journal& journal, std::int64_t& next_id, Path* shadowed) {
  if (!now.recording.refusal.empty()) {
    if (shadowed) retire(e, *shadowed, now.recording.refusal, journal);
    return refused(e, now, journal);
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
        retire(e, *p, d, journal);
        return &*p;
      }
      known&& shadowed ? check_shadow(*p, std::move(now), options, journal) : add_recording(*p, std::move(now), moved, options, journal);
      if (p->state == Path::State::eager) e.follow(*p);
      return &*p;
    }
    if (difference.empty()) difference = std::move(d);
  }
  if (shadowed && shadowed->step->level() == CompiledStep::Level::trusted) {
    retire(e, *shadowed, difference, journal);
    return shadowed;
  }
  return make_path(e, std::move(now), difference, options, journal, next_id);
}

}  // namespace tandem
