#include "tests/integration/cpp/replica_streams.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace tlm {
namespace {

// Reasoning of a few tokens, then calls of tools, or text in which the model may call some.
void AskInChat(int i, v1::GenerateRequest* request) {
  const std::string prompt = request->prompt();
  v1::ChatInput& chat = *request->mutable_chat();
  v1::ChatInput::Message& message = *chat.add_messages();
  message.set_role("user");
  message.set_content(prompt);
  for (const char* const name : {"look_up", "write"}) {
    v1::ChatInput::Tool& tool = *chat.add_tools();
    tool.set_name(name);
    tool.set_parameters_json_schema(
        R"({"properties": {"key_of_it": {"type": "string", "maxLength": 20},
            "number_of_it": {"type": "integer"}}, "required": ["key_of_it"],
            "additionalProperties": false})");
  }
  chat.mutable_tool_choice()->set_mode(i % 2 == 0 ? v1::ChatInput::ToolChoice::REQUIRED
                                                  : v1::ChatInput::ToolChoice::AUTO);
  chat.mutable_reasoning()->set_enabled(true);
  chat.mutable_reasoning()->set_budget_tokens(static_cast<uint32_t>(i % 25));
}

}  // namespace

int FreePort() {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(descriptor);
  return ntohs(address.sin_port);
}

Replicas::Replicas(size_t count, std::vector<std::string> flags)
    : flags_(std::move(flags)), replicas_(count) {
  for (size_t i = 0; i < count; ++i) {
    replicas_[i].metrics_port = FreePort();
    Start(i);
  }
}

std::vector<std::string> Replicas::targets() const {
  std::vector<std::string> targets;
  for (const Replica& one : replicas_) targets.push_back("127.0.0.1:" + std::to_string(one.port));
  return targets;
}

void Replicas::End(size_t index, int signal, int status) {
  ServerProcess& server = *replicas_[index].server;
  server.Signal(signal);
  EXPECT_EQ(server.Wait(), status) << server.output();
}

void Replicas::Start(size_t index) {
  Replica& one = replicas_[index];
  std::vector<std::string> flags = ReplicaFlags();
  flags.push_back("--port=" + std::to_string(one.port));
  flags.push_back("--metrics_port=" + std::to_string(one.metrics_port));
  flags.insert(flags.end(), flags_.begin(), flags_.end());
  one.server = ServerProcess::Serve(flags);
  one.port = one.server->port();
}

std::vector<std::string> ReplicaFlags() {
  return {"--threads=1", "--tool_format=hermes", "--reasoning_format=think"};
}

v1::GenerateRequest RequestOf(int i) {
  const char* const prompts[] = {"The king", "Once", "O Romeo, Romeo! wherefore art", "Citizen:\n"};
  v1::GenerateRequest request;
  request.set_prompt(prompts[i % 4]);
  request.set_request_id("stream " + std::to_string(i));
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_temperature(1);
  sampling.set_seed(static_cast<uint64_t>(i));
  if (i % 3 == 0) sampling.set_frequency_penalty(0.5f);
  if (i % 5 == 0) sampling.set_repetition_penalty(1.2f);
  if (i % 10 == 7) sampling.set_num_sequences(2);
  v1::StoppingCriteria& stopping = *request.mutable_stopping();
  stopping.set_max_new_tokens(static_cast<uint32_t>(60 + i % 60));
  stopping.set_ignore_eos(i % 2 == 0);
  if (i % 4 == 1) {
    for (const char* stop : {"the", "\n\n", "he w"}) stopping.add_stop_strings(stop);
    stopping.set_min_new_tokens(40);
    stopping.set_include_stop_in_output(i % 8 == 1);
  }
  v1::OutputOptions& output = *request.mutable_output();
  output.set_token_ids(i % 2 == 1);
  output.set_logprobs(i % 6 == 0);
  output.set_top_logprobs(i % 12 == 0 ? 3 : 0);
  output.set_prompt_logprobs(i % 9 == 0);
  output.set_min_chunk_tokens(static_cast<uint32_t>(i % 3));
  if (i % 7 == 3) {
    AskInChat(i, &request);
  } else if (i % 5 == 2) {
    if (i % 2 == 1) request.mutable_json()->set_escapes(v1::JSON_ESCAPES_ANY);
    request.set_json_schema(
        R"({"type": "array", "minItems": 4, "items": {"type": "object", "properties": {"key_of_it":
            {"type": "string", "maxLength": 20}, "number_of_it": {"type": "integer"}},
            "required": ["key_of_it", "number_of_it"], "additionalProperties": false}})");
  } else if (i % 5 == 4) {
    request.set_regex("([A-Z][a-z ]+[.!?] )*");
  }
  return request;
}

Stream ReadStream(client::Client* client, const v1::GenerateRequest& request,
                  const client::CallOptions& options, const std::function<void(int)>& on_event) {
  Stream result;
  const auto stream = client->StartGenerate(request, options);
  v1::GenerateResponse event;
  for (int events = 1; stream->Read(&event); ++events) {
    on_event(events);
    result.starts += event.has_started() ? 1 : 0;
    result.status.Update(result.collector.Add(event));
  }
  result.resumes = stream->resumes();
  result.status.Update(stream->Finish());
  result.status.Update(result.collector.CheckComplete());
  return result;
}

std::string Everything(const Stream& stream) {
  client::GenerateResult result = stream.collector.result();
  result.started.clear_request_id();
  result.started.clear_queue_time();
  result.started.clear_cached_prompt_tokens();
  result.summary.mutable_usage()->clear_cached_prompt_tokens();
  result.summary.clear_speculation();
  std::string text = result.started.ShortDebugString() + "\n";
  for (const v1::TokenInfo& token : result.prompt) text += token.ShortDebugString() + "\n";
  for (const client::Output& output : result.outputs) {
    text += output.text + "\n" + output.reasoning + "\n" + output.content + "\n";
    for (const client::ToolCall& call : output.tool_calls) {
      text +=
          call.id + " " + call.name + " " + call.arguments_json + (call.complete ? ".\n" : "...\n");
    }
    for (const v1::TokenInfo& token : output.tokens) text += token.ShortDebugString() + "\n";
    text += output.finished.ShortDebugString() + "\n";
  }
  return text + result.summary.ShortDebugString();
}

}  // namespace tlm
