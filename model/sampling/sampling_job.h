// A token to choose from logits, and what is told of it, as plain data.
#ifndef TLM_MODEL_SAMPLING_DRAW_H_
#define TLM_MODEL_SAMPLING_DRAW_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/sampling/sampling_params.h"
#include "model/sampling/token_history.h"

namespace tlm {

// A token with what the model thought of it: natural-log probability and place by falling
// probability, 1 = most likely, equal ones ranked by id.
struct ScoredToken {
  int32_t id = 0;
  float logprob = 0.0f;  // -infinity for a token that may not be drawn
  uint32_t rank = 0;
};

struct SampledToken {
  int32_t id = 0;
  std::optional<ScoredToken> score;  // when asked for
  std::vector<ScoredToken> top;      // the most likely ones, best first; as many as asked for
};

// What the draw depends on besides logits, parameters and the sequence's own tokens: nothing else,
// so the same request draws the same tokens in any batch and after any interruption.
struct DrawKey {
  uint32_t output_index = 0;
  uint64_t position = 0;  // absolute position the drawn token will stand at
};

struct ScoreRequest {
  bool logprob = false;
  uint32_t top = 0;
  // The distribution of the scores: log-softmax of the unmodified logits or, when set, of what the
  // token was drawn from: after every step of SamplingParams, tokens removed having -infinity.
  // Greedy draws know neither temperature nor truncation, so theirs end after the penalties.
  bool processed = false;
};

// One token to choose in a forward pass: the arguments of Sampler::Sample. What it points at
// stays as it is until the pass is launched, and where the pass runs on the calling thread, until
// its results are there.
struct Draw {
  int32_t row = 0;  // of Batch::logits_rows: whose logits
  const SamplingParams* params = nullptr;
  const TokenHistory* history = nullptr;
  DrawKey key = {};
  ScoreRequest score = {};
  std::span<const int32_t> banned = {};
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_DRAW_H_
