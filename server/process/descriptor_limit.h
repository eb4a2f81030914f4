// How many files and connections the process may have open.
#ifndef TLM_SERVER_PROCESS_DESCRIPTOR_LIMIT_H_
#define TLM_SERVER_PROCESS_DESCRIPTOR_LIMIT_H_

#include <cstdint>

namespace tlm {

// Raises the process's limit of open files (RLIMIT_NOFILE) to what `max_connections` and the server
// itself need, as far as the system allows; a line in the log where that is less.
void RaiseDescriptorLimit(int64_t max_connections);

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_DESCRIPTOR_LIMIT_H_
