// Summarizes a finished call: its counts and measurements.
#ifndef TLM_SERVER_OBSERVE_CALL_SUMMARY_H_
#define TLM_SERVER_OBSERVE_CALL_SUMMARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tlm {

// The regions of a Generate call's outputs; counts only regions whose end was reported.
struct RegionCounts {
  int64_t reasoning = 0;
  int64_t text = 0;
  int64_t complete_calls = 0;
  int64_t cut_calls = 0;         // the output ended within the call
  int64_t reasoning_tokens = 0;  // tokens whose text begins in reasoning, without its markup

  void Add(const RegionCounts& other) {
    reasoning += other.reasoning;
    text += other.text;
    complete_calls += other.complete_calls;
    cut_calls += other.cut_calls;
    reasoning_tokens += other.reasoning_tokens;
  }
};

struct CallSummary {
  std::string_view rpc;
  std::string_view tenant;
  bool admitted = false;
  bool used_engine = false;  // Generate, Forward, Score, Verify: requests in vLLM's sense
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string reason;  // the status's, "QUEUE_FULL"; empty: no reason
  // Finish reason of the first output of a successful Generate call: "eos", "stop_token",
  // "stop_string", "length", "context_length", "time_limit", "constraint", "constraint_complete";
  // empty otherwise.
  std::string_view finish;
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;
  int64_t completion_tokens = 0;
  absl::Duration total;
  std::optional<absl::Duration> queue;    // only for a started call
  std::optional<absl::Duration> prefill;  // only for a successful Generate call
  std::optional<absl::Duration> decode;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_CALL_SUMMARY_H_
