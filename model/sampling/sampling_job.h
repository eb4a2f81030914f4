// A token to sample from logits, and what to report of it, as plain data.
#ifndef TLM_MODEL_SAMPLING_SAMPLING_JOB_H_
#define TLM_MODEL_SAMPLING_SAMPLING_JOB_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/sampling/sampling_params.h"
#include "model/sampling/token_history.h"

namespace tlm {

// A token with its natural-log probability and its rank by falling probability: 1 = most likely,
// equal ones ranked by id.
struct ScoredToken {
  int32_t id = 0;
  float logprob = 0.0f;  // -infinity for a token that may not be sampled
  uint32_t rank = 0;
};

struct SampledToken {
  int32_t id = 0;
  std::optional<ScoredToken> score;  // when asked for
  std::vector<ScoredToken> top;      // the most likely ones, best first; as many as asked for
};

// What sampling depends on besides logits, parameters and the sequence's own tokens: nothing else,
// so the same request gives the same tokens in any batch and after any interruption.
struct SampleKey {
  uint32_t output_index = 0;
  uint64_t position = 0;  // absolute position the sampled token will stand at
};

struct LogprobOptions {
  bool logprob = false;
  uint32_t top = 0;
  // The distribution of the scores: log-softmax of the unmodified logits or, when set, of what the
  // token was sampled from: after every step of SamplingParams, tokens removed having -infinity.
  // Greedy sampling knows neither temperature nor truncation, so its scores end after the
  // penalties.
  bool processed = false;
};

// The tokens that may be sampled, where that may become known only while the logits are computed.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Waits for it: bit id % 64 of word id / 64 is set where the token may be sampled; none may
  // behind the last word. None when it takes too long. From any thread; valid as long as what a job
  // points at.
  virtual std::optional<std::span<const uint64_t>> Await() const = 0;
};

// One token to sample in a forward pass: the arguments of Sampler::Sample. What it points at must
// not change until the pass is launched; where the pass runs on the calling thread, until its
// results are there.
struct SamplingJob {
  int32_t row = 0;  // of Batch::logits_rows: whose logits
  const SamplingParams* params = nullptr;
  const TokenHistory* history = nullptr;
  SampleKey key = {};
  LogprobOptions score = {};
  // Tokens of the output behind those of `history`, oldest first: guesses that were not drawn yet.
  std::span<const int32_t> draft = {};
  std::span<const int32_t> banned = {};
  const TokenMask* mask = nullptr;  // null: all; its wait may end the job with MaskIsLate()
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SAMPLING_JOB_H_
