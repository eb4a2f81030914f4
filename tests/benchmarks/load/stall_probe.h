// Measures how long the prefill of a long prompt stalls running streams.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_STALL_PROBE_H_
#define TLM_TESTS_BENCHMARKS_LOAD_STALL_PROBE_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/load/generate_call.h"
#include "tests/benchmarks/load/metrics.h"
#include "tests/benchmarks/load/target.h"

namespace tlm::bench {

struct StallOptions {
  int64_t streams = 8;  // that decode
  int64_t stream_prompt_tokens = 64;
  int64_t stream_output_tokens = 28672;  // at most: cancelled after the measurement
  int64_t prompt_tokens = 16384;         // of the long prompt
  double settle_seconds = 1;
  double undisturbed_seconds = 5;  // measured before the long prompt
  double timeout_seconds = 900;    // of each wait
  uint64_t seed = 1;
};

// Gaps are between successive events with tokens of one stream.
struct Stall {
  Summary undisturbed;  // gaps that end before the long prompt is sent
  Summary disturbed;    // gaps that overlap the time from then to its first token
  double ttft_seconds = 0;
  double undisturbed_tokens_per_second = 0;  // of all streams together
  double disturbed_tokens_per_second = 0;

  // The longest gap relative to the undisturbed p99.
  double worst_ratio() const { return disturbed.max / undisturbed.p99; }
};

// One measurement. Not thread-safe.
class StallProbe : public load::GenerateCall::Listener {
 public:
  // `target` outlives the probe.
  StallProbe(Target& target, const StallOptions& options);
  // Cancels all calls.
  ~StallProbe() override;

  // Call once. Each `repetition` has other prompts. INVALID_ARGUMENT for lengths beyond the model's
  // context; FAILED_PRECONDITION if a stream or the long prompt ends too early; DEADLINE_EXCEEDED
  // after timeout_seconds.
  absl::StatusOr<Stall> Measure(uint64_t repetition);

 private:
  struct Gap {
    load::TimePoint begin;
    load::TimePoint end;
    int64_t tokens = 0;  // that ended it
  };

  void OnTokens(load::GenerateCall& call, int64_t tokens) override;
  void OnDone(load::GenerateCall& call) override;

  absl::Status StartStreams(uint64_t repetition);
  absl::StatusOr<std::unique_ptr<load::GenerateCall>> Send(int64_t prompt_tokens,
                                                           int64_t output_tokens,
                                                           uint64_t repetition, uint64_t index);
  // Handles events until `condition` holds.
  absl::Status RunUntil(const std::function<bool()>& condition);
  absl::Status RunFor(double seconds);
  bool AllStreamsHaveTokensSince(load::TimePoint time) const;
  // The gaps that end between `begin` and `end`; those that overlap that time.
  load::LatencyHistogram GapsEnding(load::TimePoint begin, load::TimePoint end) const;
  load::LatencyHistogram GapsTouching(load::TimePoint begin, load::TimePoint end) const;
  double TokensPerSecond(load::TimePoint begin, load::TimePoint end) const;

  Target& target_;
  const StallOptions options_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<load::GenerateCall>> streams_;
  std::unique_ptr<load::GenerateCall> arrival_;
  std::vector<Gap> gaps_;  // of the streams
  int64_t open_calls_ = 0;
  bool ending_ = false;
  absl::Status failure_;
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_STALL_PROBE_H_
