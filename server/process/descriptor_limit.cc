#include "server/process/descriptor_limit.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>

namespace tlm {
namespace {

// Model files, sockets and events, a GPU's included, and some to spare.
constexpr int64_t kOwnDescriptors = 1024;

}  // namespace

void RaiseDescriptorLimit(int64_t max_connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto needed = static_cast<rlim_t>(max_connections + kOwnDescriptors);
  // Only up to what is needed: the largest limits are in the millions.
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = std::min(needed, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_max >= needed) return;
  spdlog::warn("at most {} files may be open (ulimit -Hn): fewer than --max_connections={} take",
               limit.rlim_max, max_connections);
}

}  // namespace tlm
