// The steps of sampling that change single logits: bias, allowed and banned ids, penalties.
#ifndef TLM_MODEL_SAMPLING_ADJUST_LOGITS_H_
#define TLM_MODEL_SAMPLING_ADJUST_LOGITS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/sampling/sampling_job.h"

namespace tlm {

// Tokens that a single draw leaves out, whatever the parameters are.
struct Removals {
  std::span<const int32_t> banned = {};  // ids, ascending
  // Bit id % 64 of word id / 64 is set where a token is not removed, which it is behind the last
  // word. None: this removes nothing.
  std::optional<std::span<const uint64_t>> allowed = {};
};

// Whether AdjustLogits would change anything.
bool NeedsAdjusting(const SamplingParams& params, const Removals& removals);

// logits [vocab_size], none NaN or +infinity, to `adjusted`, in the order
//   logit_bias; all but allowed ids, banned_token_ids and `removals`, which become -infinity;
//   repetition penalty: tokens of prompt or output, positive ones divided, others multiplied;
//   frequency penalty: subtracted for each time a token is in the output; presence penalty: once.
// The output is that of `history` with `draft` behind it. What was finite and is not removed stays
// finite. Ids are below vocab_size.
void AdjustLogits(std::span<const float> logits, const SamplingParams& params,
                  const TokenHistory& history, std::span<const int32_t> draft,
                  const Removals& removals, std::vector<float>* adjusted);

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_ADJUST_LOGITS_H_
