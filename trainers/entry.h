// What is known for one signature: the paths that its steps took.
#pragma once

#include "trainers/path.h"

namespace tandem {

using Entry = Paths<Path>;

/// Takes in one more recording: finds its path or makes one. Returns it; nullptr when the recording was refused or there is no room for another path.
/// `shadowed`: the plan that is to be checked by this step; may be nullptr.
Path* settle(Entry& entry, RecordedStep now, const Options& options, Journal& journal, std::int64_t& next_id, Path* shadowed);

}  // namespace tandem
