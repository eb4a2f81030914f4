// Names for threads, as debuggers and `top -H` show them, and lower priorities.
#ifndef TLM_MODEL_BASE_THREAD_NAME_H_
#define TLM_MODEL_BASE_THREAD_NAME_H_

#include <cstddef>

#if defined(__linux__)
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace tlm {

// Names the calling thread; 15 characters at most.
template <size_t kSize>
void NameThisThread(const char (&name)[kSize]) {
  static_assert(kSize <= 16);
#if defined(__linux__)
  pthread_setname_np(pthread_self(), name);
#endif
}

// Lowers the priority of the calling thread (Linux has nice values per thread). At 19, the lowest,
// it hardly ever runs while others want the processor; at 10 it gets about a tenth of a contended
// processor.
inline void LowerPriority(int nice = 19) {
#if defined(__linux__)
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice);
#endif
}

}  // namespace tlm

#endif  // TLM_MODEL_BASE_THREAD_NAME_H_
