// The engine under many requests at once: queue, scheduler, sampling and delivery, without RPC.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_REQUEST_RUN_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_REQUEST_RUN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "model/transformer_lm/language_model.h"
#include "server/batching/engine.h"

namespace tlm::bench {

struct RequestLoad {
  int64_t requests = 0;       // all at once
  int64_t prompt_tokens = 0;  // of each, uniform ids, all different
  int64_t output_tokens = 0;  // of each, greedy
};

struct RequestFigures {
  double seconds = 0;             // from the first request to the last token
  double median_first_token = 0;  // seconds from the start
  int64_t steps = 0;
  int64_t output_tokens = 0;
};

// `options` fit the model.
absl::StatusOr<RequestFigures> RunRequests(LanguageModel& model, const EngineOptions& options,
                                           const RequestLoad& load);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_REQUEST_RUN_H_
