// What is known for one signature: the paths that its steps took.
#pragma once

#include "runtime/guards.h"
#include "trainers/path.h"

#include <list>
#include <string>

namespace tandem {

struct Entry {
  Signature signature;
  std::string guard;  // describe(signature)
  std::int64_t id = 0;
  std::string eager_reason;  // why no path of it can be compiled; empty when that is open
  std::string reason;        // of the latest recording that was refused
  std::list<Path> paths;
  int refusals = 0, made_paths = 0, late_divergences = 0;
  std::int64_t used = 0;
  bool record_next = false;  // the next step is to be recorded, whatever plan fits

  /// Active paths, the latest used first.
  std::vector<Path*> active();
  /// The graphs of all paths.
  std::vector<const Graph*> recorded() const;
  /// Whether the latest recording, or the plan made of it, was turned down.
  bool failed() const;
  std::string why() const;  // why its steps run eager; empty when two recordings are still to agree
  /// A path has become eager: without another that is active all of its steps are.
  void follow(const Path& path);
};

/// Takes in one more recording: finds its path or makes one. Returns it; nullptr when the recording was refused or there is no room for another path.
/// `shadowed`: the plan that is to be checked by this step; may be nullptr.
Path* settle(Entry& entry, RecordedStep now, const Options& options, Journal& journal, std::int64_t& next_id, Path* shadowed);

}  // namespace tandem
