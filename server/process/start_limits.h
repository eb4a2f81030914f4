// Checks memory, threads and descriptors at start.
#ifndef TLM_SERVER_PROCESS_START_LIMITS_H_
#define TLM_SERVER_PROCESS_START_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "server/config/options.h"

namespace tlm {

// Raises the process's limit of open files (RLIMIT_NOFILE) to the need of `max_connections` and of
// the server itself, as far as the system allows; logs a line if it allows less.
// RESOURCE_EXHAUSTED, with both numbers, if the limit is too low even for a start: gRPC would
// abort.
absl::Status RaiseDescriptorLimit(int64_t max_connections);

// Returns the fewest threads, besides the calling one, of a server with these options.
int ThreadsNeeded(const ServerOptions& options);

// RESOURCE_EXHAUSTED, with both numbers, if this process cannot start `count` more threads, or has
// less memory than libraries need. Tries it by starting the threads, because libraries end the
// process, or hang, when a thread is refused.
absl::Status CheckThreads(int count);

// While this object lives, a lack of memory or threads that is not reported as a status (an
// uncaught exception, a library that aborts) ends the process with one line and kExitFailure. Other
// aborts are unchanged. Make at most one object per process at a time.
class StartLimits {
 public:
  StartLimits();
  ~StartLimits();
  StartLimits(const StartLimits&) = delete;
  StartLimits& operator=(const StartLimits&) = delete;
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_START_LIMITS_H_
