// The steps of sampling that change single logits: bias, allowed and banned ids, penalties.
#ifndef TLM_MODEL_SAMPLING_ADJUST_LOGITS_H_
#define TLM_MODEL_SAMPLING_ADJUST_LOGITS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/sampling/sampling_job.h"

namespace tlm {

// Tokens that one sample leaves out in addition to the parameters.
struct Removals {
  std::span<const int32_t> banned = {};  // ids, ascending
  // Bit id % 64 of word id / 64: a set bit keeps the token; ids past the last word are removed.
  // nullopt removes nothing.
  std::optional<std::span<const uint64_t>> allowed = {};
};

// True if AdjustLogits would change anything.
bool NeedsAdjusting(const SamplingParams& params, const Removals& removals);

// Writes logits [vocab_size], none NaN or +infinity, to `adjusted` after these steps, in order:
//   logit_bias; all but allowed ids, banned_token_ids and `removals` become -infinity;
//   repetition penalty: of tokens of prompt or output, positive logits divided, others multiplied;
//   frequency penalty: subtracted for each time a token is in the output; presence penalty: once.
// The output is the output in `history` followed by `draft`. A finite logit that is not removed
// stays finite. Ids are below vocab_size.
void AdjustLogits(std::span<const float> logits, const SamplingParams& params,
                  const TokenHistory& history, std::span<const int32_t> draft,
                  const Removals& removals, std::vector<float>* adjusted);

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_ADJUST_LOGITS_H_
