// Names for threads, as debuggers and `top -H` show them.
#ifndef TLM_MODEL_BASE_THREAD_NAME_H_
#define TLM_MODEL_BASE_THREAD_NAME_H_

#include <cstddef>

#if defined(__linux__)
#include <pthread.h>
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

}  // namespace tlm

#endif  // TLM_MODEL_BASE_THREAD_NAME_H_
