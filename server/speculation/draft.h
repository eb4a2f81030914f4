// Defines drafts: guesses of the tokens that the model will sample next.
#ifndef TLM_SERVER_SPECULATION_DRAFT_H_
#define TLM_SERVER_SPECULATION_DRAFT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "model/sampling/sampling_job.h"

namespace tlm {

// A guess of the tokens that follow a sequence. One step of the model computes the draft and
// samples a token after each of its tokens. Sampled tokens are kept up to and including the first
// that differs from the guess. So a draft changes when a token comes, never which token.
struct Draft {
  std::vector<int32_t> tokens;
  // As many as `tokens`: the estimated probability, in [0, 1], that a token is sampled if all
  // tokens before it were.
  std::vector<double> chances;
};

// A sequence whose next tokens a DraftSource is to guess.
struct Guess {
  int64_t sequence = 0;             // Sequence::number; at most one guess of it per call
  std::span<const int32_t> tokens;  // the sequence's tokens so far
  int64_t max_tokens = 0;           // most tokens to guess, >= 1
  const SamplingParams* sampling = nullptr;
  const TokenHistory* history = nullptr;  // history of `tokens`
  uint32_t output_index = 0;
  // The result. Shorter than max_tokens or empty when blocks or positions in the source's context
  // are short, when earlier tokens are not computed yet, or when no token can be sampled.
  std::vector<int32_t> draft = {};
};

// A source of guesses that cost time to make. Not thread-safe: the engine thread calls it.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Returns the number of tokens that the source must compute before it can guess for this
  // sequence.
  virtual int64_t Lag(int64_t sequence, std::span<const int32_t> tokens) const = 0;
  // Guesses for all sequences, one token of each at a time. INTERNAL: a device fault; nothing is
  // guessed, and the source has forgotten every sequence.
  virtual absl::Status Propose(std::span<Guess> guesses) = 0;
  // Frees everything stored for a sequence that has ended.
  virtual void Forget(int64_t sequence) = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_DRAFT_H_
