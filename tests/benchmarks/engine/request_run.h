// The engine under many requests at once: queue, scheduler, sampling and delivery, without RPC.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_REQUEST_RUN_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_REQUEST_RUN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/transformer_lm/language_model.h"
#include "server/batching/engine.h"
#include "server/batching/token_stream.h"

namespace tlm::bench {

struct RequestLoad {
  int64_t requests = 0;       // all at once
  int64_t prompt_tokens = 0;  // of each, uniform ids, all different
  int64_t output_tokens = 0;  // of each, greedy
  bool logprobs = false;      // of each output token
};

struct RequestFigures {
  double seconds = 0;             // from the first request to the last token
  double median_first_token = 0;  // seconds from the start
  int64_t steps = 0;
  int64_t output_tokens = 0;
  // Of all tokens of all requests, in the requests' order; with log-probabilities of their bits,
  // too, which hardly any difference of a computation leaves alone.
  uint64_t token_digest = 0;
};

// What one request has given.
struct RequestResult {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;       // [tokens] where asked for, else empty
  std::vector<absl::Time> arrivals;  // [tokens], at the reader
  StreamEnd end;                     // well
  absl::Time submitted;

  // When the engine had its first token, and its last one.
  absl::Time first() const { return submitted + end.queue_time + end.prefill_time; }
  absl::Time last() const { return first() + end.decode_time; }
};

// Submits all at once, each of one output, and waits for them. Sets their streams. An error of any
// is that of all; then the engine may still be computing others.
absl::StatusOr<std::vector<RequestResult>> RunRequests(Engine& engine,
                                                       std::vector<Request> requests);

// `options` fit the model.
absl::StatusOr<RequestFigures> RunRequests(LanguageModel& model, const EngineOptions& options,
                                           const RequestLoad& load);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_REQUEST_RUN_H_
