#include <fmt/format.h>

#include <utility>

#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

// Response bytes of a continuation without its tokens, and of the response without its
// continuations.
constexpr int64_t kContinuationBytes = 32;
constexpr int64_t kResponseBytes = 1024;

absl::StatusOr<std::vector<int32_t>> ConvertContext(const v1::ScoreRequest& request,
                                                    const ServedModel& model) {
  switch (request.context_case()) {
    case v1::ScoreRequest::kPrompt: {
      TLM_RETURN_IF_ERROR(RequireTokenizer(model, "prompt", "send prompt_token_ids"));
      std::optional<bool> special;
      if (request.has_add_special_tokens()) special = request.add_special_tokens();
      return TokenizeText(request.prompt(), special, model, "prompt");
    }
    case v1::ScoreRequest::kPromptTokenIds:
      return TokenIdsOf(request.prompt_token_ids().ids(), model, "prompt_token_ids.ids");
    case v1::ScoreRequest::CONTEXT_NOT_SET:
      break;
  }
  return BadField("context", "is missing: one of prompt and prompt_token_ids is required");
}

absl::StatusOr<std::vector<int32_t>> ConvertContinuation(const v1::Continuation& continuation,
                                                         const ServedModel& model,
                                                         const std::string& field) {
  std::vector<int32_t> ids;
  switch (continuation.content_case()) {
    case v1::Continuation::kText: {
      const std::string path = field + ".text";
      TLM_RETURN_IF_ERROR(RequireTokenizer(model, path, "send token_ids"));
      TLM_ASSIGN_OR_RETURN(ids, TokenizeText(continuation.text(), false, model, path));
      break;
    }
    case v1::Continuation::kTokenIds: {
      TLM_ASSIGN_OR_RETURN(
          ids, TokenIdsOf(continuation.token_ids().ids(), model, field + ".token_ids.ids"));
      break;
    }
    case v1::Continuation::CONTENT_NOT_SET:
      return BadField(field, "is missing: one of text and token_ids is required");
  }
  if (ids.empty()) return BadField(field, "is empty: a continuation needs at least one token");
  return ids;
}

// The response must fit into one message.
absl::Status CheckResponseBytes(const ScoreCall& call, const ServedModel& model) {
  int64_t bytes = kResponseBytes;
  for (const std::vector<int32_t>& ids : call.work.continuations) {
    bytes += kContinuationBytes;
    for (const int32_t id : ids) bytes += TokenInfoBytes(id, call.work.top, model.tokenizer);
  }
  const int64_t limit = model.limits.max_response_bytes;
  if (bytes <= limit) return absl::OkStatus();
  return BadField("continuations",
                  "with {} top_logprobs would be answered by about {} bytes, the limit is {}: send "
                  "fewer at a time",
                  call.work.top, bytes, limit);
}

absl::Status CheckTokens(const v1::ScoreRequest& request, const ServedModel& model,
                         ScoreCall& call) {
  const char* field = request.has_prompt() ? "prompt" : "prompt_token_ids.ids";
  const int64_t prompt = static_cast<int64_t>(call.prompt.size());
  const RequestLimits& limits = model.limits;
  if (prompt == 0) return BadField(field, "is empty: a prompt needs at least one token");
  if (prompt > limits.max_prompt_tokens()) {
    return BadField(field, "has {} tokens, the limit is {} (a context of {} tokens)", prompt,
                    limits.max_prompt_tokens(), limits.max_context_tokens);
  }
  call.total_tokens = prompt;
  for (size_t i = 0; i < call.work.continuations.size(); ++i) {
    const int64_t tokens = static_cast<int64_t>(call.work.continuations[i].size());
    if (prompt + tokens > limits.max_context_tokens) {
      return BadField(fmt::format("continuations[{}]", i),
                      "has {} tokens after a prompt of {}, the limit of both is {}", tokens, prompt,
                      limits.max_context_tokens);
    }
    call.total_tokens += tokens;
  }
  if (call.total_tokens <= limits.max_forward_tokens) return absl::OkStatus();
  return BadField("continuations", "has {} tokens in all with the prompt, the limit is {}",
                  call.total_tokens, limits.max_forward_tokens);
}

}  // namespace

absl::StatusOr<ScoreCall> ConvertScore(const v1::ScoreRequest& request, const ServedModel& model) {
  TLM_RETURN_IF_ERROR(CheckModelName(request.model(), model));
  TLM_RETURN_IF_ERROR(CheckRange<int64_t>("top_logprobs", request.top_logprobs(), 0,
                                          model.limits.max_top_logprobs));
  if (request.continuations().empty()) {
    return BadField("continuations", "is empty: at least one is required");
  }
  TLM_RETURN_IF_ERROR(CheckCount("continuations", request.continuations_size(),
                                 model.limits.max_score_continuations));
  ScoreCall call;
  call.work.top = request.top_logprobs();
  TLM_ASSIGN_OR_RETURN(call.prompt, ConvertContext(request, model));
  for (int i = 0; i < request.continuations_size(); ++i) {
    TLM_ASSIGN_OR_RETURN(
        std::vector<int32_t> ids,
        ConvertContinuation(request.continuations(i), model, fmt::format("continuations[{}]", i)));
    call.work.continuations.push_back(std::move(ids));
  }
  TLM_RETURN_IF_ERROR(CheckTokens(request, model, call));
  TLM_RETURN_IF_ERROR(CheckResponseBytes(call, model));
  return call;
}

}  // namespace tlm
