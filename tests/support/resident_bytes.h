#ifndef TLM_TESTS_SUPPORT_RESIDENT_BYTES_H_
#define TLM_TESTS_SUPPORT_RESIDENT_BYTES_H_

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace tlm {

// Returns the resident memory of this process.
inline int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_RESIDENT_BYTES_H_
