#include "server/rpc/facades/openengine/openengine_generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/text/utf8.h"
#include "server/auth/principal.h"
#include "server/rpc/convert/field_error.h"
#include "server/rpc/facades/structural_tag_json.h"

namespace tlm {
namespace {

// Reads a metadata key with at most one value, an integer.
absl::StatusOr<std::optional<int64_t>> NumberIn(const char* key,
                                                const std::vector<std::string>& values) {
  if (values.empty()) return std::nullopt;
  if (values.size() > 1) return BadField(key, "has {} values, the limit is 1", values.size());
  int64_t number = 0;
  if (!absl::SimpleAtoi(values[0], &number)) {
    return BadField(key, "is {}, which is no whole number", Quoted(values[0]));
  }
  return number;
}

absl::Status ReadMetadata(const OpenEngineMetadata& metadata, v1::GenerateRequest& generate) {
  constexpr char kPriority[] = "openengine-priority";
  constexpr char kRank[] = "openengine-target-dp-rank";
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> priority,
                       NumberIn(kPriority, metadata.priority));
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> rank,
                       NumberIn(kRank, metadata.data_parallel_rank));
  if (rank.value_or(0) != 0) return BadField(kRank, "is {}, this server has rank 0 alone", *rank);
  if (!priority.has_value()) return absl::OkStatus();
  TLM_RETURN_IF_ERROR(CheckRange<int64_t>(kPriority, *priority, -kMaxPriority, kMaxPriority));
  generate.mutable_scheduling()->set_priority(static_cast<int32_t>(*priority));
  return absl::OkStatus();
}

absl::Status CheckUnsupported(const openengine::GenerateRequest& request) {
  if (request.kv().has_session()) {
    return NotBuilt("kv.session", "the transfer of KV caches between servers");
  }
  if (!request.guided().backend().empty()) return NotBuilt("guided.backend", "grammar backends");
  if (!request.media().empty()) return NotBuilt("media", "images, videos and sounds");
  if (!request.lora_name().empty()) return NotBuilt("lora_name", "adapters");
  return CheckFieldsKnown(request);
}

// Reads parameters of other engines; this server supports one of them.
absl::Status ReadExtra(const google::protobuf::Struct& extra, v1::OutputOptions& output) {
  for (const auto& [name, value] : extra.fields()) {
    if (name != "detokenize") return NotBuilt("extra", "the parameter " + Quoted(name));
    if (!value.has_bool_value()) return BadField("extra.detokenize", "is not true or false");
    output.set_text(value.bool_value());
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(const openengine::SamplingParams& from, v1::SamplingParams& to) {
  if (from.has_temperature()) to.set_temperature(static_cast<float>(from.temperature()));
  if (from.has_top_p()) to.set_top_p(static_cast<float>(from.top_p()));
  if (from.has_min_p()) to.set_min_p(static_cast<float>(from.min_p()));
  if (from.has_frequency_penalty()) {
    to.set_frequency_penalty(static_cast<float>(from.frequency_penalty()));
  }
  if (from.has_presence_penalty()) {
    to.set_presence_penalty(static_cast<float>(from.presence_penalty()));
  }
  if (from.has_repetition_penalty()) {
    to.set_repetition_penalty(static_cast<float>(from.repetition_penalty()));
  }
  if (from.has_seed()) to.set_seed(from.seed());
  if (from.has_num_sequences()) to.set_num_sequences(from.num_sequences());
  if (!from.has_top_k()) return absl::OkStatus();
  if (from.top_k() < -1) {
    return BadField("sampling.top_k", "is {}, it must be at least -1", from.top_k());
  }
  to.set_top_k(static_cast<uint32_t>(std::max(from.top_k(), 0)));
  return absl::OkStatus();
}

absl::Status ReadStopping(openengine::StoppingOptions& from, v1::StoppingCriteria& to) {
  if (from.has_max_tokens()) to.set_max_new_tokens(from.max_tokens());
  to.set_min_new_tokens(from.min_tokens());
  to.set_ignore_eos(from.ignore_eos());
  to.set_include_stop_in_output(from.include_stop_in_output());
  for (int i = 0; i < from.conditions_size(); ++i) {
    openengine::StopCondition& condition = *from.mutable_conditions(i);
    switch (condition.condition_case()) {
      case openengine::StopCondition::kStopText:
        to.add_stop_strings(std::move(*condition.mutable_stop_text()));
        break;
      case openengine::StopCondition::kStopTokenId:
        to.add_stop_token_ids(condition.stop_token_id());
        break;
      case openengine::StopCondition::CONDITION_NOT_SET:
        return BadField(fmt::format("stopping.conditions[{}]", i),
                        "is empty: one of stop_text and stop_token_id is required");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadGuide(openengine::GuidedDecoding& guided, v1::GenerateRequest& generate) {
  switch (guided.guide_case()) {
    case openengine::GuidedDecoding::kJsonSchema:
      generate.set_json_schema(std::move(*guided.mutable_json_schema()));
      break;
    case openengine::GuidedDecoding::kRegex:
      generate.set_regex(std::move(*guided.mutable_regex()));
      break;
    case openengine::GuidedDecoding::kEbnfGrammar:
      generate.set_grammar(std::move(*guided.mutable_ebnf_grammar()));
      break;
    case openengine::GuidedDecoding::kStructuralTag:
      return ReadStructuralTag("guided.structural_tag", guided.structural_tag(),
                               *generate.mutable_structural_tag());
    case openengine::GuidedDecoding::kChoice:
      generate.mutable_choices()->mutable_choices()->Swap(
          guided.mutable_choice()->mutable_choices());
      break;
    case openengine::GuidedDecoding::kJsonObject:
      generate.set_json_object(true);
      break;
    case openengine::GuidedDecoding::GUIDE_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

// Returns the number of alternatives requested, along with log-probabilities if `wanted`.
absl::StatusOr<int> ReadCandidates(std::string_view field, bool wanted, bool given,
                                   const openengine::CandidateTokenSelection& candidates,
                                   const ServedModel& model) {
  if (!given) return 0;
  if (!wanted) return BadField(field, "is set without the log-probabilities that it is part of");
  switch (candidates.selection_case()) {
    case openengine::CandidateTokenSelection::kTopN:
      TLM_RETURN_IF_ERROR(CheckRange<int64_t>(fmt::format("{}.top_n", field), candidates.top_n(), 0,
                                              model.limits.max_top_logprobs));
      return static_cast<int>(candidates.top_n());
    case openengine::CandidateTokenSelection::kTokenIds:
      return NotBuilt(fmt::format("{}.token_ids", field), "alternatives that the request names");
    case openengine::CandidateTokenSelection::kAll:
      return NotBuilt(fmt::format("{}.all", field), "all tokens as alternatives");
    case openengine::CandidateTokenSelection::SELECTION_NOT_SET:
      break;
  }
  return 0;
}

std::string TextOf(const std::string& bytes) {
  std::string text;
  Utf8Repair repair;
  repair.Append(bytes, &text);
  repair.Flush(&text);
  return text;
}

void FillToken(const v1::TokenInfo& from, int top, openengine::TokenInfo& to) {
  to.set_token_id(from.id());
  to.set_token(TextOf(from.bytes()));
  if (from.has_logprob()) to.set_logprob(from.logprob());
  if (from.has_rank()) to.set_rank(from.rank());
  for (int i = 0; i < std::min(top, from.top_size()); ++i) {
    openengine::LogProb& candidate = *to.add_candidates();
    candidate.set_token_id(from.top(i).id());
    candidate.set_logprob(from.top(i).logprob());
    candidate.set_rank(from.top(i).rank());
  }
}

void FillFinished(v1::GenerateFinished& from, openengine::GenerationFinished& to) {
  to.set_output_index(from.output_index());
  const bool stopped = from.reason() == v1::FINISH_REASON_EOS ||
                       from.reason() == v1::FINISH_REASON_STOP ||
                       from.reason() == v1::FINISH_REASON_CONSTRAINT_COMPLETE;
  to.set_reason(stopped ? openengine::FINISH_REASON_STOP : openengine::FINISH_REASON_LENGTH);
  switch (from.matched_case()) {
    case v1::GenerateFinished::kStopTokenId:
      to.mutable_stop_match()->set_stop_token_id(from.stop_token_id());
      break;
    case v1::GenerateFinished::kStopString:
      to.mutable_stop_match()->set_stop_text(std::move(*from.mutable_stop_string()));
      break;
    case v1::GenerateFinished::kEosTokenId:
      to.mutable_stop_match()->set_eos_token_id(from.eos_token_id());
      break;
    case v1::GenerateFinished::MATCHED_NOT_SET:
      break;
  }
}

void FillUsage(const v1::Usage& from, openengine::Usage& to) {
  to.set_prompt_tokens(static_cast<uint32_t>(from.prompt_tokens()));
  to.set_completion_tokens(static_cast<uint32_t>(from.completion_tokens()));
  to.set_total_tokens(to.prompt_tokens() + to.completion_tokens());
  if (from.has_reasoning_tokens()) {
    to.set_reasoning_tokens(static_cast<uint32_t>(from.reasoning_tokens()));
  }
  to.set_cached_prompt_tokens(static_cast<uint32_t>(from.cached_prompt_tokens()));
}

}  // namespace

absl::Status OpenEngineMapping::Read(openengine::GenerateRequest& request, const ServedModel& model,
                                     v1::GenerateRequest& generate) {
  TLM_RETURN_IF_ERROR(CheckUnsupported(request));
  TLM_RETURN_IF_ERROR(ReadMetadata(metadata_, generate));
  TLM_RETURN_IF_ERROR(ReadResponse(request.response(), model, *generate.mutable_output()));
  TLM_RETURN_IF_ERROR(ReadExtra(request.extra(), *generate.mutable_output()));
  TLM_RETURN_IF_ERROR(ReadSampling(request.sampling(), *generate.mutable_sampling()));
  TLM_RETURN_IF_ERROR(ReadStopping(*request.mutable_stopping(), *generate.mutable_stopping()));
  TLM_RETURN_IF_ERROR(ReadGuide(*request.mutable_guided(), generate));
  generate.set_request_id(std::move(*request.mutable_request_id()));
  generate.set_model(ServedNameOf(request.model(), model));
  if (request.has_prompt()) generate.set_prompt(std::move(*request.mutable_prompt()));
  if (request.has_token_ids()) {
    generate.mutable_prompt_token_ids()->mutable_ids()->Swap(
        request.mutable_token_ids()->mutable_ids());
  }
  v1::CacheOptions& cache = *generate.mutable_cache();
  cache.set_bypass_prefix_cache(request.kv().bypass_prefix_cache());
  cache.set_cache_salt(std::move(*request.mutable_kv()->mutable_cache_salt()));
  return absl::OkStatus();
}

absl::Status OpenEngineMapping::ReadResponse(const openengine::ResponseOptions& response,
                                             const ServedModel& model, v1::OutputOptions& output) {
  const bool logprobs = response.return_output_logprobs();
  prompt_logprobs_ = response.return_prompt_logprobs();
  prompt_start_ = response.prompt_logprob_start();
  if (response.has_prompt_logprob_start() && !prompt_logprobs_) {
    return BadField("response.prompt_logprob_start",
                    "is set without the log-probabilities that it is part of");
  }
  TLM_ASSIGN_OR_RETURN(prompt_top_, ReadCandidates("response.prompt_candidates", prompt_logprobs_,
                                                   response.has_prompt_candidates(),
                                                   response.prompt_candidates(), model));
  TLM_ASSIGN_OR_RETURN(
      top_, ReadCandidates("response.output_candidates", logprobs, response.has_output_candidates(),
                           response.output_candidates(), model));
  output.set_token_ids(true);
  output.set_stop_string_tokens(true);
  // Regions are needed for the usage; they are off where they would change the text.
  output.set_regions(model.chat_format.reasoning != nullptr &&
                     !model.chat_format.special_markers());
  output.set_logprobs(logprobs);
  output.set_prompt_logprobs(prompt_logprobs_);
  output.set_top_logprobs(static_cast<uint32_t>(std::max(prompt_top_, top_)));
  return absl::OkStatus();
}

bool OpenEngineMapping::Write(v1::GenerateResponse& event, openengine::GenerateResponse& response) {
  response.set_request_id(request_id_);
  switch (event.event_case()) {
    case v1::GenerateResponse::kStarted:
      request_id_ = event.started().request_id();
      prompt_tokens_ = event.started().prompt_token_count();
      unfinished_ = event.started().effective().num_sequences();
      return false;
    case v1::GenerateResponse::kPrompt:
      return WritePrompt(event.prompt(), response);
    case v1::GenerateResponse::kTokens:
      WriteTokens(*event.mutable_tokens(), *response.mutable_token());
      return true;
    case v1::GenerateResponse::kFinished:
      return WriteFinished(*event.mutable_finished(), response);
    case v1::GenerateResponse::kSummary:
      response.mutable_finished()->Swap(&last_);
      FillUsage(event.summary().usage(), *response.mutable_usage());
      return true;
    case v1::GenerateResponse::EVENT_NOT_SET:
      break;
  }
  return false;
}

bool OpenEngineMapping::WritePrompt(const v1::GeneratePrompt& prompt,
                                    openengine::GenerateResponse& response) {
  for (int i = 0; i < prompt.tokens_size(); ++i) {
    if (prompt.offset() + static_cast<uint32_t>(i) < prompt_start_) continue;
    FillToken(prompt.tokens(i), prompt_top_, *prompt_.add_tokens());
  }
  if (prompt.offset() + static_cast<uint32_t>(prompt.tokens_size()) < prompt_tokens_) return false;
  response.mutable_prompt()->Swap(&prompt_);
  return true;
}

void OpenEngineMapping::WriteTokens(v1::GenerateTokens& tokens,
                                    openengine::TokenOutput& output) const {
  output.set_output_index(tokens.output_index());
  output.set_text(std::move(*tokens.mutable_text()));
  for (const v1::TokenInfo& token : tokens.tokens()) FillToken(token, top_, *output.add_tokens());
}

bool OpenEngineMapping::WriteFinished(v1::GenerateFinished& finished,
                                      openengine::GenerateResponse& response) {
  const bool last = --unfinished_ == 0;
  FillFinished(finished, last ? last_ : *response.mutable_finished());
  return !last;
}

}  // namespace tlm
