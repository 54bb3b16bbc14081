// What is known for one signature of a compiled function: the paths that its calls took.
#pragma once

#include "trainers/call_path.h"

namespace tandem {

struct CallEntry : Paths<CallPath> {
  std::int64_t followed = 0, diverged = 0;  // calls that a plan stood for, and others since a plan came last
};

/// Takes in one more recording: finds its path or makes one. Returns it; nullptr when the recording was refused or there is no room for another path.
/// `shadowed`: the path whose plans are to be checked by this call; may be nullptr.
CallPath* settle(CallEntry& entry, RecordedCall now, const Options& options, Journal& journal, std::int64_t& next_id, CallPath* shadowed);

}  // namespace tandem
