#include "server/heap_trimmer.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>

namespace tlm {

bool HeapTrimmer::ShouldTrim(int64_t resident_bytes) {
  least_bytes_ = std::min(least_bytes_, resident_bytes);
  if (resident_bytes - least_bytes_ >= kGrowthBytes) {
    least_bytes_ = resident_bytes;
    quiet_looks_ = 0;
    return false;
  }
  if (quiet_looks_ == kLateLooks) return false;
  ++quiet_looks_;
  if (quiet_looks_ != kQuietLooks && quiet_looks_ != kLateLooks) return false;
  return true;
}

void TrimHeap() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace tlm
