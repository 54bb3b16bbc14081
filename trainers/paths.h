// What one signature's steps, or calls, did so far: the paths that they took. TrainStep and compile() differ in what a recording and a plan are.
#pragma once

#include "autograd/capture.h"
#include "autograd/support/sentence.h"
#include "runtime/guards.h"
#include "trainers/path_state.h"

#include <algorithm>
#include <list>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

/// `P`: a PathState with `last`, its latest recording.
template <class P>
struct Paths {
  Signature signature;
  std::string guard;  // describe(signature)
  std::int64_t id = 0;
  std::string eager_reason;  // why no path of it can be compiled; empty when that is open
  std::string reason;        // of the latest recording that was refused
  std::list<P> paths;
  int refusals = 0, made_paths = 0, guesses = 0;
  PointerReads pointers;  // what recordings have to expect
  std::int64_t used = 0;
  std::int64_t record_at = 0;  // the first run from this number on is to be recorded, whatever plan fits; 0: none
  bool late = false;           // this run has left the known paths after parts of a plan had run

  /// The run, by its number, was recorded and took this path. Where it was recorded from the middle only, what the parts before had written is not
  /// known, so it must be recorded from the start: what the host does now and then it often does every k-th time, so the path is expected again after
  /// as many runs.
  void note_recorded(P& path, std::int64_t run) {
    constexpr int patience = 8;
    if (std::exchange(late, false) && path.state == P::State::recording && path.late++ < patience)
      path.due = path.used > 0 ? 2 * run - path.used : run + 1;
    path.used = run;
  }
  /// Whether the run is to be recorded, whatever plan fits.
  bool records(std::int64_t run) {
    bool due = record_at > 0 && run >= record_at;
    if (due) record_at = 0;
    for (auto& p : paths) {
      if (p.state != P::State::recording || p.due == 0 || run < p.due) continue;
      p.due = 0;
      due = true;
    }
    return due;
  }

  bool has_active() const {
    return std::any_of(paths.begin(), paths.end(), [](const P& p) { return p.state == P::State::active; });
  }

  /// Active paths, the latest used first.
  std::vector<P*> active() {
    std::vector<P*> out;
    for (auto& p : paths)
      if (p.state == P::State::active) out.push_back(&p);
    std::sort(out.begin(), out.end(), [](const P* a, const P* b) { return a->used > b->used; });
    return out;
  }

  /// The graphs of all paths.
  std::vector<const Graph*> recorded() const {
    std::vector<const Graph*> out;
    for (const auto& p : paths) out.push_back(&p.last.recording.graph);
    return out;
  }

  /// Whether the latest recording, or the plan made of it, was turned down.
  bool failed() const {
    return refusals > 0 || std::any_of(paths.begin(), paths.end(), [](const P& p) { return p.state == P::State::eager; });
  }

  /// Why its steps run eager; empty when two recordings are still to agree.
  std::string why() const {
    if (!eager_reason.empty()) return eager_reason;
    for (const auto& p : paths)
      if (p.state == P::State::eager) return p.reason;
    return reason;
  }

  /// A path has become eager: without another that is active all of its steps are.
  void follow(const P& path) {
    if (!has_active()) eager_reason = path.reason;
  }

  void stay_eager(P& path, const std::string& kind, const std::string& why, Journal& journal) {
    journal.say(kind, why);
    path.stay_eager(why);
    follow(path);
  }

  /// A shadow step, or call, has found that the plan no longer does what the caller's code does.
  void retire(P& path, const std::string& why, Journal& journal) {
    journal.shadow_steps++;
    path.since_shadow = 0;
    stay_eager(path, "retired", why, journal);
  }

  /// An index out of range is the caller's; what eager would not throw is the plan's. `by_itself`: an op failed that never does for what a caller does.
  void note_failure(P& path, const std::exception& e, bool by_itself, Journal& journal) {
    constexpr int most = 2;
    const bool out_of_memory = dynamic_cast<const c10::OutOfMemoryError*>(&e) || dynamic_cast<const std::bad_alloc*>(&e);
    if ((!out_of_memory && !by_itself) || ++path.failures < most) return;
    const auto times = " failed " + std::to_string(most) + " times: " + sentence_of(e);
    journal.say("retired", "plan " + std::to_string(path.report.id) + times);
    path.stay_eager("its plan" + times);
    follow(path);
  }

  /// What the host has kept was computed beside the plan: where it does so again and again, and no recording shows it, eager is faster. `unit`: a step or
  /// a call.
  void note_kept(P& path, const std::string& unit, Journal& journal) {
    constexpr int patience = 3, often = 4;
    journal.say("path", "the host keeps a tensor of this " + unit + " that the plan does not deliver: it was computed beside the plan");
    if (++path.kept < patience || path.kept * often < path.report.steps) return;
    stay_eager(path, "retired",
               "the host keeps a tensor that the " + unit + " made alive after its end, expected what it returns only: no plan delivers it",
               journal);
  }

  /// Takes in what a recording has found out, which was refused for that alone. False where there is no end to it.
  bool learn(const Recording& r, Journal& journal) {
    constexpr std::size_t most = 64;
    if (r.pointers.empty() || pointers.size() >= most) return false;
    pointers.insert(r.pointers.begin(), r.pointers.end());
    outdate();
    journal.say("path", r.refusal + ": a plan is cut there, the next one is recorded so");
    return true;
  }

  /// The host has read memory that no recording shows it to read, most likely what this node gave: recordings are to expect that. False where it was of
  /// no use before; the path is eager then.
  bool guess(P& path, const std::optional<PointerReads::value_type>& node, const std::string& why) {
    constexpr int patience = 3;
    const bool fresh = node && guesses++ < patience && pointers.insert(*node).second;
    if (!fresh) path.stay_eager(why);
    fresh ? outdate() : follow(path);
    return fresh;
  }

  /// Paths that read results without being cut there go before the next run.
  void outdate() {
    for (auto& p : paths) p.outdated |= misses(p.last.recording.graph, pointers);
  }
  void drop_outdated() {
    std::erase_if(paths, [](const P& p) { return p.outdated; });
  }

  void refuse(const std::string& refusal, bool for_good, Journal& journal) {
    constexpr int max_refusals = 2;
    refusals++;
    reason = refusal;
    journal.say("refused", reason);
    if (!has_active() && (for_good || refusals >= max_refusals)) eager_reason = reason;
  }

  /// Another path, if there is room: the least used one that has no plan goes. Where no path ever comes twice none is kept. `unit`: a step or a call.
  template <class Recorded>
  P* make_path(Recorded now, const std::string& difference, std::int64_t max_paths, const std::string& unit, Journal& journal,
               std::int64_t& next_id) {
    constexpr int max_idle_paths = 5;
    if (!paths.empty()) {
      reason = "two recordings of this " + unit + " do not agree: " + difference;
      if (!has_active() && made_paths >= max_idle_paths) {
        journal.say("refused", reason);
        eager_reason = reason;
        return nullptr;
      }
      journal.say("path", "the " + unit + " takes another path: " + difference);
    }
    if (std::int64_t(paths.size()) >= max_paths) {
      auto oldest = paths.end();
      for (auto p = paths.begin(); p != paths.end(); ++p)
        if (p->state != P::State::active && (oldest == paths.end() || p->used < oldest->used)) oldest = p;
      if (oldest == paths.end()) {
        journal.say("refused", "the " + unit + " takes more paths than Options::max_paths keeps, expected fewer: this one runs eager");
        return nullptr;
      }
      paths.erase(oldest);
    }
    made_paths++;
    auto& p = paths.emplace_back();
    p.report.id = made_paths == 1 ? id : next_id++;
    p.report.guard = guard;
    p.recordings = 1;
    now.drop_data();
    p.last = std::move(now);
    return &p;
  }
};

}  // namespace tandem
