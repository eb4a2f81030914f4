// What `tlm bench` was asked to do.
#ifndef TLM_CLIENT_CLI_BENCH_OPTIONS_H_
#define TLM_CLIENT_CLI_BENCH_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::cli {

// Requests in flight and connections, at the most: some 30 KiB of memory each.
inline constexpr uint32_t kMaxBenchConcurrency = 4096;
inline constexpr uint32_t kMaxBenchConnections = 64;

struct BenchOptions {
  // Closed loop: so many callers, each of which sends its next request when its last one is over.
  // Open loop: so many requests in flight at the most.
  uint32_t concurrency = 0;
  // Requests a second, a Poisson process whose arrivals wait for nothing; none = closed loop.
  std::optional<double> rate;
  // The measurement ends with whichever comes first.
  std::optional<uint64_t> requests;
  absl::Duration duration = absl::InfiniteDuration();
  // Load that is offered before the measurement begins.
  absl::Duration warmup = absl::ZeroDuration();
  absl::Duration timeout = absl::InfiniteDuration();  // of each request
  uint32_t connections = 1;                           // to each target
  uint64_t seed = 0;
  uint32_t prompt_tokens = 0;        // of random prompts
  std::string prompts_file;          // empty = random prompts
  v1::GenerateRequest request = {};  // all but the prompt
};

// INVALID_ARGUMENT, naming value and limit, for flags out of range or that contradict each other.
absl::StatusOr<BenchOptions> BenchOptionsFromFlags();

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BENCH_OPTIONS_H_
