// Limits of memory, threads and descriptors that a start runs into.
#ifndef TLM_SERVER_PROCESS_START_LIMITS_H_
#define TLM_SERVER_PROCESS_START_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "server/config/options.h"

namespace tlm {

// Raises the process's limit of open files (RLIMIT_NOFILE) to what `max_connections` and the server
// itself need, as far as the system allows; a line in the log where that is less.
void RaiseDescriptorLimit(int64_t max_connections);

// The threads that a server with these options has at the least, besides the calling one.
int ThreadsNeeded(const ServerOptions& options);

// RESOURCE_EXHAUSTED, with both numbers, where the system gives this process fewer than `count`
// threads more, or less memory than libraries need. Finds out by starting them, as libraries end
// the process, or hang, when they are refused one.
absl::Status CheckThreads(int count);

// While it lives, a lack of memory or threads that nothing reports as a status (an exception that
// nothing catches, a library that aborts) ends the process with one line and kExitFailure. Other
// aborts stay what they are. One object a process at a time.
class StartLimits {
 public:
  StartLimits();
  ~StartLimits();
  StartLimits(const StartLimits&) = delete;
  StartLimits& operator=(const StartLimits&) = delete;
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_START_LIMITS_H_
