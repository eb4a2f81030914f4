#include "model/sampling/adjust_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tlm {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

// An extreme bias or penalty must neither remove a token nor make the only one.
float KeptFinite(float value) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  return std::clamp(value, -kLargest, kLargest);
}

float Penalised(float logit, const SamplingParams& params, const TokenHistory::Seen& seen) {
  const float repetition = params.repetition_penalty;
  if (seen.in_prompt || seen.in_output > 0) {
    logit = logit > 0.0f ? logit / repetition : logit * repetition;
  }
  if (seen.in_output > 0) {
    logit -= params.frequency_penalty * static_cast<float>(seen.in_output);
    logit -= params.presence_penalty;
  }
  return KeptFinite(logit);
}

void RemoveAllBut(std::span<const int32_t> allowed, std::vector<float>* logits) {
  auto next = allowed.begin();
  for (size_t id = 0; id < logits->size(); ++id) {
    if (next != allowed.end() && *next == static_cast<int32_t>(id)) {
      ++next;
    } else {
      (*logits)[id] = kRemoved;
    }
  }
}

}  // namespace

bool NeedsAdjusting(const SamplingParams& params, std::span<const int32_t> banned) {
  return !banned.empty() || !params.logit_bias.empty() || !params.allowed_token_ids.empty() ||
         !params.banned_token_ids.empty() || params.has_penalties();
}

void AdjustLogits(std::span<const float> logits, const SamplingParams& params,
                  const TokenHistory& history, std::span<const int32_t> banned,
                  std::vector<float>* adjusted) {
  adjusted->assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : params.logit_bias) {
    float& logit = (*adjusted)[static_cast<size_t>(id)];
    if (!std::isinf(logit)) logit = KeptFinite(logit + bias);
  }
  if (!params.allowed_token_ids.empty()) RemoveAllBut(params.allowed_token_ids, adjusted);
  for (const int32_t id : params.banned_token_ids) (*adjusted)[static_cast<size_t>(id)] = kRemoved;
  for (const int32_t id : banned) (*adjusted)[static_cast<size_t>(id)] = kRemoved;
  if (!params.has_penalties()) return;
  for (const auto& [id, seen] : history.seen()) {
    float& logit = (*adjusted)[static_cast<size_t>(id)];
    if (!std::isinf(logit)) logit = Penalised(logit, params, seen);
  }
}

}  // namespace tlm
