// What a caller asked for, as plain data: no gRPC, no protobuf.
#ifndef TLM_SERVER_BATCHING_REQUEST_H_
#define TLM_SERVER_BATCHING_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "model/sampling/sampler.h"
#include "model/sampling/sampling_params.h"

namespace tlm {

class TokenStream;

// When a generation ends. Stop strings are found where text is made, not here.
struct StopCriteria {
  int64_t max_new_tokens = 0;  // >= 1
  int64_t min_new_tokens = 0;  // until then no eos and no stop id is drawn
  std::vector<int32_t> stop_token_ids;
  std::vector<int32_t> eos_token_ids;  // empty when end-of-sequence is to be ignored
};

// A continuation of the prompt, drawn token by token.
struct GenerateWork {
  SamplingParams sampling;
  StopCriteria stop;
  ScoreRequest score;
  uint32_t output_index = 0;
};

// The logits after some of the prompt's tokens.
struct ForwardWork {
  std::vector<int64_t> positions;  // ascending, without repetition, each < prompt size
};

// One sequence to compute. Exactly one of `generate` and `forward` is set.
struct Request {
  std::string id;
  std::vector<int32_t> prompt;  // >= 1 ids, each in [0, vocab_size); checked by whoever made it
  std::optional<GenerateWork> generate;
  std::optional<ForwardWork> forward;
  int32_t priority = 0;                       // larger goes first
  absl::Time arrival = absl::InfinitePast();  // set by Engine::Submit
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<TokenStream> stream;  // shared with the handler that reads it
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_REQUEST_H_
