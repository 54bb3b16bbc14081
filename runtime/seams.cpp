#include "runtime/seams.h"

namespace tandem {

Seams& seams() {
  thread_local Seams mine;
  return mine;
}

}  // namespace tandem
