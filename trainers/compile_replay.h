// The host replay check of a compiled call: the function runs on placeholders, and each of its ops is compared, before its plan runs.
#pragma once

#include "runtime/undo.h"
#include "trainers/call_run.h"

#include <memory>
#include <string>
#include <vector>

namespace tandem {

class CallReplay {
 public:
  /// `paths`: active ones, the likeliest first. `known`: what is known of its storages before the call. `run`: does the parts of plans that the host
  /// waits for.
  CallReplay(const RecordRequest& request, const std::vector<CallPath*>& paths, RunInputs known, CallRun& run, bool fail_on_recompile);

  /// Runs the function. Where it does what was recorded nothing is computed but what it waits for. Where it does something else the ops so far are
  /// run, and the same call goes on in eager, recorded; so it is where it reads memory that is not there, but called once more. Throws what it throws.
  detail::Flat run();

  bool followed() const { return !raw_ && !replayer_.diverged(); }
  bool raw() const { return raw_; }  // the function reads the memory of what it computes
  const std::string& why() const { return raw_ ? raw_why_ : replayer_.why(); }
  CallPath& path() { return path_of(replayer_.tape()); }
  Replayer& replayer() { return replayer_; }
  /// Of a call that did something else: what was recorded of it, whole.
  RecordedCall take_recording(detail::Flat& flat) { return call_.finish(replayer_.recorder(), flat); }
  /// For followed calls: makes what the function keeps and no plan delivers, by the graph's nodes on copies of what they write. `out` must be gone.
  /// Whether there was any.
  bool fill_kept();

 private:
  CallPath& path_of(const Tape& tape) const;
  bool fits(const Tape& tape, const detail::Flat& out) const;
  detail::Flat read_raw();
  void put_back();

  const RecordRequest& request_;
  std::vector<CallPath*> paths_;
  RunInputs known_;  // until it is taken
  CallRecorder call_;
  Undo undo_;
  Replayer replayer_;
  bool refused_ = false, raw_ = false;
  std::string raw_why_;
};

}  // namespace tandem
