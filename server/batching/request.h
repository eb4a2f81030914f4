// What a caller asked for, as plain data: no gRPC, no protobuf.
#ifndef TLM_SERVER_BATCHING_REQUEST_H_
#define TLM_SERVER_BATCHING_REQUEST_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/sampling/sampler.h"
#include "model/sampling/sampling_job.h"
#include "server/batching/output_mask.h"

namespace tlm {

class TokenStream;

// When a generation ends. Stop strings are found where text is made, not here.
struct StopCriteria {
  int64_t max_new_tokens = 0;  // >= 1
  int64_t min_new_tokens = 0;  // until then no eos and no stop id is sampled
  std::vector<int32_t> stop_token_ids;
  std::vector<int32_t> eos_token_ids;  // empty when end-of-sequence is to be ignored
};

// Continuations of the prompt, sampled token by token: output_index, and the next ones for as many
// as the request has branch streams.
struct GenerateWork {
  SamplingParams sampling;
  StopCriteria stop;
  LogprobOptions score;
  uint32_t output_index = 0;
  // Every prompt token but the first is scored (unmodified logits, score.top alternatives) before
  // anything is sampled. Not together with `generated`.
  bool score_prompt = false;
  // Tokens another replica has sampled already: they count as this output's first ones and are not
  // pushed again. Ids in [0, vocab_size); without branches.
  std::vector<int32_t> generated;
  // At most so many tokens are guessed for a step; 0: none.
  int64_t max_draft_tokens = std::numeric_limits<int64_t>::max();
  // Tokens that this output is said to have, behind `generated`: they are computed like a prompt,
  // what is drawn for each is pushed, and the output ends with the first that differs, the last
  // one, or by its own rules; with kRowsComplete in the first two cases. Ids in [0, vocab_size);
  // without branches. Empty: the output is made, not verified.
  std::vector<int32_t> claimed;
  // Behind `generated`, unless these end the output. None: the output may be anything.
  std::optional<OutputConstraint> constraint;
};

// The logits after some of the prompt's tokens.
struct ForwardWork {
  std::vector<int64_t> positions;  // ascending, without repetition, each < prompt size
};

// How probable given continuations of the prompt are, each for itself; the prompt is computed once.
struct ScoreWork {
  std::vector<std::vector<int32_t>> continuations;  // >= 1, each of >= 1 ids in [0, vocab_size)
  uint32_t top = 0;                                 // alternatives a token
};

// How a request uses the prefix cache.
struct CacheUse {
  bool bypass = false;  // neither look blocks up nor publish them
  std::string salt;     // only requests with the same salt find each other's blocks
};

// What to compute from one prompt.
struct Request {
  std::string id;
  std::vector<int32_t> prompt;  // >= 1 ids, each in [0, vocab_size); checked by its creator
  std::variant<GenerateWork, ForwardWork, ScoreWork> work;
  // Whose it is: tenants of the same priority share the engine fairly, and the prefix cache not at
  // all. Empty: no tenant.
  std::string tenant;
  CacheUse cache;
  int32_t priority = 0;                       // larger goes first
  absl::Time arrival = absl::InfinitePast();  // set by Engine::Submit
  absl::Time deadline = absl::InfiniteFuture();
  // Generate alone: after it every output that has not ended ends well, with kTimeLimit.
  absl::Time soft_deadline = absl::InfiniteFuture();
  std::shared_ptr<TokenStream> stream;  // shared with the handler that reads it
  // Generate alone: one token stream for each further output. Every one of them receives its own
  // start and end; detaching one drops that output only.
  std::vector<std::shared_ptr<TokenStream>> branch_streams;

  // Null for other work.
  GenerateWork* generate() { return std::get_if<GenerateWork>(&work); }
  const GenerateWork* generate() const { return std::get_if<GenerateWork>(&work); }
  ForwardWork* forward() { return std::get_if<ForwardWork>(&work); }
  const ForwardWork* forward() const { return std::get_if<ForwardWork>(&work); }
  ScoreWork* score() { return std::get_if<ScoreWork>(&work); }
  const ScoreWork* score() const { return std::get_if<ScoreWork>(&work); }
};

// Tokens that come with the request: those of the prompt, of the output that is resumed and of the
// continuations to score, and those claimed.
inline int64_t InputTokens(const Request& request) {
  size_t tokens = request.prompt.size();
  if (request.generate() != nullptr) {
    tokens += request.generate()->generated.size() + request.generate()->claimed.size();
  }
  if (request.score() != nullptr) {
    for (const std::vector<int32_t>& ids : request.score()->continuations) tokens += ids.size();
  }
  return static_cast<int64_t>(tokens);
}

// OK when no step can fail because of it: see Engine::Submit, whose INVALID_ARGUMENT this is.
// `max_outputs`: of one prompt. CHECKs what a caller's code decides: token streams, and that
// exactly one kind of work is set.
absl::Status CheckRequest(const Request& request, int64_t max_context, int64_t max_outputs);

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_REQUEST_H_
