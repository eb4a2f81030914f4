// Tokens that are guessed before the model has drawn them.
#ifndef TLM_SERVER_SPECULATION_DRAFT_H_
#define TLM_SERVER_SPECULATION_DRAFT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "model/sampling/sampling_job.h"

namespace tlm {

// A guess of what follows a sequence's tokens. One step of the model computes it and draws a token
// behind each of its tokens, as if they were there; the tokens drawn count as far as they are the
// guessed ones, and the first one that is not. So a draft changes when a token comes, never which.
struct Draft {
  std::vector<int32_t> tokens;
  // As many: the estimated probability, in [0, 1], that a token is drawn where those before it
  // were.
  std::vector<double> chances;
};

// A sequence whose next tokens a DraftSource is asked for.
struct Guess {
  int64_t sequence = 0;             // Sequence::number; one guess of it in a call
  std::span<const int32_t> tokens;  // of the sequence, so far
  int64_t max_tokens = 0;           // to guess, >= 1
  const SamplingParams* sampling = nullptr;
  const TokenHistory* history = nullptr;  // of `tokens`
  uint32_t output_index = 0;
  // The result: fewer tokens, or none, where there is no room, nor a position in the source's
  // context, where the tokens before are not computed yet, or none can be sampled.
  std::vector<int32_t> draft = {};
};

// Guesses that cost something to make. Not thread-safe: the engine thread calls it.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // The tokens that it has to compute before it guesses for this sequence.
  virtual int64_t Lag(int64_t sequence, std::span<const int32_t> tokens) const = 0;
  // Guesses for all, a token of each at a time. INTERNAL: a device fault; nothing is guessed, and
  // it knows of no sequence any more.
  virtual absl::Status Propose(std::span<Guess> guesses) = 0;
  // The sequence has ended: what is held for it is free.
  virtual void Forget(int64_t sequence) = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_DRAFT_H_
