#include "server/net/allocator.h"

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tlm {

void SetUpAllocator() {
#ifdef __GLIBC__
  // glibc raises this threshold to the size of the largest such block that was freed, up to 32 MiB:
  // after one large message buffers of every size come from the threads' heaps, whose pages stay
  // resident behind the first small block that outlives them. Setting it once turns that off.
  mallopt(M_MMAP_THRESHOLD, static_cast<int>(kOwnPagesBytes));
#endif
}

}  // namespace tlm
