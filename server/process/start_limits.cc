#include "server/process/start_limits.h"

#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <latch>
#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cpu/processors.h"
#include "server/batching/output_mask.h"
#include "server/config/command_line.h"
#include "server/constraints/constraint_compiler.h"
#include "server/observe/metrics_server.h"
#include "server/rpc/call/text_pools.h"

namespace tlm {
namespace {

constexpr std::string_view kTooLittleMemory =
    "tlm-server: out of memory while starting: the process's limits (ulimit -v, -d) or those of "
    "its container are too low\n";
constexpr std::string_view kTooFewThreads =
    "tlm-server: cannot create a thread at start: the process's limits (ulimit -u, -v) or those "
    "of its container are too low\n";

struct sigaction former_abort;
std::terminate_handler former_terminate = nullptr;

// Uses only functions that a signal handler may call.
[[noreturn]] void EndWith(std::string_view line) {
  const bool heard = write(STDERR_FILENO, line.data(), line.size()) >= 0;
  std::_Exit(heard ? kExitFailure : kExitUnheard);
}

void OnTerminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    EndWith(kTooLittleMemory);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) EndWith(kTooFewThreads);
  } catch (...) {
  }
  former_terminate();
  std::abort();
}

// gRPC aborts without a message when it gets no memory.
void OnAbort(int) {
  constexpr size_t kStackBytes = size_t{8} << 20;
  void* const memory =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) EndWith(kTooLittleMemory);
  sigaction(SIGABRT, &former_abort, nullptr);  // returns into abort(), which raises it again
}

// Memory that libraries take when they start. gRPC 1.51 hangs when it is refused some of it.
constexpr size_t kBytesBesidesThreads = size_t{128} << 20;

bool CanMap(size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED && munmap(memory, bytes) == 0;
}

// Model files, sockets and events, including those of a GPU, and some spare ones.
constexpr int64_t kOwnDescriptors = 1024;
// The need of a server with one port and a few connections.
constexpr rlim_t kMinDescriptors = 32;

}  // namespace

absl::Status RaiseDescriptorLimit(int64_t max_connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  const auto needed = static_cast<rlim_t>(max_connections + kOwnDescriptors);
  // Raises it only as far as needed: the largest limits are in the millions.
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = std::min(needed, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur < kMinDescriptors) {
    return ResourceExhausted("the limit of open files is {} (ulimit -n), at least {} are needed",
                             limit.rlim_cur, kMinDescriptors);
  }
  if (limit.rlim_max < needed) {
    spdlog::warn("the limit of open files is {} (ulimit -Hn), too low for --max_connections={}",
                 limit.rlim_max, max_connections);
  }
  return absl::OkStatus();
}

int ThreadsNeeded(const ServerOptions& options) {
  // See "Threads" in README.md: the threads during a drain, without the ones added below.
  constexpr int kOwn = 7 + TextPools::kMinThreads + ConstraintCompilerOptions::kThreads;
  constexpr int kOfGrpc = 7;  // without the threads that complete calls
  const int processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int completions = std::clamp(processors / 2, 2, 16) + std::clamp(processors, 2, 16);
  const int computing = (options.threads > 0 ? options.threads : DefaultThreads()) - 1;
  constexpr int kOfZmq = 3;  // the publisher's included
  return kOwn + kOfGrpc + completions + MaskPool::Threads() +
         (options.backend == BackendKind::kCuda ? 0 : computing) +
         (options.draft_model.empty() ? 0 : 1) +  // for the pages of its keys and values
         (options.service.metrics_port.has_value() ? MetricsServer::kAllThreads : 0) +
         (options.service.kv_events.endpoint.empty() ? 0 : kOfZmq) +
         (options.service.otlp.endpoint.empty() ? 0 : 1);
}

absl::Status CheckThreads(int count) {
  std::latch all_there(1);
  std::vector<std::jthread> threads;
  try {
    threads.reserve(static_cast<size_t>(count));
    while (static_cast<int>(threads.size()) < count) {
      threads.emplace_back([&all_there] { all_there.wait(); });
    }
  } catch (const std::system_error&) {
  }
  const int got = static_cast<int>(threads.size());
  const bool has_memory = CanMap(kBytesBesidesThreads);
  all_there.count_down();
  if (got == count && has_memory) return absl::OkStatus();
  if (got == count) {
    return ResourceExhausted(
        "{} MiB of memory besides {} threads cannot be allocated: the process's limits "
        "(ulimit -v, -d) or those of its container are too low",
        kBytesBesidesThreads >> 20, count);
  }
  return ResourceExhausted(
      "{} threads are needed, only {} could be created: the process's limits (ulimit -u, -v, -d) "
      "or those of "
      "its container are too low",
      count, got);
}

StartLimits::StartLimits() {
  former_terminate = std::set_terminate(OnTerminate);
  struct sigaction handler {};
  handler.sa_handler = OnAbort;
  sigaction(SIGABRT, &handler, &former_abort);
}

StartLimits::~StartLimits() {
  sigaction(SIGABRT, &former_abort, nullptr);
  std::set_terminate(former_terminate);
}

}  // namespace tlm
