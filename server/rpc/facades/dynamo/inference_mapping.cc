#include "server/rpc/facades/dynamo/inference_mapping.h"

#include <algorithm>
#include <string_view>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "server/auth/principal.h"
#include "server/rpc/convert/field_error.h"
#include "server/rpc/facades/structural_tag_json.h"

namespace tlm {
namespace {

// Zero means the default in these fields; tlm.v1 leaves such fields unset.
void ReadSampling(vllm::GenerateRequest& request, v1::SamplingParams& sampling) {
  if (request.has_temperature()) sampling.set_temperature(request.temperature());
  const vllm::RandomSampling& random = request.sampling();
  if (random.num_sequences() != 0) sampling.set_num_sequences(random.num_sequences());
  if (random.top_k() != 0) sampling.set_top_k(random.top_k());
  if (random.top_p() != 0) sampling.set_top_p(random.top_p());
  if (random.min_p() != 0) sampling.set_min_p(random.min_p());
  if (random.has_seed()) sampling.set_seed(static_cast<uint64_t>(random.seed()));
  vllm::DecodingParameters& decoding = *request.mutable_decoding();
  if (decoding.presence_penalty() != 0) {
    sampling.set_presence_penalty(decoding.presence_penalty());
  }
  if (decoding.frequency_penalty() != 0) {
    sampling.set_frequency_penalty(decoding.frequency_penalty());
  }
  if (decoding.repetition_penalty() != 0) {
    sampling.set_repetition_penalty(decoding.repetition_penalty());
  }
  sampling.mutable_logit_bias()->swap(*decoding.mutable_logit_bias());
  sampling.mutable_allowed_token_ids()->Swap(decoding.mutable_allowed_token_ids());
}

absl::Status ReadConstraint(vllm::DecodingParameters& decoding, v1::GenerateRequest& generate) {
  switch (decoding.structured_output_case()) {
    case vllm::DecodingParameters::kJson:
      generate.set_json_schema(std::move(*decoding.mutable_json()));
      break;
    case vllm::DecodingParameters::kRegex:
      generate.set_regex(std::move(*decoding.mutable_regex()));
      break;
    case vllm::DecodingParameters::kChoice:
      generate.mutable_choices()->mutable_choices()->Swap(
          decoding.mutable_choice()->mutable_choices());
      break;
    case vllm::DecodingParameters::kGrammar:
      generate.set_grammar(std::move(*decoding.mutable_grammar()));
      break;
    case vllm::DecodingParameters::kJsonObject:
      if (decoding.json_object()) generate.set_json_object(true);
      break;
    case vllm::DecodingParameters::kStructuralTag:
      return ReadStructuralTag("decoding.structural_tag", decoding.structural_tag(),
                               *generate.mutable_structural_tag());
    case vllm::DecodingParameters::STRUCTURED_OUTPUT_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

void ReadStopping(vllm::StoppingCriteria& stopping, v1::StoppingCriteria& criteria) {
  if (stopping.max_new_tokens() != 0) criteria.set_max_new_tokens(stopping.max_new_tokens());
  criteria.set_min_new_tokens(stopping.min_new_tokens());
  criteria.mutable_stop_token_ids()->Swap(stopping.mutable_stop_token_ids());
  criteria.mutable_stop_strings()->Swap(stopping.mutable_stop_strings());
  criteria.set_include_stop_in_output(stopping.include_stop_strings());
  criteria.set_ignore_eos(stopping.ignore_eos());
}

absl::Status ReadCache(vllm::KVCacheParameters& kv, v1::CacheOptions& cache) {
  if (kv.has_kv_transfer_params()) {
    return NotBuilt("kv.kv_transfer_params", "the transfer of KV caches between servers");
  }
  if (kv.has_ec_transfer_params()) {
    return NotBuilt("kv.ec_transfer_params", "the transfer of encoder caches between servers");
  }
  cache.set_bypass_prefix_cache(kv.bypass_prefix_cache());
  cache.set_cache_salt(std::move(*kv.mutable_cache_salt()));
  return absl::OkStatus();
}

// A smaller number is more urgent there, less urgent here.
absl::Status ReadPriority(int32_t priority, v1::SchedulingOptions& scheduling) {
  TLM_RETURN_IF_ERROR(CheckRange<int32_t>("priority", priority, -kMaxPriority, kMaxPriority));
  scheduling.set_priority(-priority);
  return absl::OkStatus();
}

absl::Status CheckUnsupported(const vllm::GenerateRequest& request) {
  if (!request.session_id().empty()) return NotBuilt("session_id", "sessions");
  if (!request.media().empty()) return NotBuilt("media", "images, videos and sounds");
  if (!request.lora_name().empty()) return NotBuilt("lora_name", "adapters");
  return CheckFieldsKnown(request);
}

// Returns the number of alternatives requested, along with log-probabilities if `wanted`.
absl::StatusOr<int> ReadCandidates(std::string_view field, bool wanted, bool given,
                                   const vllm::CandidateTokens& candidates,
                                   const ServedModel& model) {
  if (!given) return 0;
  if (!wanted) return BadField(field, "is set without the log-probabilities that it is part of");
  switch (candidates.select_case()) {
    case vllm::CandidateTokens::kTopN:
      TLM_RETURN_IF_ERROR(CheckRange<int64_t>(fmt::format("{}.top_n", field), candidates.top_n(), 0,
                                              model.limits.max_top_logprobs));
      return static_cast<int>(candidates.top_n());
    case vllm::CandidateTokens::kTokenIds:
      return NotBuilt(fmt::format("{}.token_ids", field), "alternatives that the request names");
    case vllm::CandidateTokens::kAll:
      if (!candidates.all()) return 0;
      return NotBuilt(fmt::format("{}.all", field), "all tokens as alternatives");
    case vllm::CandidateTokens::SELECT_NOT_SET:
      return 0;
  }
  return 0;
}

// Fills in the alternatives, except for the token itself, whose log-probability has its own field.
void FillCandidates(const v1::TokenInfo& token, int top, vllm::CandidateTokenInfo& info) {
  for (int i = 0; i < std::min(top, token.top_size()); ++i) {
    const v1::TopToken& other = token.top(i);
    if (other.id() == token.id()) continue;
    vllm::CandidateTokenInfo::TokenInfo& candidate = *info.add_tokens();
    candidate.set_id(other.id());
    candidate.set_logprob(other.logprob());
    candidate.set_rank(other.rank());
  }
}

// A PromptInfo and a SequenceOutput have the same lists.
template <typename Message>
void FillLogprob(const v1::TokenInfo& token, int top, Message& message) {
  message.add_logprobs(token.logprob());
  message.add_ranks(token.rank());
  FillCandidates(token, top, *message.add_candidate_tokens());
}

vllm::FinishInfo::FinishReason ReasonOf(v1::FinishReason reason) {
  const bool stopped = reason == v1::FINISH_REASON_EOS || reason == v1::FINISH_REASON_STOP ||
                       reason == v1::FINISH_REASON_CONSTRAINT_COMPLETE;
  return stopped ? vllm::FinishInfo::STOP : vllm::FinishInfo::LENGTH;
}

}  // namespace

absl::Status InferenceMapping::Read(vllm::GenerateRequest& request, const ServedModel& model,
                                    v1::GenerateRequest& generate) {
  TLM_RETURN_IF_ERROR(CheckUnsupported(request));
  if (!data_parallel_rank_.empty() && data_parallel_rank_ != "0") {
    return BadField("x-data-parallel-rank", "is {}, the server has rank 0 alone",
                    Quoted(data_parallel_rank_));
  }
  if (answer_ == Answer::kUnary && request.sampling().num_sequences() > 1) {
    return BadField("sampling.num_sequences", "is {}, Generate answers with 1; use GenerateStream",
                    request.sampling().num_sequences());
  }
  TLM_RETURN_IF_ERROR(ReadResponse(request, model, *generate.mutable_output()));
  generate.set_request_id(std::move(*request.mutable_request_id()));
  generate.set_model(std::move(*request.mutable_model()));
  if (request.has_text()) generate.set_prompt(std::move(*request.mutable_text()));
  if (request.has_token_ids()) {
    auto& ids = *request.mutable_token_ids()->mutable_ids();
    if (prompt_ids_ && !prompt_logprobs_) given_ids_.assign(ids.begin(), ids.end());
    generate.mutable_prompt_token_ids()->mutable_ids()->Swap(&ids);
  }
  ReadSampling(request, *generate.mutable_sampling());
  TLM_RETURN_IF_ERROR(ReadConstraint(*request.mutable_decoding(), generate));
  include_stop_ = request.stopping().include_stop_strings();
  ReadStopping(*request.mutable_stopping(), *generate.mutable_stopping());
  TLM_RETURN_IF_ERROR(ReadCache(*request.mutable_kv(), *generate.mutable_cache()));
  TLM_RETURN_IF_ERROR(ReadPriority(request.priority(), *generate.mutable_scheduling()));
  if (request.truncate_prompt_tokens() != 0) {
    generate.set_truncate_prompt_tokens(request.truncate_prompt_tokens());
  }
  return absl::OkStatus();
}

absl::Status InferenceMapping::ReadResponse(const vllm::GenerateRequest& request,
                                            const ServedModel& model, v1::OutputOptions& output) {
  const vllm::ResponseOptions& response = request.response();
  if (response.has_skip_special_tokens() && !response.skip_special_tokens()) {
    return NotBuilt("response.skip_special_tokens", "texts of special tokens");
  }
  prompt_ids_ = response.prompt_token_ids();
  prompt_logprobs_ = response.prompt_logprobs();
  token_ids_ = response.output_token_ids();
  logprobs_ = response.output_logprobs();
  if (prompt_ids_ && !prompt_logprobs_ && request.has_text()) {
    return NotBuilt("response.prompt_token_ids",
                    "the tokens of a text without response.prompt_logprobs");
  }
  TLM_ASSIGN_OR_RETURN(prompt_top_, ReadCandidates("response.prompt_candidates", prompt_logprobs_,
                                                   response.has_prompt_candidates(),
                                                   response.prompt_candidates(), model));
  TLM_ASSIGN_OR_RETURN(
      top_, ReadCandidates("response.output_candidates", logprobs_,
                           response.has_output_candidates(), response.output_candidates(), model));
  if (response.has_output_text()) output.set_text(response.output_text());
  output.set_token_ids(true);  // always needed for counting
  output.set_stop_string_tokens(true);
  output.set_logprobs(logprobs_);
  output.set_prompt_logprobs(prompt_logprobs_);
  output.set_top_logprobs(static_cast<uint32_t>(std::max(prompt_top_, top_)));
  output.set_final_only(answer_ == Answer::kUnary);
  return absl::OkStatus();
}

bool InferenceMapping::Write(v1::GenerateResponse& event, vllm::GenerateResponse& response) {
  switch (event.event_case()) {
    case v1::GenerateResponse::kStarted:
      return WriteStarted(event.started(), response);
    case v1::GenerateResponse::kPrompt:
      return WritePrompt(event.prompt(), response);
    case v1::GenerateResponse::kTokens:
      WriteTokens(*event.mutable_tokens(), *response.mutable_outputs());
      return true;
    case v1::GenerateResponse::kFinished:
      WriteFinished(*event.mutable_finished(), *response.mutable_outputs());
      return true;
    case v1::GenerateResponse::kSummary:
    case v1::GenerateResponse::EVENT_NOT_SET:
      break;
  }
  return false;
}

bool InferenceMapping::WriteStarted(const v1::GenerateStarted& started,
                                    vllm::GenerateResponse& response) {
  output_tokens_.resize(started.effective().num_sequences());
  prompt_tokens_ = started.prompt_token_count();
  prompt_.set_num_prompt_tokens(prompt_tokens_);
  if (prompt_logprobs_) return false;
  // A truncated prompt keeps its end.
  if (prompt_ids_)
    prompt_.mutable_token_ids()->Add(given_ids_.end() - prompt_tokens_, given_ids_.end());
  response.mutable_prompt_info()->Swap(&prompt_);
  return true;
}

bool InferenceMapping::WritePrompt(const v1::GeneratePrompt& prompt,
                                   vllm::GenerateResponse& response) {
  for (const v1::TokenInfo& token : prompt.tokens()) {
    if (prompt_ids_) prompt_.add_token_ids(token.id());
    FillLogprob(token, prompt_top_, prompt_);
  }
  if (static_cast<uint32_t>(prompt_.logprobs_size()) < prompt_tokens_) return false;
  response.mutable_prompt_info()->Swap(&prompt_);
  return true;
}

void InferenceMapping::WriteTokens(v1::GenerateTokens& tokens, vllm::SequenceOutput& output) {
  output.set_index(tokens.output_index());
  output.mutable_text()->append(tokens.text());
  output.set_num_tokens(output.num_tokens() + static_cast<uint32_t>(tokens.tokens_size()));
  output_tokens_[tokens.output_index()] += static_cast<uint32_t>(tokens.tokens_size());
  for (const v1::TokenInfo& token : tokens.tokens()) {
    if (token_ids_) output.add_token_ids(token.id());
    if (logprobs_) FillLogprob(token, top_, output);
  }
}

void InferenceMapping::WriteFinished(v1::GenerateFinished& finished, vllm::SequenceOutput& output) {
  output.set_index(finished.output_index());
  vllm::FinishInfo& info = *output.mutable_finish_info();
  info.set_finish_reason(ReasonOf(finished.reason()));
  switch (finished.matched_case()) {
    case v1::GenerateFinished::kStopTokenId:
      WriteEnd(finished.output_index(), finished.stop_token_id(), output);
      info.set_stop_token_id(finished.stop_token_id());
      break;
    case v1::GenerateFinished::kStopString:
      info.set_stop_string(std::move(*finished.mutable_stop_string()));
      break;
    case v1::GenerateFinished::kEosTokenId:
      WriteEnd(finished.output_index(), finished.eos_token_id(), output);
      info.set_eos_token_id(finished.eos_token_id());
      break;
    case v1::GenerateFinished::MATCHED_NOT_SET:
      break;
  }
  info.set_num_output_tokens(output_tokens_[finished.output_index()]);
}

// Counts the token that ended the output; tlm.v1 sends it only as part of the text.
void InferenceMapping::WriteEnd(uint32_t index, uint32_t id, vllm::SequenceOutput& output) {
  if (include_stop_ || logprobs_) return;
  output.set_num_tokens(output.num_tokens() + 1);
  ++output_tokens_[index];
  if (token_ids_) output.add_token_ids(id);
}

}  // namespace tlm
