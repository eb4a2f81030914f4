#include "client/cpp/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "client/cpp/status.h"

namespace tlm::client {
namespace {

using ToolFunctions = std::map<std::string, ToolFunction>;

absl::Status CheckRequest(const v1::GenerateRequest& request, const ToolFunctions& functions) {
  if (request.sampling().num_sequences() > 1) {
    return absl::InvalidArgumentError(
        fmt::format("sampling.num_sequences is {}, calls of tools are of one output",
                    request.sampling().num_sequences()));
  }
  for (const v1::ChatInput::Tool& tool : request.chat().tools()) {
    if (functions.contains(tool.name())) continue;
    return absl::InvalidArgumentError(
        fmt::format("there is no function for the tool \"{}\"", tool.name()));
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerateResult> Generate(Client& client, const v1::GenerateRequest& request,
                                        const RunToolsOptions& options) {
  if (!options.on_event) return client.Generate(request, options.call);
  GenerateCollector collector;
  absl::Status collected;
  const absl::Status status = client.Generate(
      request,
      [&](const v1::GenerateResponse& event) {
        options.on_event(event);
        if (collected.ok()) collected = collector.Add(event);
      },
      options.call);
  if (!status.ok()) return status;
  if (!collected.ok()) return collected;
  if (absl::Status complete = collector.CheckComplete(); !complete.ok()) return complete;
  return collector.TakeResult();
}

bool HasCompleteCall(const Output& output) {
  return std::any_of(output.tool_calls.begin(), output.tool_calls.end(),
                     [](const ToolCall& call) { return call.complete; });
}

// Returns CANCELLED if a function returned it.
absl::Status RunCalls(const Output& output, const ToolFunctions& functions,
                      Conversation* conversation) {
  for (const ToolCall& call : output.tool_calls) {
    if (!call.complete) continue;
    const auto function = functions.find(call.name);
    absl::StatusOr<std::string> result =
        function == functions.end()
            ? absl::NotFoundError(fmt::format("there is no tool \"{}\"", call.name))
            : function->second(call.arguments_json);
    if (absl::IsCancelled(result.status())) return result.status();
    conversation->AddToolResult(call,
                                result.ok() ? *std::move(result) : ToolErrorText(result.status()));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ToolErrorText(const absl::Status& status) {
  return fmt::format("error: {}: {}", CodeName(status.code()), std::string(status.message()));
}

absl::StatusOr<GenerateResult> RunTools(Client& client, v1::GenerateRequest request,
                                        const ToolFunctions& functions, Conversation* conversation,
                                        const RunToolsOptions& options) {
  if (absl::Status status = CheckRequest(request, functions); !status.ok()) return status;
  v1::ChatInput& chat = *request.mutable_chat();
  if (!chat.tools().empty()) request.mutable_output()->set_regions(true);
  for (int round = 0;; ++round) {
    *chat.mutable_messages() = std::move(*conversation->ToInput().mutable_messages());
    absl::StatusOr<GenerateResult> result = Generate(client, request, options);
    if (!result.ok()) return result;
    const Output& output = result->outputs[0];
    const bool has_calls = HasCompleteCall(output);
    if (has_calls && round == options.max_rounds) {
      return absl::ResourceExhaustedError(
          fmt::format("the model still calls tools after {} rounds", options.max_rounds));
    }
    const size_t before = conversation->messages().size();
    conversation->AddAnswer(output);
    if (!has_calls) return result;
    if (absl::Status status = RunCalls(output, functions, conversation); !status.ok()) {
      conversation->Truncate(before);
      return status;
    }
    const v1::ChatInput::ToolChoice& choice = chat.tool_choice();
    // Otherwise the model could never do anything but call.
    if (choice.has_name() || choice.mode() == v1::ChatInput::ToolChoice::REQUIRED) {
      chat.clear_tool_choice();
    }
  }
}

}  // namespace tlm::client
