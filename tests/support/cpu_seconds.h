// Measures processor time, for tests of how a cost grows.
#ifndef TLM_TESTS_SUPPORT_CPU_SECONDS_H_
#define TLM_TESTS_SUPPORT_CPU_SECONDS_H_

#include <time.h>

#include <algorithm>
#include <limits>

namespace tlm {

// Returns the processor time of `work` on this thread, the least of three runs: other programs and
// the waiting for a processor do not count.
template <typename Work>
double LeastCpuSeconds(const Work& work) {
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const double begin = now();
    work();
    least = std::min(least, now() - begin);
  }
  return least;
}

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_CPU_SECONDS_H_
