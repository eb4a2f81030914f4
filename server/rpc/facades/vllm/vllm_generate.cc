#include "server/rpc/facades/vllm/vllm_generate.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "server/rpc/convert/field_error.h"
#include "server/rpc/facades/facade.h"
#include "server/rpc/facades/structural_tag_json.h"

namespace tlm {
namespace {

absl::Status CheckUnsupported(const vllm_engine::GenerateRequest& request) {
  constexpr char kTransfer[] = "the transfer of keys and values between servers";
  constexpr char kMedia[] = "images, video and audio";
  if (request.has_kv_transfer_params()) return NotBuilt("kv_transfer_params", kTransfer);
  if (request.has_kv_transfer_params_json()) return NotBuilt("kv_transfer_params_json", kTransfer);
  if (request.has_mm_inputs()) return NotBuilt("mm_inputs", kMedia);
  if (request.extra_mm_inputs_size() > 0) return NotBuilt("extra_mm_inputs", kMedia);
  if (request.has_media_refs()) return NotBuilt("media_refs", kMedia);
  if (request.data_parallel_rank() != 0) {
    return BadField("data_parallel_rank", "is {}, this server has rank 0 alone",
                    request.data_parallel_rank());
  }
  return absl::OkStatus();
}

absl::Status ReadInput(vllm_engine::GenerateRequest& request, v1::GenerateRequest& generate) {
  switch (request.input_case()) {
    case vllm_engine::GenerateRequest::kTokenized:
      generate.mutable_prompt_token_ids()->mutable_ids()->Swap(
          request.mutable_tokenized()->mutable_input_ids());
      return absl::OkStatus();
    case vllm_engine::GenerateRequest::kText:
      generate.mutable_prompt()->swap(*request.mutable_text());
      return absl::OkStatus();
    case vllm_engine::GenerateRequest::INPUT_NOT_SET:
      break;
  }
  return BadField("input", "is missing: one of tokenized and text is required");
}

absl::Status ReadConstraint(vllm_engine::SamplingParams& from, v1::GenerateRequest& generate) {
  using From = vllm_engine::SamplingParams;
  switch (from.constraint_case()) {
    case From::kJsonSchema:
      generate.mutable_json_schema()->swap(*from.mutable_json_schema());
      break;
    case From::kRegex:
      generate.mutable_regex()->swap(*from.mutable_regex());
      break;
    case From::kGrammar:
      generate.mutable_grammar()->swap(*from.mutable_grammar());
      break;
    case From::kStructuralTag:
      return ReadStructuralTag("sampling_params.structural_tag", from.structural_tag(),
                               *generate.mutable_structural_tag());
    case From::kJsonObject:
      generate.set_json_object(from.json_object());
      break;
    case From::kChoice:
      generate.mutable_choices()->mutable_choices()->Swap(from.mutable_choice()->mutable_choices());
      break;
    case From::CONSTRAINT_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(const vllm_engine::SamplingParams& from, v1::SamplingParams& to) {
  if (from.has_temperature()) to.set_temperature(from.temperature());
  // These fields have no presence: 0 means unset.
  if (from.top_p() != 0) to.set_top_p(from.top_p());
  if (from.top_k() != 0) to.set_top_k(from.top_k());
  if (from.min_p() != 0) to.set_min_p(from.min_p());
  if (from.repetition_penalty() != 0) to.set_repetition_penalty(from.repetition_penalty());
  to.set_frequency_penalty(from.frequency_penalty());
  to.set_presence_penalty(from.presence_penalty());
  to.set_num_sequences(std::max(from.n(), 1u));
  if (from.has_seed()) to.set_seed(static_cast<uint64_t>(int64_t{from.seed()}));
  for (const auto& [id, bias] : from.logit_bias()) {
    if (id < 0) return BadField("sampling_params.logit_bias", "names token {}", id);
    (*to.mutable_logit_bias())[static_cast<uint32_t>(id)] = bias;
  }
  return absl::OkStatus();
}

void ReadStopping(vllm_engine::SamplingParams& from, v1::StoppingCriteria& to) {
  if (from.has_max_tokens()) to.set_max_new_tokens(from.max_tokens());
  to.set_min_new_tokens(from.min_tokens());
  to.mutable_stop_strings()->Swap(from.mutable_stop());
  to.mutable_stop_token_ids()->Swap(from.mutable_stop_token_ids());
  to.set_ignore_eos(from.ignore_eos());
  // The caller decodes the ids itself: it gets the ids that end the output, like vLLM's callers,
  // and cuts the text according to include_stop_str_in_output.
  to.set_include_stop_in_output(true);
}

absl::StatusOr<std::optional<int32_t>> Alternatives(const char* field, bool given, int32_t count,
                                                    const ServedModel& model) {
  if (!given) return std::optional<int32_t>();
  TLM_RETURN_IF_ERROR(CheckRange<int64_t>(field, count, 0, model.limits.max_top_logprobs));
  return std::optional<int32_t>(count);
}

absl::Status ReadTruncation(const vllm_engine::SamplingParams& from, const ServedModel& model,
                            v1::GenerateRequest& generate) {
  if (!from.has_truncate_prompt_tokens()) return absl::OkStatus();
  const int64_t tokens = from.truncate_prompt_tokens();
  if (tokens < -1 || tokens == 0) {
    return BadField("sampling_params.truncate_prompt_tokens", "is {}, it may be -1 or at least 1",
                    tokens);
  }
  generate.set_truncate_prompt_tokens(
      static_cast<uint32_t>(tokens == -1 ? model.limits.max_prompt_tokens() : tokens));
  return absl::OkStatus();
}

void AddTop(const v1::TokenInfo& token, int32_t count, vllm_engine::TopLogProbs& top) {
  for (int i = 0; i < std::min(count, token.top_size()); ++i) {
    top.add_values(token.top(i).logprob());
    top.add_token_ids(token.top(i).id());
  }
}

}  // namespace

absl::Status VllmGenerateMapping::Read(vllm_engine::GenerateRequest& request,
                                       const ServedModel& model, v1::GenerateRequest& generate) {
  // Comes first, because the fields of refused messages are unknown too.
  TLM_RETURN_IF_ERROR(CheckUnsupported(request));
  TLM_RETURN_IF_ERROR(CheckFieldsKnown(request));
  TLM_RETURN_IF_ERROR(ReadInput(request, generate));
  vllm_engine::SamplingParams& params = *request.mutable_sampling_params();
  TLM_ASSIGN_OR_RETURN(logprobs_, Alternatives("sampling_params.logprobs", params.has_logprobs(),
                                               params.logprobs(), model));
  TLM_ASSIGN_OR_RETURN(prompt_logprobs_,
                       Alternatives("sampling_params.prompt_logprobs", params.has_prompt_logprobs(),
                                    params.prompt_logprobs(), model));
  TLM_RETURN_IF_ERROR(ReadTruncation(params, model, generate));
  TLM_RETURN_IF_ERROR(ReadConstraint(params, generate));
  TLM_RETURN_IF_ERROR(ReadSampling(params, *generate.mutable_sampling()));
  ReadStopping(params, *generate.mutable_stopping());
  stream_ = request.stream();
  v1::OutputOptions& output = *generate.mutable_output();
  output.set_text(false);
  output.set_token_ids(true);
  output.set_logprobs(logprobs_.has_value());
  output.set_prompt_logprobs(prompt_logprobs_.has_value());
  output.set_top_logprobs(
      static_cast<uint32_t>(std::max(logprobs_.value_or(0), prompt_logprobs_.value_or(0))));
  output.set_final_only(!stream_);
  return absl::OkStatus();
}

bool VllmGenerateMapping::Write(v1::GenerateResponse& event,
                                vllm_engine::GenerateResponse& response) {
  switch (event.event_case()) {
    case v1::GenerateResponse::kStarted:
      prompt_tokens_ = event.started().prompt_token_count();
      cached_tokens_ = event.started().cached_prompt_tokens();
      return false;
    case v1::GenerateResponse::kPrompt:
      for (const v1::TokenInfo& token : event.prompt().tokens()) {
        vllm_engine::InputTokenLogProb& logprob = *prompt_.add_token_logprobs();
        if (token.has_logprob()) logprob.set_value(token.logprob());
        prompt_.add_token_ids(token.id());
        AddTop(token, *prompt_logprobs_, *prompt_.add_top_logprobs());
      }
      return false;
    case v1::GenerateResponse::kTokens:
      return WriteTokens(*event.mutable_tokens(), response);
    case v1::GenerateResponse::kFinished:
      WriteComplete(event.finished(), *response.mutable_complete());
      return true;
    case v1::GenerateResponse::kSummary:
    case v1::GenerateResponse::EVENT_NOT_SET:
      break;
  }
  return false;
}

VllmGenerateMapping::Output& VllmGenerateMapping::OutputOf(uint32_t index) {
  if (outputs_.size() <= index) outputs_.resize(index + 1);
  return outputs_[index];
}

bool VllmGenerateMapping::WriteTokens(v1::GenerateTokens& tokens,
                                      vllm_engine::GenerateResponse& response) {
  Output& output = OutputOf(tokens.output_index());
  for (const v1::TokenInfo& token : tokens.tokens()) {
    output.ids.push_back(token.id());
    if (!logprobs_.has_value()) continue;
    output.logprobs.add_token_logprobs(token.logprob());
    output.logprobs.add_token_ids(token.id());
    if (*logprobs_ > 0) AddTop(token, *logprobs_, *output.logprobs.add_top_logprobs());
  }
  if (!stream_) return false;
  vllm_engine::GenerateStreamChunk& chunk = *response.mutable_chunk();
  chunk.set_index(tokens.output_index());
  chunk.set_prompt_tokens(prompt_tokens_);
  chunk.set_cached_tokens(cached_tokens_);
  chunk.set_completion_tokens(static_cast<uint32_t>(output.ids.size()));
  chunk.mutable_token_ids()->Assign(output.ids.begin(), output.ids.end());
  output.ids.clear();
  if (logprobs_.has_value()) chunk.mutable_output_logprobs()->Swap(&output.logprobs);
  output.logprobs.Clear();
  if (!std::exchange(output.begun, true) && prompt_logprobs_.has_value()) {
    *chunk.mutable_input_logprobs() = prompt_;
  }
  return true;
}

void VllmGenerateMapping::WriteComplete(const v1::GenerateFinished& finished,
                                        vllm_engine::GenerateComplete& complete) {
  Output& output = OutputOf(finished.output_index());
  complete.set_index(finished.output_index());
  complete.set_prompt_tokens(prompt_tokens_);
  complete.set_cached_tokens(cached_tokens_);
  complete.set_completion_tokens(finished.completion_tokens());
  complete.mutable_output_ids()->Assign(output.ids.begin(), output.ids.end());
  if (!stream_ && logprobs_.has_value()) complete.mutable_output_logprobs()->Swap(&output.logprobs);
  if (!output.begun && prompt_logprobs_.has_value()) *complete.mutable_input_logprobs() = prompt_;
  const bool stopped = finished.reason() == v1::FINISH_REASON_EOS ||
                       finished.reason() == v1::FINISH_REASON_STOP ||
                       finished.reason() == v1::FINISH_REASON_CONSTRAINT_COMPLETE;
  complete.set_finish_reason(stopped ? "stop" : "length");
  if (finished.has_stop_token_id()) complete.set_matched_token_id(finished.stop_token_id());
  if (finished.has_stop_string()) complete.set_matched_stop_str(finished.stop_string());
}

}  // namespace tlm
