// Answers a conversation and calls the tools that the model asks for.
//
//   tlm::v1::GenerateRequest request;
//   tlm::v1::ChatInput::Tool& add = *request.mutable_chat()->add_tools();
//   add.set_name("add");
//   add.set_parameters_json_schema(
//       R"({"type": "object", "required": ["a", "b"], "additionalProperties": false,
//           "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}})");
//   tlm::client::Conversation conversation;
//   conversation.AddUser("What is 2 + 3?");
//   auto result = tlm::client::RunTools(
//       *client, request, {{"add", [](const std::string& arguments_json) { ... }}}, &conversation);
//   if (result.ok()) std::cout << result->outputs[0].content << '\n';
#ifndef TLM_CLIENT_CPP_TOOLS_H_
#define TLM_CLIENT_CPP_TOOLS_H_

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/client.h"

namespace tlm::client {

// Runs a call. Takes the arguments, a JSON object that the tool's schema allows; returns the text
// for the model: JSON or any other text.
using ToolFunction = std::function<absl::StatusOr<std::string>(const std::string& arguments_json)>;

struct RunToolsOptions {
  // The maximum number of answers with calls.
  int max_rounds = 16;
  // Called in this thread for each event of each answer. May be null.
  std::function<void(const v1::GenerateResponse&)> on_event;
  // The options of each Generate call: its timeout is for one answer.
  CallOptions call;
};

// Returns the text that the model gets for a failed call: "error: INVALID_ARGUMENT: ...".
std::string ToolErrorText(const absl::Status& status);

// Generates answers until one has no complete call, and returns that answer. Runs the calls in
// order, in this thread, and adds answers and results to the conversation. `request` has everything
// but the messages; each of its tools must have a function. A tool_choice other than AUTO and NONE
// applies to the first answer. The model gets the error of a function as its result, but CANCELLED
// ends everything.
//
// INVALID_ARGUMENT for a tool without function and for several outputs; RESOURCE_EXHAUSTED if the
// model still calls after max_rounds; errors of Client::Generate. In all these cases the
// conversation holds the completed rounds.
absl::StatusOr<GenerateResult> RunTools(Client& client, v1::GenerateRequest request,
                                        const std::map<std::string, ToolFunction>& functions,
                                        Conversation* conversation,
                                        const RunToolsOptions& options = {});

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_TOOLS_H_
