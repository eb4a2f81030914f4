#include "server/net/heap.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>

namespace tlm {

void SetUpAllocator() {
#if defined(__GLIBC__)
  // glibc raises this threshold to the size of the largest such block that was freed, up to 32 MiB.
  // After one large message, buffers of every size then come from the threads' heaps, whose pages
  // stay resident after the first small block that outlives them. Setting the threshold once turns
  // that off.
  mallopt(M_MMAP_THRESHOLD, static_cast<int>(kOwnPagesBytes));
#endif
}

bool HeapTrimmer::ShouldTrim(int64_t free_bytes) {
  least_bytes_ = std::min(least_bytes_, free_bytes);
  if (free_bytes - least_bytes_ >= kGrowthBytes) {
    least_bytes_ = free_bytes;
    quiet_polls_ = 0;
    return false;
  }
  if (quiet_polls_ == kSecondTrimPolls) return false;
  ++quiet_polls_;
  if (quiet_polls_ != kFirstTrimPolls && quiet_polls_ != kSecondTrimPolls) return false;
  return true;
}

int64_t FreeHeapBytes() {
#if defined(__GLIBC__)
  return static_cast<int64_t>(mallinfo2().fordblks);
#else
  return 0;
#endif
}

void TrimHeap() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace tlm
