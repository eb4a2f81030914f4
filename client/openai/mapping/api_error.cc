#include "client/openai/mapping/api_error.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "client/cpp/status.h"
#include "model/base/errors.h"
#include "model/base/message_text.h"

namespace tlm::openai {
namespace {

struct Kind {
  absl::StatusCode code;
  int status;
  std::string_view type;
};

constexpr std::string_view kInvalid = "invalid_request_error";
constexpr Kind kKinds[] = {
    {absl::StatusCode::kInvalidArgument, 400, kInvalid},
    {absl::StatusCode::kOutOfRange, 400, kInvalid},
    {absl::StatusCode::kFailedPrecondition, 400, kInvalid},
    {absl::StatusCode::kUnauthenticated, 401, "authentication_error"},
    {absl::StatusCode::kPermissionDenied, 403, "permission_error"},
    {absl::StatusCode::kNotFound, 404, kInvalid},
    {absl::StatusCode::kAlreadyExists, 409, "conflict_error"},
    {absl::StatusCode::kAborted, 409, "conflict_error"},
    {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error"},
    {absl::StatusCode::kCancelled, 499, "cancelled"},
    {absl::StatusCode::kUnimplemented, 501, kInvalid},
    {absl::StatusCode::kUnavailable, 503, "server_error"},
    {absl::StatusCode::kDeadlineExceeded, 504, "timeout_error"},
};

// The server's fields and OpenAI's. A field of the server without an entry keeps its name.
constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"sampling.temperature", "temperature"},
    {"sampling.top_k", "top_k"},
    {"sampling.top_p", "top_p"},
    {"sampling.min_p", "min_p"},
    {"sampling.typical_p", "typical_p"},
    {"sampling.repetition_penalty", "repetition_penalty"},
    {"sampling.presence_penalty", "presence_penalty"},
    {"sampling.frequency_penalty", "frequency_penalty"},
    {"sampling.seed", "seed"},
    {"sampling.num_sequences", "n"},
    {"sampling.logit_bias", "logit_bias"},
    {"sampling.allowed_token_ids", "allowed_token_ids"},
    {"sampling.banned_token_ids", "banned_token_ids"},
    {"stopping.max_new_tokens", "max_tokens"},
    {"stopping.min_new_tokens", "min_tokens"},
    {"stopping.stop_strings", "stop"},
    {"stopping.stop_token_ids", "stop_token_ids"},
    {"stopping.ignore_eos", "ignore_eos"},
    {"output.top_logprobs", "top_logprobs"},
    {"output.logprobs", "logprobs"},
    {"scheduling.priority", "priority"},
    {"cache.cache_salt", "cache_salt"},
    {"prompt_token_ids", "prompt"},
    {"chat.messages", "messages"},
    {"chat.tools", "tools"},
    {"chat.tool_choice", "tool_choice"},
    {"chat.parallel_tool_calls", "parallel_tool_calls"},
    {"chat.reasoning", "reasoning_effort"},
    {"chat.template_arguments", "chat_template_kwargs"},
    {"json_schema", "response_format"},
    {"request_id", "x-request-id"},
};

// "chat.messages[2].role" becomes "messages[2].role".
std::string OpenAiName(const std::string& field) {
  for (const auto& [server, openai] : kNames) {
    if (!field.starts_with(server)) continue;
    const std::string rest = field.substr(server.size());
    if (rest.empty() || rest[0] == '.' || rest[0] == '[') return std::string(openai) + rest;
  }
  return field;
}

void SetKind(absl::StatusCode code, ApiError* error) {
  const auto* const kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                        [code](const Kind& each) { return each.code == code; });
  error->status = kind == std::end(kKinds) ? 500 : kind->status;
  error->type = kind == std::end(kKinds) ? "server_error" : kind->type;
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiError ApiErrorOf(const absl::Status& status) {
  ApiError error;
  error.message = std::string(status.message());
  SetKind(status.code(), &error);
  const client::ErrorDetails details = client::DetailsOf(status);
  error.param = FieldOf(status);
  if (error.param.empty() && !details.violations.empty()) {
    error.param = OpenAiName(details.violations.front().field);
  }
  error.code = details.reason.empty() ? ReasonOf(status) : details.reason;
  error.retry_after = details.retry_delay ? details.retry_delay : RetryAfterOf(status);
  if (error.code == "MESSAGE_TOO_LARGE") {
    error.status = 413;
    error.type = kInvalid;
  } else if (error.code == "CONSTRAINT_TOO_LARGE") {
    error.status = 400;
    error.type = kInvalid;
  }
  return error;
}

absl::Status ModelNotFound(const std::string& model) {
  return WithReason(WithField(NotFound("the model {} does not exist", Quoted(model)), "model"),
                    "model_not_found");
}

Json ErrorJson(const ApiError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", TextOrNull(error.param)},
            {"code", TextOrNull(error.code)}}}};
}

}  // namespace tlm::openai
