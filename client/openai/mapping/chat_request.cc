// Reads bodies of /v1/chat/completions.
#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "client/openai/mapping/chat_messages.h"
#include "client/openai/mapping/common_fields.h"
#include "client/openai/mapping/fields.h"
#include "client/openai/mapping/request.h"

namespace tlm::openai {
namespace {

constexpr size_t kMaxTools = 4096;

void ReadTools(Fields* body, v1::ChatInput* chat) {
  const std::vector<Json>* const tools = body->Array("tools", kMaxTools);
  if (tools != nullptr) {
    for (size_t i = 0; i < tools->size() && body->ok(); ++i) {
      Fields tool = Fields::Open((*tools)[i], fmt::format("tools[{}]", i), body->reading());
      const auto type = tool.OneOf("type", {"function"});
      if (!type) tool.Fail("type", "is missing");
      auto function = tool.Object("function");
      if (!function) {
        tool.Fail("function", "is missing");
        return;
      }
      ReadFunction(&*function, chat);
      tool.RefuseUnknown();
    }
  }
  ReadToolChoice(body, /*nested=*/true, chat);
  const auto parallel = body->Bool("parallel_tool_calls");
  if (parallel && chat->tools_size() > 0) chat->set_parallel_tool_calls(*parallel);
  body->Refuse("functions", "is not supported: use tools");
  body->Refuse("function_call", "is not supported: use tool_choice");
}

void ReadTemplateArguments(Fields* body, v1::ChatInput* chat) {
  const Json* const arguments = body->Find("chat_template_kwargs");
  if (arguments == nullptr) return;
  google::protobuf::Struct values;
  if (!arguments->is_object() ||
      !google::protobuf::util::JsonStringToMessage(Written(*arguments), &values).ok()) {
    body->Fail("chat_template_kwargs",
               fmt::format("is {}, it must be an object of JSON values", Shown(*arguments)));
    return;
  }
  chat->mutable_template_arguments()->MergeFrom(values);
}

void ReadReasoning(Fields* body, const ModelTraits& model, v1::ChatInput* chat) {
  SetReasoningEffort(ReadEffort(body, "reasoning_effort"), model.reasoning, chat);
  if (const auto budget = body->Uint32("thinking_token_budget")) {
    chat->mutable_reasoning()->set_budget_tokens(*budget);
  }
  body->NoEffect({"include_reasoning"});
}

void ReadChatLength(Fields* body, v1::StoppingCriteria* stopping) {
  const auto older = body->Uint32("max_tokens", 1);
  const auto newer = body->Uint32("max_completion_tokens", 1);
  if (older && newer && *older != *newer) {
    body->Fail("max_tokens",
               fmt::format("is {}, but max_completion_tokens is {}: give one", *older, *newer));
  }
  if (newer) stopping->set_max_new_tokens(*newer);
  if (older) stopping->set_max_new_tokens(*older);
}

void ReadChatLogprobs(Fields* body, v1::OutputOptions* output, ApiRequest* api) {
  api->logprobs = body->Bool("logprobs").value_or(false);
  api->top_logprobs = body->Uint32("top_logprobs").value_or(0);
  if (api->top_logprobs > 0 && !api->logprobs) {
    body->Fail("top_logprobs", "needs \"logprobs\": true");
  }
  if (!api->logprobs) return;
  output->set_logprobs(true);
  output->set_top_logprobs(api->top_logprobs);
}

void RefuseOthers(Fields* body) {
  if (const std::vector<Json>* modalities = body->Array("modalities", kMaxListed)) {
    const bool text_only = std::all_of(modalities->begin(), modalities->end(),
                                       [](const Json& each) { return each == "text"; });
    if (!text_only) body->Fail("modalities", "has another element than \"text\"");
  }
  body->Refuse("audio", "is not supported");
  body->Refuse("prediction", "is not supported");
  body->Refuse("web_search_options", "is not supported");
  body->Refuse("verbosity", "is not supported", "medium");
  body->Refuse("chat_template", "is not supported: the model's own is used");
  body->Refuse("continue_final_message", "is not supported");
  body->Refuse("echo", "is not supported: use /v1/completions");
  body->Refuse("documents", "is not supported");
  body->Refuse("mm_processor_kwargs", "is not supported");
}

}  // namespace

absl::StatusOr<ApiRequest> ReadChatRequest(const Json& body_json, const ModelTraits& model,
                                           const MappingOptions& options) {
  Reading reading{absl::OkStatus(), options.ignore_unknown_fields};
  Fields body(body_json, "", &reading);
  ApiRequest api;
  v1::GenerateRequest request;
  v1::ChatInput* const chat = request.mutable_chat();
  ReadMessages(&body, chat);
  ReadTools(&body, chat);
  ReadTemplateArguments(&body, chat);
  ReadReasoning(&body, model, chat);
  if (const auto value = body.Bool("add_generation_prompt")) {
    chat->set_add_generation_prompt(*value);
  }
  ReadSampling(&body, &request);
  ReadStopping(&body, &request);
  ReadChatLength(&body, request.mutable_stopping());
  ReadConstraint(&body, &request);
  ReadDelivery(&body, &request, &api);
  ReadChatLogprobs(&body, request.mutable_output(), &api);
  RefuseOthers(&body);
  body.RefuseUnknown();
  if (!reading.status.ok()) return reading.status;
  request.mutable_output()->set_regions(model.regions);
  api.calls.push_back(std::move(request));
  return api;
}

absl::StatusOr<std::string> ReadModel(const Json& body_json) {
  Reading reading;
  const std::string model = Fields(body_json, "", &reading).String("model").value_or("");
  if (!reading.status.ok()) return reading.status;
  return model;
}

}  // namespace tlm::openai
