#include "model/sampling/adjust_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/sampling/sampling_math.h"

namespace tlm {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

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

void RemoveAllBut(std::span<const uint64_t> allowed, std::vector<float>* logits) {
  const size_t size = logits->size();
  for (size_t begin = 0; begin < size; begin += 64) {
    const uint64_t word = begin / 64 < allowed.size() ? allowed[begin / 64] : 0;
    if (word == ~uint64_t{0}) continue;
    const size_t count = std::min<size_t>(64, size - begin);
    float* const logit = logits->data() + begin;
    if (word == 0) {
      std::fill_n(logit, count, kRemoved);
      continue;
    }
    for (size_t i = 0; i < count; ++i) logit[i] = (word >> i & 1) != 0 ? logit[i] : kRemoved;
  }
}

void Penalise(const SamplingParams& params, const TokenHistory::Seen& seen, float* logit) {
  if (std::isinf(*logit)) return;
  const Penalties penalties = {params.repetition_penalty, params.presence_penalty,
                               params.frequency_penalty};
  *logit = PenalisedLogit(*logit, penalties, seen.in_prompt, seen.in_output);
}

void PenaliseAll(const SamplingParams& params, const TokenHistory& history,
                 std::span<const int32_t> draft, std::vector<float>* logits) {
  const auto logit_of = [&](int32_t id) -> float& { return (*logits)[static_cast<size_t>(id)]; };
  // Computes only the few logits that the draft changes, rather than copying the history.
  std::vector<std::pair<int32_t, TokenHistory::Seen>> drafted;
  std::vector<float> drafted_logits;
  if (!draft.empty()) history.SeenWith(draft, &drafted);
  for (const auto& [id, seen] : drafted) {
    Penalise(params, seen, &drafted_logits.emplace_back(logit_of(id)));
  }
  for (const auto& [id, seen] : history.seen()) Penalise(params, seen, &logit_of(id));
  for (size_t i = 0; i < drafted.size(); ++i) logit_of(drafted[i].first) = drafted_logits[i];
}

}  // namespace

bool NeedsAdjusting(const SamplingParams& params, const Removals& removals) {
  return !removals.banned.empty() || removals.allowed.has_value() || !params.logit_bias.empty() ||
         !params.allowed_token_ids.empty() || !params.banned_token_ids.empty() ||
         params.has_penalties();
}

void AdjustLogits(std::span<const float> logits, const SamplingParams& params,
                  const TokenHistory& history, std::span<const int32_t> draft,
                  const Removals& removals, std::vector<float>* adjusted) {
  adjusted->assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : params.logit_bias) {
    float& logit = (*adjusted)[static_cast<size_t>(id)];
    if (!std::isinf(logit)) logit = KeptFinite(logit + bias);
  }
  if (!params.allowed_token_ids.empty()) RemoveAllBut(params.allowed_token_ids, adjusted);
  for (const int32_t id : params.banned_token_ids) (*adjusted)[static_cast<size_t>(id)] = kRemoved;
  if (removals.allowed.has_value()) RemoveAllBut(*removals.allowed, adjusted);
  for (const int32_t id : removals.banned) (*adjusted)[static_cast<size_t>(id)] = kRemoved;
  if (params.has_penalties()) PenaliseAll(params, history, draft, adjusted);
}

}  // namespace tlm
