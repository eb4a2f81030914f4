// Events of Generate calls become answers in OpenAI's form, whole or as a stream.
#include "client/openai/mapping/answer.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>

#include <map>
#include <string>
#include <vector>

#include "client/openai/mapping/logprobs.h"
#include "model/base/errors.h"

namespace tlm::openai {
namespace {

using google::protobuf::TextFormat;

v1::GenerateResponse Event(const std::string& text) {
  v1::GenerateResponse event;
  EXPECT_TRUE(TextFormat::ParseFromString(text, &event)) << text;
  return event;
}

std::vector<Json> EventsOf(const std::string& stream) {
  std::vector<Json> events;
  size_t at = 0;
  while (at < stream.size()) {
    const size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, stream.npos);
    const std::string line = stream.substr(at, end - at);
    if (line != "data: [DONE]") events.push_back(Json::parse(line.substr(line.find("data: ") + 6)));
    at = end + 2;
  }
  return events;
}

const char kStarted[] =
    R"(started { request_id: "r" fingerprint: "f" effective { num_sequences: 1 } })";
const char kSummary[] =
    "summary { usage { prompt_tokens: 3 cached_prompt_tokens: 2 completion_tokens: 5 "
    "reasoning_tokens: 1 } }";
const AnswerHead kHead{"r", "demo", 17};

std::string TextOfId(uint32_t id) { return "t" + std::to_string(id); }

ApiRequest RequestOf(size_t calls, bool stream) {
  ApiRequest request;
  request.calls.resize(calls);
  request.echoed.resize(calls);
  request.stream = stream;
  return request;
}

// An answer to reasoning, text and a tool call.
std::vector<v1::GenerateResponse> RegionEvents() {
  return {Event(kStarted),
          Event(R"(tokens { text: "<" })"),  // may be the beginning of markup
          Event(R"(tokens { text: "think>hm" regions { marker: "<think>" } regions { started {
              kind: REGION_KIND_REASONING } } regions { delta { kind: REGION_KIND_REASONING
              text: "hm" } } })"),
          Event(R"(tokens { text: "</think>yes" regions { marker: "</think>" }
              regions { delta { region_index: 1 kind: REGION_KIND_TEXT text: "yes" } } })"),
          Event(R"(tokens { regions { started { region_index: 2 kind: REGION_KIND_TOOL_CALL
              tool_call { index: 0 id: "abc" name: "f" } } } regions { delta { region_index: 2
              kind: REGION_KIND_TOOL_CALL text: "{" arguments_json: "{" } } })"),
          Event(R"(finished { reason: FINISH_REASON_EOS regions { delta { region_index: 2
              kind: REGION_KIND_TOOL_CALL text: "}" arguments_json: "}" } } })"),
          Event(kSummary)};
}

TEST(ChatAnswerTest, ReasoningTextAndCallsAreApart) {
  const auto answer = MakeChatAnswer(RequestOf(1, false), kHead, TextOfId);
  std::string stream;
  for (const auto& event : RegionEvents()) ASSERT_TRUE(answer->Add(0, event, &stream).ok());
  EXPECT_EQ(stream, "");
  const Json body = Json::parse(answer->Body());
  EXPECT_EQ(body["id"], "chatcmpl-r");
  EXPECT_EQ(body["system_fingerprint"], "f");
  const Json& message = body["choices"][0]["message"];
  EXPECT_EQ(message["content"], "yes");
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{}");
  EXPECT_EQ(message["tool_calls"][0]["id"], "abc");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(body["usage"]["total_tokens"], 8);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 1);
}

TEST(ChatAnswerTest, TheDeltasOfAStreamJoinToTheWholeAnswer) {
  ApiRequest request = RequestOf(1, true);
  request.calls[0].mutable_output()->set_regions(true);
  request.include_usage = true;
  const auto answer = MakeChatAnswer(request, kHead, TextOfId);
  std::string stream;
  for (const auto& event : RegionEvents()) ASSERT_TRUE(answer->Add(0, event, &stream).ok());
  stream += answer->EndOfStream();
  EXPECT_TRUE(stream.ends_with("data: [DONE]\n\n"));
  std::string content, reasoning, arguments, name;
  const std::vector<Json> events = EventsOf(stream);
  for (const Json& event : events) {
    if (event["choices"].empty()) continue;
    const Json& delta = event["choices"][0]["delta"];
    content += delta.value("content", "");
    reasoning += delta.value("reasoning_content", "");
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      EXPECT_EQ(call["index"], 0);
      name += call["function"].value("name", "");
      arguments += call["function"].value("arguments", "");
    }
  }
  EXPECT_EQ(content, "yes");
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(name, "f");
  EXPECT_EQ(arguments, "{}");
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 5);
}

TEST(ResponsesAnswerTest, ItemsAreTypedAndTheirDeltasJoin) {
  ApiRequest request = RequestOf(1, true);
  request.calls[0].mutable_output()->set_regions(true);
  const auto answer = MakeResponsesAnswer(request, kHead, TextOfId);
  std::string stream;
  for (const auto& event : RegionEvents()) ASSERT_TRUE(answer->Add(0, event, &stream).ok());
  stream += answer->EndOfStream();
  const std::vector<Json> events = EventsOf(stream);
  std::map<std::string, std::string> deltas;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    deltas[events[i]["type"]] += events[i].value("delta", "");
  }
  EXPECT_EQ(deltas["response.reasoning_text.delta"], "hm");
  EXPECT_EQ(deltas["response.output_text.delta"], "yes");
  EXPECT_EQ(deltas["response.function_call_arguments.delta"], "{}");
  const Json& response = events.back()["response"];
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["output"].size(), 3U);
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "hm");
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "yes");
  EXPECT_EQ(response["output"][2]["call_id"], "abc");
  EXPECT_EQ(response["usage"]["total_tokens"], 8);
  EXPECT_EQ(Written(response), Written(Json::parse(answer->Body())));
}

TEST(ChatAnswerTest, AnOutputThatWasNotAnnouncedIsAnError) {
  const auto answer = MakeChatAnswer(RequestOf(1, true), kHead, TextOfId);
  std::string stream;
  ASSERT_TRUE(answer->Add(0, Event(kStarted), &stream).ok());
  EXPECT_TRUE(absl::IsInternal(answer->Add(0, Event("tokens { output_index: 1 }"), &stream)));
}

TEST(CompletionAnswerTest, EchoAndLogprobsCoverThePrompt) {
  for (const bool stream_it : {false, true}) {
    ApiRequest request = RequestOf(1, stream_it);
    request.echo = true;
    request.echoed[0] = "ab";
    request.logprobs = true;
    request.top_logprobs = 1;
    const auto answer = MakeCompletionAnswer(request, kHead, TextOfId);
    std::string stream;
    for (const char* const event :
         {kStarted, R"(prompt { tokens { id: 1 bytes: "a" } tokens { id: 2 bytes: "b" logprob: -1
                       rank: 2 top { id: 9 logprob: -0.5 rank: 1 } } })",
          R"(tokens { text: "\303\251" tokens { id: 3 bytes: "\303\251" logprob: -2 rank: 1
                       top { id: 3 logprob: -2 rank: 1 } } })",
          R"(tokens { text: "c" tokens { id: 4 bytes: "c" logprob: -inf rank: 9
                       top { id: 3 logprob: -2 rank: 1 } } })",
          "finished { reason: FINISH_REASON_STOP stop_token_id: 77 }", kSummary}) {
      ASSERT_TRUE(answer->Add(0, Event(event), &stream).ok());
    }
    Json joined = {{"text", ""},
                   {"tokens", Json::array()},
                   {"token_logprobs", Json::array()},
                   {"top_logprobs", Json::array()},
                   {"text_offset", Json::array()}};
    std::vector<Json> events = EventsOf(stream);
    if (!stream_it) events = {Json::parse(answer->Body())};
    for (const Json& event : events) {
      const Json& choice = event["choices"][0];
      joined["text"] = joined["text"].get<std::string>() + choice["text"].get<std::string>();
      for (const char* const name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
        for (const Json& value : choice["logprobs"][name]) joined[name].push_back(value);
      }
    }
    EXPECT_EQ(joined, Json::parse(R"({"text": "abéc", "tokens": ["a", "b", "é", "c"],
        "token_logprobs": [null, -1.0, -2.0, -9999.0],
        "top_logprobs": [null, {"t9": -0.5, "b": -1.0}, {"é": -2.0}, {"t3": -2.0, "c": -9999.0}],
        "text_offset": [0, 1, 2, 3]})"));
    EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(events.back()["choices"][0]["stop_reason"], 77);
  }
}

TEST(CompletionAnswerTest, ChoicesOfSeveralCallsAreNumberedThrough) {
  ApiRequest request = RequestOf(2, false);
  for (auto& call : request.calls) call.mutable_sampling()->set_num_sequences(2);
  const auto answer = MakeCompletionAnswer(request, kHead, TextOfId);
  std::string stream;
  for (const size_t call : {1U, 0U}) {
    ASSERT_TRUE(answer->Add(call, Event(kStarted), &stream).ok());
    for (const char* const output : {"0", "1"}) {
      const std::string text = std::to_string(call) + output;
      ASSERT_TRUE(answer
                      ->Add(call,
                            Event(std::string("tokens { output_index: ") + output + " text: '" +
                                  text + "' }"),
                            &stream)
                      .ok());
    }
    ASSERT_TRUE(answer->Add(call, Event(kSummary), &stream).ok());
  }
  const Json body = Json::parse(answer->Body());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], std::vector<std::string>({"00", "01", "10", "11"})[i]);
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 6);
}

TEST(LogprobsTest, BytesThatAreNotUtf8AreShownAsBytes) {
  EXPECT_EQ(TokenText("é"), "é");
  EXPECT_EQ(TokenText("\xe2\x80"), "bytes:\\xe2\\x80");
}

TEST(ApiErrorTest, CodesBecomeStatuses) {
  const std::pair<absl::StatusCode, int> cases[] = {
      {absl::StatusCode::kInvalidArgument, 400},   {absl::StatusCode::kFailedPrecondition, 400},
      {absl::StatusCode::kUnauthenticated, 401},   {absl::StatusCode::kPermissionDenied, 403},
      {absl::StatusCode::kNotFound, 404},          {absl::StatusCode::kAlreadyExists, 409},
      {absl::StatusCode::kResourceExhausted, 429}, {absl::StatusCode::kInternal, 500},
      {absl::StatusCode::kDataLoss, 500},          {absl::StatusCode::kUnimplemented, 501},
      {absl::StatusCode::kUnavailable, 503},       {absl::StatusCode::kDeadlineExceeded, 504},
  };
  for (const auto& [code, status] : cases) {
    EXPECT_EQ(ApiErrorOf(absl::Status(code, "x")).status, status);
  }
  const absl::Status too_large = WithReason(absl::ResourceExhaustedError("x"), "MESSAGE_TOO_LARGE");
  EXPECT_EQ(ApiErrorOf(too_large).status, 413);
  const ApiError later = ApiErrorOf(WithRetryAfter(
      WithReason(absl::ResourceExhaustedError("x"), "QUEUE_FULL"), absl::Seconds(2)));
  EXPECT_EQ(later.code, "QUEUE_FULL");
  EXPECT_EQ(later.retry_after, absl::Seconds(2));
  EXPECT_EQ(Written(ErrorJson(ApiErrorOf(ModelNotFound("m")))),
            R"({"error":{"message":"the model 'm' does not exist",)"
            R"("type":"invalid_request_error","param":"model","code":"model_not_found"}})");
}

}  // namespace
}  // namespace tlm::openai
