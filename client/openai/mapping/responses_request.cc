// Reads bodies of /v1/responses.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "client/openai/mapping/chat_messages.h"
#include "client/openai/mapping/common_fields.h"
#include "client/openai/mapping/fields.h"
#include "client/openai/mapping/request.h"

namespace tlm::openai {
namespace {

constexpr char kStored[] = "is not supported: this server stores no conversations, send all items";

// Converts the items of `input` to messages. Reasoning and calls belong to the assistant's message
// around them.
class InputReader {
 public:
  explicit InputReader(v1::ChatInput* chat) : chat_(chat) {}

  void Read(Fields* item) {
    const std::string type = item->String("type").value_or("message");
    if (type == "message") {
      ReadMessage(item);
    } else if (type == "function_call") {
      ReadCall(item);
    } else if (type == "function_call_output") {
      ReadCallOutput(item);
    } else if (type == "reasoning") {
      ReadReasoning(item);
    } else {
      item->Fail("type", fmt::format("is {}, it may be message, function_call, "
                                     "function_call_output or reasoning",
                                     Shown(type)));
    }
    item->NoEffect({"id", "status"});
    item->RefuseUnknown();
  }

 private:
  void ReadMessage(Fields* item) {
    const auto role = item->OneOf("role", {"system", "developer", "user", "assistant"});
    if (!role) item->Fail("role", "is missing");
    const auto content = ReadContent(item, "content", {"input_text", "output_text", "text"});
    if (!content) item->Fail("content", "is missing");
    item->NoEffect({"phase"});
    // The assistant's text after reasoning or calls of the same turn.
    v1::ChatInput::Message* const message =
        role == "assistant" ? Assistant() : chat_->add_messages();
    message->set_role(RoleOf(role.value_or("")));
    message->set_content(message->content() + content.value_or(""));
    assistant_ = role == "assistant" ? message : nullptr;
  }

  void ReadCall(Fields* item) {
    v1::ChatInput::ToolCall* const call = Assistant()->add_tool_calls();
    call->set_id(item->String("call_id").value_or(""));
    const auto name = item->String("name");
    if (!name) item->Fail("name", "is missing");
    call->set_name(name.value_or(""));
    const std::string arguments = item->String("arguments").value_or("");
    call->set_arguments_json(arguments.empty() ? "{}" : arguments);
    names_[call->id()] = call->name();
  }

  void ReadCallOutput(Fields* item) {
    v1::ChatInput::Message* const message = chat_->add_messages();
    message->set_role("tool");
    message->set_tool_call_id(item->String("call_id").value_or(""));
    if (const auto name = names_.find(message->tool_call_id()); name != names_.end()) {
      message->set_name(name->second);
    }
    const auto output = ReadContent(item, "output", {"input_text", "output_text", "text"});
    if (!output) item->Fail("output", "is missing");
    message->set_content(output.value_or(""));
    assistant_ = nullptr;
  }

  void ReadReasoning(Fields* item) {
    const auto text = ReadContent(item, "content", {"reasoning_text", "text"});
    const auto summary = ReadContent(item, "summary", {"summary_text"});
    item->NoEffect({"encrypted_content"});
    const std::string reasoning = text && !text->empty() ? *text : summary.value_or("");
    if (!reasoning.empty()) Assistant()->set_reasoning(reasoning);
  }

  v1::ChatInput::Message* Assistant() {
    if (assistant_ == nullptr) {
      assistant_ = chat_->add_messages();
      assistant_->set_role("assistant");
    }
    return assistant_;
  }

  v1::ChatInput* const chat_;
  v1::ChatInput::Message* assistant_ = nullptr;  // the current turn, if it is the assistant's
  std::map<std::string, std::string> names_;     // of calls, by id
};

void ReadInput(Fields* body, v1::ChatInput* chat) {
  if (const auto instructions = body->String("instructions")) {
    v1::ChatInput::Message* const message = chat->add_messages();
    message->set_role("system");
    message->set_content(*instructions);
  }
  const Json* const input = body->Find("input");
  if (input == nullptr) {
    body->Fail("input", "is missing");
  } else if (input->is_string()) {
    v1::ChatInput::Message* const message = chat->add_messages();
    message->set_role("user");
    message->set_content(input->get<std::string>());
  } else if (const std::vector<Json>* const items = body->Array("input", kMaxListed)) {
    InputReader reader(chat);
    for (size_t i = 0; i < items->size() && body->ok(); ++i) {
      Fields item = Fields::Open((*items)[i], fmt::format("input[{}]", i), body->reading());
      reader.Read(&item);
    }
  }
}

void ReadFunctions(Fields* body, v1::ChatInput* chat) {
  constexpr size_t kMaxFunctions = 4096;
  if (const std::vector<Json>* const tools = body->Array("tools", kMaxFunctions)) {
    for (size_t i = 0; i < tools->size() && body->ok(); ++i) {
      Fields tool = Fields::Open((*tools)[i], fmt::format("tools[{}]", i), body->reading());
      if (!tool.OneOf("type", {"function"})) tool.Fail("type", "is missing");
      ReadFunction(&tool, chat);
    }
  }
  ReadToolChoice(body, /*nested=*/false, chat);
  const auto parallel = body->Bool("parallel_tool_calls");
  if (parallel && chat->tools_size() > 0) chat->set_parallel_tool_calls(*parallel);
  body->Refuse("max_tool_calls", "is not supported: it limits calls of built-in tools");
}

void ReadTextFormat(Fields* body, v1::GenerateRequest* request) {
  auto text = body->Object("text");
  if (!text) return;
  if (auto format = text->Object("format")) ReadFormat(&*format, /*nested=*/false, request);
  text->Refuse("verbosity", "is not supported", "medium");
  text->RefuseUnknown();
}

void ReadReasoningObject(Fields* body, const ModelTraits& model, v1::ChatInput* chat) {
  auto reasoning = body->Object("reasoning");
  if (!reasoning) return;
  SetReasoningEffort(ReadEffort(&*reasoning, "effort"), model.reasoning, chat);
  // Summaries are optional; the reasoning itself is sent.
  reasoning->NoEffect({"summary", "generate_summary"});
  reasoning->RefuseUnknown();
}

void ReadInclude(Fields* body, v1::OutputOptions* output, ApiRequest* api) {
  api->top_logprobs = body->Uint32("top_logprobs").value_or(0);
  for (const std::string& name : body->Strings("include", kMaxListed)) {
    if (name == "message.output_text.logprobs") {
      api->logprobs = true;
    } else if (name != "reasoning.encrypted_content") {
      body->Fail("include",
                 fmt::format("has {}, it may have message.output_text.logprobs", Shown(name)));
    }
  }
  api->logprobs = api->logprobs || api->top_logprobs > 0;
  if (!api->logprobs) return;
  output->set_logprobs(true);
  output->set_top_logprobs(api->top_logprobs);
}

void RefuseStored(Fields* body) {
  body->Refuse("previous_response_id", kStored);
  body->Refuse("conversation", kStored);
  body->Refuse("background", "is not supported");
  body->Refuse("prompt", "is not supported: this server stores no prompts");
  body->Refuse("truncation", "is not supported", "disabled");
  body->Refuse("context_management", "is not supported");
}

// The fields that the answer repeats, with OpenAI's defaults.
Json Repeated(const Json& body) {
  Json repeated = {{"instructions", nullptr},
                   {"max_output_tokens", nullptr},
                   {"metadata", Json::object()},
                   {"parallel_tool_calls", true},
                   {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                   {"temperature", nullptr},
                   {"text", {{"format", {{"type", "text"}}}}},
                   {"tool_choice", "auto"},
                   {"tools", Json::array()},
                   {"top_logprobs", 0},
                   {"top_p", nullptr},
                   {"user", nullptr}};
  for (auto& [key, value] : repeated.items()) {
    const auto given = body.find(key);
    if (given != body.end() && !given->is_null()) value = *given;
  }
  return repeated;
}

}  // namespace

absl::StatusOr<ApiRequest> ReadResponsesRequest(const Json& body_json, const ModelTraits& model,
                                                const MappingOptions& options) {
  Reading reading{absl::OkStatus(), options.ignore_unknown_fields};
  Fields body(body_json, "", &reading);
  ApiRequest api;
  v1::GenerateRequest request;
  v1::ChatInput* const chat = request.mutable_chat();
  ReadInput(&body, chat);
  ReadFunctions(&body, chat);
  ReadTextFormat(&body, &request);
  ReadReasoningObject(&body, model, chat);
  ReadSampling(&body, &request);
  if (request.sampling().num_sequences() > 1) body.Fail("n", "is above 1: there is one response");
  ReadStopping(&body, &request);
  if (const auto length = body.Uint32("max_output_tokens", 1)) {
    request.mutable_stopping()->set_max_new_tokens(*length);
  }
  ReadConstraint(&body, &request);
  ReadDelivery(&body, &request, &api);
  ReadInclude(&body, request.mutable_output(), &api);
  RefuseStored(&body);
  body.RefuseUnknown();
  if (!reading.status.ok()) return reading.status;
  request.mutable_output()->set_regions(model.regions);
  api.repeated = Repeated(body_json);
  api.calls.push_back(std::move(request));
  return api;
}

}  // namespace tlm::openai
