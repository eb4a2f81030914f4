#include "client/openai/mapping/answer.h"

#include <fmt/format.h>

namespace tlm::openai {

std::string Answer::ErrorInStream(const ApiError& error) const {
  return ServerSentEvent(ErrorJson(error)) + "data: [DONE]\n\n";
}

std::string ServerSentEvent(const Json& data, std::string_view name) {
  const std::string text = Written(data);
  return name.empty() ? fmt::format("data: {}\n\n", text)
                      : fmt::format("event: {}\ndata: {}\n\n", name, text);
}

void AddUsage(const v1::Usage& usage, TokenCounts* counts) {
  counts->prompt += usage.prompt_tokens();
  counts->cached += usage.cached_prompt_tokens();
  counts->completion += usage.completion_tokens();
  counts->reasoning += usage.reasoning_tokens();
}

Json UsageJson(const TokenCounts& counts) {
  return {{"prompt_tokens", counts.prompt},
          {"completion_tokens", counts.completion},
          {"total_tokens", counts.prompt + counts.completion},
          {"prompt_tokens_details", {{"cached_tokens", counts.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", counts.reasoning}}}};
}

std::string FinishReasonName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_EOS:
    case v1::FINISH_REASON_STOP:
    case v1::FINISH_REASON_CONSTRAINT_COMPLETE:
      return "stop";
    default:
      return "length";
  }
}

Json StopReason(const v1::GenerateFinished& finished) {
  switch (finished.matched_case()) {
    case v1::GenerateFinished::kStopString:
      return finished.stop_string();
    case v1::GenerateFinished::kStopTokenId:
      return finished.stop_token_id();
    default:
      return nullptr;
  }
}

}  // namespace tlm::openai
