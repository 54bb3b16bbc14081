// Tandem: a training-step compiler for LibTorch. This header is the whole public interface.
#pragma once

#include "tandem/compile.h"
#include "tandem/gradcheck.h"
#include "tandem/options.h"
#include "tandem/report.h"
#include "tandem/train_step.h"

namespace tandem {

/// "0.1.0"
const char* version();

}  // namespace tandem
