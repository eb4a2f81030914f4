// Describes a caller's request as plain data, without gRPC and protobuf.
#ifndef TLM_SERVER_BATCHING_REQUEST_H_
#define TLM_SERVER_BATCHING_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/constraint/constraint.h"
#include "model/sampling/sampler.h"
#include "model/sampling/sampling_job.h"
#include "server/batching/stop_criteria.h"

namespace tlm {

class TokenStream;

// The constraint on an output from some token on.
struct OutputConstraint {
  ConstraintMatcher matcher;
  // Tokens that end the output and are not part of its text, ascending. They are allowed only where
  // the text may end.
  std::vector<int32_t> end_ids;
};

// Continuations of the prompt, sampled token by token: the output `output_index` and one more for
// each branch stream of the request.
struct GenerateWork {
  SamplingParams sampling;
  StopCriteria stop;
  LogprobOptions score;
  uint32_t output_index = 0;
  // Scores every prompt token but the first before the first sample (unmodified logits, score.top
  // alternatives). Not together with `generated`.
  bool score_prompt = false;
  // Tokens that another replica sampled: the first tokens of this output, not pushed again. Ids in
  // [0, vocab_size); without branches.
  std::vector<int32_t> generated;
  // The most tokens to guess for one step; 0: no guesses.
  int64_t max_draft_tokens = std::numeric_limits<int64_t>::max();
  // Tokens to verify as the output after `generated`. They are computed like a prompt; the token
  // sampled at each position is pushed. The output ends at the first token that differs or at the
  // last one (both kRowsComplete), or by its own rules. Ids in [0, vocab_size); without branches.
  // Empty: the output is generated, not verified.
  std::vector<int32_t> claimed;
  // Applies after `generated`, unless these tokens end the output. nullopt: no constraint.
  std::optional<OutputConstraint> constraint;
};

// The logits after some of the prompt's tokens.
struct ForwardWork {
  std::vector<int64_t> positions;  // ascending, without repetition, each < prompt size
};

// The log probabilities of given continuations, each independent of the others; the prompt is
// computed once.
struct ScoreWork {
  std::vector<std::vector<int32_t>> continuations;  // >= 1, each of >= 1 ids in [0, vocab_size)
  uint32_t top = 0;                                 // alternatives per token
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
  // The tenant that sent the request. Tenants of one priority share the engine fairly and never
  // share prefix-cache blocks. Empty: no tenant.
  std::string tenant;
  CacheUse cache;
  int32_t priority = 0;                       // larger goes first
  absl::Time arrival = absl::InfinitePast();  // set by Engine::Submit
  absl::Time deadline = absl::InfiniteFuture();
  // Generate only: at this time every output that has not ended ends well, with kTimeLimit.
  absl::Time soft_deadline = absl::InfiniteFuture();
  std::shared_ptr<TokenStream> stream;  // shared with the handler that reads it
  // Generate only: one token stream for each further output. Each receives its own start and end;
  // detaching one drops only that output.
  std::vector<std::shared_ptr<TokenStream>> branch_streams;

  // Each returns null for other work.
  GenerateWork* generate() { return std::get_if<GenerateWork>(&work); }
  const GenerateWork* generate() const { return std::get_if<GenerateWork>(&work); }
  ForwardWork* forward() { return std::get_if<ForwardWork>(&work); }
  const ForwardWork* forward() const { return std::get_if<ForwardWork>(&work); }
  ScoreWork* score() { return std::get_if<ScoreWork>(&work); }
  const ScoreWork* score() const { return std::get_if<ScoreWork>(&work); }
};

// Prompt, resumed, scored and claimed tokens together.
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

// Returns the index of the token in a Generate request's `generated` that ends the output; nullopt
// when the output continues.
std::optional<size_t> EndOfGenerated(const Request& request, int64_t max_context);

// Returns OK when no step can fail because of this request; Engine::Submit returns this
// INVALID_ARGUMENT. `max_outputs`: the most outputs of one prompt. CHECKs what the caller's code
// decides: that the token streams exist, and that exactly one kind of work is set.
absl::Status CheckRequest(const Request& request, int64_t max_context, int64_t max_outputs);

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_REQUEST_H_
