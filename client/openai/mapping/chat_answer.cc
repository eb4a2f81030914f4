// Answers of /v1/chat/completions.
#include <optional>
#include <utility>

#include "client/cpp/generate_collector.h"
#include "client/openai/mapping/answer.h"
#include "client/openai/mapping/logprobs.h"
#include "model/base/errors.h"

namespace tlm::openai {
namespace {

Json Function(const std::string& name, const std::string& arguments) {
  return {{"name", name}, {"arguments", arguments}};
}

Json ToolCallJson(const client::ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", Function(call.name, call.arguments_json)}};
}

// The parts of one event that go into a `delta`.
struct Delta {
  std::string content;
  std::string reasoning;
  Json tool_calls = Json::array();

  bool empty() const { return content.empty() && reasoning.empty() && tool_calls.empty(); }
  Json AsJson() const {
    Json json = Json::object();
    if (!content.empty()) json["content"] = content;
    if (!reasoning.empty()) json["reasoning_content"] = reasoning;
    if (!tool_calls.empty()) json["tool_calls"] = tool_calls;
    return json;
  }
};

class ChatAnswer final : public Answer {
 public:
  ChatAnswer(const ApiRequest& request, const AnswerHead& head, TokenBytes token_bytes)
      : stream_(request.stream),
        include_usage_(request.include_usage),
        logprobs_(request.logprobs),
        head_(head),
        token_bytes_(std::move(token_bytes)),
        has_regions_(request.regions()) {}

  absl::Status Add(size_t, v1::GenerateResponse event, std::string* stream) override {
    if (event.has_started()) {
      fingerprint_ = event.started().fingerprint();
      outputs_.resize(std::max(event.started().effective().num_sequences(), 1U));
    }
    if (event.has_summary()) AddUsage(event.summary().usage(), &counts_);
    if (stream_) return AddToStream(event, stream);
    return collector_.Add(std::move(event));
  }

  std::string EndOfStream() override {
    std::string end;
    if (include_usage_) {
      Json chunk = Chunk();
      chunk["choices"] = Json::array();
      chunk["usage"] = UsageJson(counts_);
      end = ServerSentEvent(chunk);
    }
    return end + "data: [DONE]\n\n";
  }

  std::string Body() override {
    Json choices = Json::array();
    for (const client::Output& output : collector_.result().outputs) {
      choices.push_back(Choice(output, choices.size()));
    }
    Json body = Head("chat.completion");
    body["choices"] = std::move(choices);
    body["usage"] = UsageJson(counts_);
    return Written(body);
  }

  const TokenCounts& counts() const override { return counts_; }

 private:
  // The progress of an output in a stream.
  struct Progress {
    bool calls_tools = false;
    int calls = 0;
  };

  Json Head(const char* object) const {
    return {{"id", "chatcmpl-" + head_.id},
            {"object", object},
            {"created", head_.created},
            {"model", head_.model},
            {"system_fingerprint", fingerprint_}};
  }

  Json Chunk() const { return Head("chat.completion.chunk"); }

  std::string ChunkText(uint32_t index, Json delta, Json logprobs, Json finish_reason,
                        Json stop_reason = nullptr) const {
    Json choice = {{"index", index},
                   {"delta", std::move(delta)},
                   {"logprobs", std::move(logprobs)},
                   {"finish_reason", std::move(finish_reason)}};
    if (!stop_reason.is_null()) choice["stop_reason"] = std::move(stop_reason);
    Json chunk = Chunk();
    chunk["choices"] = Json::array({std::move(choice)});
    if (include_usage_) chunk["usage"] = nullptr;
    return ServerSentEvent(chunk);
  }

  absl::Status AddToStream(const v1::GenerateResponse& event, std::string* stream) {
    if (event.has_started()) {
      for (uint32_t i = 0; i < outputs_.size(); ++i) {
        *stream += ChunkText(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
      }
    } else if (event.has_tokens()) {
      return AddTokens(event.tokens(), stream);
    } else if (event.has_finished()) {
      return AddFinished(event.finished(), stream);
    }
    return absl::OkStatus();
  }

  absl::Status CheckIndex(uint32_t index) const {
    if (index < outputs_.size()) return absl::OkStatus();
    return Internal("the server sent output {} of {}", index, outputs_.size());
  }

  absl::Status AddTokens(const v1::GenerateTokens& tokens, std::string* stream) {
    TLM_RETURN_IF_ERROR(CheckIndex(tokens.output_index()));
    Progress& output = outputs_[tokens.output_index()];
    Delta delta;
    AddRegions(tokens.regions(), &output, &delta);
    if (tokens.regions().empty() && !has_regions_) delta.content = tokens.text();
    Json logprobs;
    if (logprobs_) logprobs = {{"content", ChatLogprobs(tokens.tokens(), token_bytes_)}};
    if (!delta.empty() || (logprobs_ && !tokens.tokens().empty())) {
      *stream += ChunkText(tokens.output_index(), delta.AsJson(), std::move(logprobs), nullptr);
    }
    return absl::OkStatus();
  }

  absl::Status AddFinished(const v1::GenerateFinished& finished, std::string* stream) {
    TLM_RETURN_IF_ERROR(CheckIndex(finished.output_index()));
    Progress& output = outputs_[finished.output_index()];
    Delta delta;
    AddRegions(finished.regions(), &output, &delta);
    if (!delta.empty()) {
      *stream += ChunkText(finished.output_index(), delta.AsJson(), nullptr, nullptr);
    }
    *stream += ChunkText(finished.output_index(), Json::object(), nullptr,
                         ReasonOf(finished.reason(), output.calls_tools), StopReason(finished));
    return absl::OkStatus();
  }

  void AddRegions(const google::protobuf::RepeatedPtrField<v1::RegionEvent>& events,
                  Progress* output, Delta* delta) {
    for (const v1::RegionEvent& event : events) {
      has_regions_ = true;
      if (event.has_started() && event.started().has_tool_call()) {
        const auto& call = event.started().tool_call();
        output->calls_tools = true;
        output->calls = static_cast<int>(call.index()) + 1;
        delta->tool_calls.push_back({{"index", call.index()},
                                     {"id", call.id()},
                                     {"type", "function"},
                                     {"function", Function(call.name(), "")}});
      } else if (event.has_delta()) {
        AddRegionText(event.delta(), *output, delta);
      }
    }
  }

  static void AddRegionText(const v1::RegionEvent::Delta& part, const Progress& output,
                            Delta* delta) {
    if (part.kind() == v1::REGION_KIND_REASONING) {
      delta->reasoning += part.text();
    } else if (part.kind() != v1::REGION_KIND_TOOL_CALL) {
      delta->content += part.text();
    } else if (!part.arguments_json().empty()) {
      delta->tool_calls.push_back(
          {{"index", output.calls - 1}, {"function", {{"arguments", part.arguments_json()}}}});
    }
  }

  static std::string ReasonOf(v1::FinishReason reason, bool calls_tools) {
    const std::string name = FinishReasonName(reason);
    return calls_tools && name == "stop" ? "tool_calls" : name;
  }

  Json Choice(const client::Output& output, size_t index) const {
    Json message = {{"role", "assistant"}, {"content", output.content}};
    if (output.content.empty() && !output.tool_calls.empty()) message["content"] = nullptr;
    message["refusal"] = nullptr;
    if (!output.reasoning.empty()) message["reasoning_content"] = output.reasoning;
    for (const client::ToolCall& call : output.tool_calls) {
      message["tool_calls"].push_back(ToolCallJson(call));
    }
    Json logprobs;
    if (logprobs_) {
      const TokenInfos tokens(output.tokens.begin(), output.tokens.end());
      logprobs = {{"content", ChatLogprobs(tokens, token_bytes_)}, {"refusal", nullptr}};
    }
    Json choice = {
        {"index", index},
        {"message", std::move(message)},
        {"logprobs", std::move(logprobs)},
        {"finish_reason", ReasonOf(output.finished.reason(), !output.tool_calls.empty())}};
    if (Json stop = StopReason(output.finished); !stop.is_null()) {
      choice["stop_reason"] = std::move(stop);
    }
    return choice;
  }

  const bool stream_;
  const bool include_usage_;
  const bool logprobs_;
  const AnswerHead head_;
  const TokenBytes token_bytes_;
  std::string fingerprint_;
  TokenCounts counts_;
  client::GenerateCollector collector_;  // not of a stream
  std::vector<Progress> outputs_;
  bool has_regions_;  // the server labels parts of the text
};

}  // namespace

std::unique_ptr<Answer> MakeChatAnswer(const ApiRequest& request, const AnswerHead& head,
                                       TokenBytes token_bytes) {
  return std::make_unique<ChatAnswer>(request, head, std::move(token_bytes));
}

}  // namespace tlm::openai
