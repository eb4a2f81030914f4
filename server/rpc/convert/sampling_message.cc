#include "server/rpc/convert/sampling_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

constexpr float kMaxLogitBias = 100.0f;      // and its negative
constexpr float kMaxAdditivePenalty = 2.0f;  // and its negative

absl::Status ConvertTemperature(const v1::SamplingParams& sampling, SamplingParams& params) {
  if (!sampling.has_temperature()) return absl::OkStatus();
  params.temperature = sampling.temperature();
  if (params.temperature >= 0.0f && std::isfinite(params.temperature)) return absl::OkStatus();
  return BadField("sampling.temperature", "is {}, it must be finite and not negative",
                  params.temperature);
}

// INVALID_ARGUMENT unless 0 < value <= 1.
absl::Status CheckShare(std::string_view field, float value) {
  // This form rejects NaN.
  if (value > 0.0f && value <= 1.0f) return absl::OkStatus();
  return BadField(field, "is {}, the range is (0, 1]", value);
}

absl::Status ConvertTruncation(const v1::SamplingParams& sampling, SamplingParams& params) {
  if (sampling.has_top_k()) params.top_k = sampling.top_k();
  if (sampling.has_top_p()) params.top_p = sampling.top_p();
  if (sampling.has_min_p()) params.min_p = sampling.min_p();
  if (sampling.has_typical_p()) params.typical_p = sampling.typical_p();
  TLM_RETURN_IF_ERROR(CheckShare("sampling.top_p", params.top_p));
  TLM_RETURN_IF_ERROR(CheckShare("sampling.typical_p", params.typical_p));
  return CheckRange("sampling.min_p", params.min_p, 0.0f, 1.0f);
}

absl::Status ConvertPenalties(const v1::SamplingParams& sampling, SamplingParams& params) {
  if (sampling.has_repetition_penalty()) params.repetition_penalty = sampling.repetition_penalty();
  if (sampling.has_presence_penalty()) params.presence_penalty = sampling.presence_penalty();
  if (sampling.has_frequency_penalty()) params.frequency_penalty = sampling.frequency_penalty();
  if (!(params.repetition_penalty > 0.0f && std::isfinite(params.repetition_penalty))) {
    return BadField("sampling.repetition_penalty", "is {}, it must be positive and finite",
                    params.repetition_penalty);
  }
  TLM_RETURN_IF_ERROR(CheckRange("sampling.presence_penalty", params.presence_penalty,
                                 -kMaxAdditivePenalty, kMaxAdditivePenalty));
  return CheckRange("sampling.frequency_penalty", params.frequency_penalty, -kMaxAdditivePenalty,
                    kMaxAdditivePenalty);
}

absl::Status ConvertLogitBias(const v1::SamplingParams& sampling, const ServedModel& model,
                              SamplingParams& params) {
  const auto& message = sampling.logit_bias();
  if (message.empty()) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(CheckCount("sampling.logit_bias", static_cast<int64_t>(message.size()),
                                 model.limits.max_logit_bias_entries));
  std::vector<std::pair<uint32_t, float>> entries(message.begin(), message.end());
  std::sort(entries.begin(), entries.end());
  params.logit_bias.clear();
  for (const auto& [id, bias] : entries) {
    if (id >= model.config.vocab_size) {
      return BadField("sampling.logit_bias", "names token {}, the vocabulary has {} tokens", id,
                      model.config.vocab_size);
    }
    TLM_RETURN_IF_ERROR(CheckRange(fmt::format("sampling.logit_bias[{}]", id), bias, -kMaxLogitBias,
                                   kMaxLogitBias));
    params.logit_bias.emplace_back(static_cast<int32_t>(id), bias);
  }
  return absl::OkStatus();
}

// Replaces `set` by the ids, ascending and without duplicates, unless there are none.
absl::Status ConvertIdSet(const google::protobuf::RepeatedField<uint32_t>& ids,
                          const ServedModel& model, std::string_view field, int64_t limit,
                          std::vector<int32_t>& set) {
  if (ids.empty()) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(CheckCount(field, ids.size(), limit));
  TLM_ASSIGN_OR_RETURN(set, TokenIdsOf(ids, model, field));
  std::sort(set.begin(), set.end());
  set.erase(std::unique(set.begin(), set.end()), set.end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SamplingParams> ConvertSampling(const v1::SamplingParams& sampling,
                                               const ServedModel& model) {
  SamplingParams params = model.default_sampling;
  TLM_RETURN_IF_ERROR(ConvertTemperature(sampling, params));
  TLM_RETURN_IF_ERROR(ConvertTruncation(sampling, params));
  TLM_RETURN_IF_ERROR(ConvertPenalties(sampling, params));
  TLM_RETURN_IF_ERROR(ConvertLogitBias(sampling, model, params));
  TLM_RETURN_IF_ERROR(ConvertIdSet(sampling.allowed_token_ids(), model,
                                   "sampling.allowed_token_ids", model.limits.max_allowed_token_ids,
                                   params.allowed_token_ids));
  TLM_RETURN_IF_ERROR(ConvertIdSet(sampling.banned_token_ids(), model, "sampling.banned_token_ids",
                                   model.limits.max_banned_token_ids, params.banned_token_ids));
  params.seed = sampling.seed();
  return params;
}

absl::StatusOr<int64_t> ConvertNumSequences(const v1::SamplingParams& sampling,
                                            const ServedModel& model) {
  if (!sampling.has_num_sequences()) return 1;
  TLM_RETURN_IF_ERROR(CheckRange<int64_t>("sampling.num_sequences", sampling.num_sequences(), 1,
                                          model.limits.max_num_sequences));
  return sampling.num_sequences();
}

void FillSampling(const SamplingParams& from, int64_t num_sequences, v1::SamplingParams& sampling) {
  sampling.set_temperature(from.temperature);
  sampling.set_top_k(from.top_k);
  sampling.set_top_p(from.top_p);
  sampling.set_min_p(from.min_p);
  sampling.set_typical_p(from.typical_p);
  sampling.set_repetition_penalty(from.repetition_penalty);
  sampling.set_presence_penalty(from.presence_penalty);
  sampling.set_frequency_penalty(from.frequency_penalty);
  sampling.set_num_sequences(static_cast<uint32_t>(num_sequences));
  for (const auto& [id, bias] : from.logit_bias) {
    (*sampling.mutable_logit_bias())[static_cast<uint32_t>(id)] = bias;
  }
  for (const int32_t id : from.allowed_token_ids) {
    sampling.add_allowed_token_ids(static_cast<uint32_t>(id));
  }
  for (const int32_t id : from.banned_token_ids) {
    sampling.add_banned_token_ids(static_cast<uint32_t>(id));
  }
}

}  // namespace tlm
