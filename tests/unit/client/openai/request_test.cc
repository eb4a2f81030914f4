// Bodies of requests become Generate requests, or errors that name the field.
#include "client/openai/mapping/request.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <string>

#include "model/base/errors.h"

namespace tlm::openai {
namespace {

using google::protobuf::TextFormat;
using testing::HasSubstr;

ModelTraits Traits() { return {"demo", false, false}; }

absl::StatusOr<ApiRequest> Chat(const std::string& fields, const ModelTraits& traits = Traits(),
                                const MappingOptions& options = {}) {
  const auto json = ParseBody(R"({"messages": [{"role": "user", "content": "a"}])" +
                              (fields.empty() ? "" : ", " + fields) + "}");
  if (!json.ok()) return json.status();
  return ReadChatRequest(*json, traits, options);
}

absl::StatusOr<ApiRequest> Completion(const std::string& fields) {
  const auto json = ParseBody("{" + fields + "}");
  if (!json.ok()) return json.status();
  return ReadCompletionRequest(*json, Traits(), {});
}

// Expects that the call holds all fields of `text`, and returns the differences.
std::string MissingFrom(const v1::GenerateRequest& call, const std::string& text) {
  v1::GenerateRequest expected;
  if (!TextFormat::ParseFromString(text, &expected)) return "not a message: " + text;
  google::protobuf::util::MessageDifferencer differences;
  differences.set_scope(google::protobuf::util::MessageDifferencer::PARTIAL);
  std::string report;
  differences.ReportDifferencesToString(&report);
  return differences.Compare(expected, call) ? "" : report;
}

struct Mapped {
  const char* fields;
  const char* message;
};

TEST(ChatRequestTest, FieldsReachTheServer) {
  const Mapped cases[] = {
      {"", R"(chat { messages { role: "user" content: "a" } })"},
      {R"("temperature": 0.5, "top_p": 0.25, "top_k": 5, "min_p": 0.125)",
       "sampling { temperature: 0.5 top_p: 0.25 top_k: 5 min_p: 0.125 }"},
      {R"("top_k": -1)", "sampling { top_k: 0 }"},
      {R"("presence_penalty": 1, "frequency_penalty": -2.0, "repetition_penalty": 1.5)",
       "sampling { presence_penalty: 1 frequency_penalty: -2 repetition_penalty: 1.5 }"},
      {R"("seed": 18446744073709551615)", "sampling { seed: 18446744073709551615 }"},
      {R"("seed": -1)", "sampling { seed: 18446744073709551615 }"},
      {R"("n": 3)", "sampling { num_sequences: 3 }"},
      {R"("logit_bias": {"7": -100, "8": 1.5})",
       "sampling { logit_bias { key: 7 value: -100 } logit_bias { key: 8 value: 1.5 } }"},
      {R"("stop": "x")", R"(stopping { stop_strings: "x" })"},
      {R"("stop": ["x", "y"], "stop_token_ids": [3])",
       R"(stopping { stop_strings: "x" stop_strings: "y" stop_token_ids: 3 })"},
      {R"("ignore_eos": true, "min_tokens": 2)", "stopping { ignore_eos: true min_new_tokens: 2 }"},
      {R"("max_tokens": 9)", "stopping { max_new_tokens: 9 }"},
      {R"("max_completion_tokens": 9)", "stopping { max_new_tokens: 9 }"},
      {R"("max_tokens": 9, "max_completion_tokens": 9)", "stopping { max_new_tokens: 9 }"},
      {R"("logprobs": true, "top_logprobs": 4)", "output { logprobs: true top_logprobs: 4 }"},
      {R"("priority": -5)", "scheduling { priority: 5 }"},
      {R"("cache_salt": "s")", R"(cache { cache_salt: "s" })"},
      {R"("response_format": {"type": "json_object"})", "json_object: true"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true,
           "schema": {"z": 1, "a": {"y": 2, "b": 3}}}})",
       R"(json_schema: "{\"z\":1,\"a\":{\"y\":2,\"b\":3}}")"},
      {R"("guided_json": "{}")", R"(json_schema: "{}")"},
      {R"("regex": "a+")", R"(regex: "a+")"},
      {R"("guided_regex": "a+")", R"(regex: "a+")"},
      {R"("grammar": "root ::= x")", R"(grammar: "root ::= x")"},
      {R"("guided_choice": ["a", "b"])", R"(choices { choices: "a" choices: "b" })"},
      {R"("structured_outputs": {"choice": ["a"]})", R"(choices { choices: "a" })"},
      {R"("structured_outputs": {"json_object": true, "disable_any_whitespace": true})",
       "json_object: true json { whitespace: JSON_WHITESPACE_COMPACT }"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "description": "d",
           "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}}],
           "tool_choice": "required", "parallel_tool_calls": false)",
       R"(chat { tools { name: "f" description: "d" parameters_json_schema:
          "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{}}}" }
          tool_choice { mode: REQUIRED } parallel_tool_calls: false })"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
           "tool_choice": {"type": "function", "function": {"name": "f"}})",
       R"(chat { tools { name: "f" } tool_choice { name: "f" } })"},
      {R"("reasoning_effort": "none")", "chat { reasoning { enabled: false } }"},
      {R"("reasoning_effort": "xhigh")",
       R"(chat { template_arguments { fields { key: "reasoning_effort"
          value { string_value: "high" } } } })"},
      {R"("chat_template_kwargs": {"enable_thinking": false})",
       R"(chat { template_arguments { fields { key: "enable_thinking"
          value { bool_value: false } } } })"},
      {R"("user": "u", "metadata": {"a": "b"}, "store": false, "service_tier": "auto",
           "modalities": ["text"], "functions": [], "temperature": null)",
       ""},
  };
  for (const Mapped& each : cases) {
    const auto request = Chat(each.fields);
    ASSERT_TRUE(request.ok()) << each.fields << ": " << request.status();
    ASSERT_EQ(request->calls.size(), 1U);
    EXPECT_EQ(MissingFrom(request->calls[0], each.message), "") << each.fields;
  }
}

TEST(ChatRequestTest, ReasoningIsTurnedOnWhereTheModelHasIt) {
  const auto request = Chat(R"("reasoning_effort": "low")", {"demo", true, true});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(MissingFrom(request->calls[0],
                        "chat { reasoning { enabled: true } } output { regions: true }"),
            "");
}

TEST(ChatRequestTest, MessagesKeepTheirParts) {
  const auto json = ParseBody(R"({"messages": [
      {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "refusal": null, "reasoning_content": "r", "tool_calls":
          [{"id": "i", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "i", "name": "f", "content": "42"}]})");
  ASSERT_TRUE(json.ok());
  const auto request = ReadChatRequest(*json, Traits(), {});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(MissingFrom(request->calls[0], R"(chat {
      messages { role: "system" content: "a\nb" }
      messages { role: "assistant" reasoning: "r"
                 tool_calls { id: "i" name: "f" arguments_json: "{\"x\": 1}" } }
      messages { role: "tool" tool_call_id: "i" name: "f" content: "42" } })"),
            "");
}

struct Refused {
  const char* fields;
  const char* field;
  const char* words;
};

TEST(ChatRequestTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  const Refused cases[] = {
      {R"("temprature": 1)", "temprature", "not a field"},
      {R"("temperature": "x")", "temperature", "'x', it must be a number"},
      {R"("temperature": 1e39)", "temperature", "32-bit float"},
      {R"("top_k": -2)", "top_k", "is -2"},
      {R"("n": 0)", "n", "from 1 to 1024"},
      {R"("n": 1.5)", "n", "is 1.5"},
      {R"("seed": 1.5)", "seed", "64 bits"},
      {R"("max_tokens": 0)", "max_tokens", "is 0"},
      {R"("max_tokens": 4294967296)", "max_tokens", "4294967295"},
      {R"("max_tokens": 1, "max_completion_tokens": 2)", "max_tokens", "give one"},
      {R"("logit_bias": {"-1": 1})", "logit_bias", "keys are token ids"},
      {R"("logit_bias": [])", "logit_bias", "must be an object"},
      {R"("stop": {})", "stop", "a string or an array"},
      {R"("stop": ["a", 1])", "stop[1]", "is 1"},
      {R"("regex": "a", "guided_json": {})", "guided_json", "second constraint"},
      {R"("guided_choice": [])", "guided_choice", "empty"},
      {R"("response_format": {"type": "xml"})", "response_format.type", "json_schema"},
      {R"("response_format": {"type": "json_schema"})", "response_format.json_schema", "missing"},
      {R"("response_format": {"type": "text", "x": 1})", "response_format.x", "not a field"},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type", "function"},
      {R"("tools": [{"type": "function", "function": {}}])", "tools[0].function.name", "missing"},
      {R"("tool_choice": "some")", "tool_choice", "none, auto, required"},
      {R"("reasoning_effort": "huge")", "reasoning_effort", "minimal"},
      {R"("modalities": ["audio"])", "modalities", "text"},
      {R"("audio": {"voice": "x"})", "audio", "not supported"},
      {R"("store": true)", "store", "stores nothing"},
      {R"("service_tier": "flex")", "service_tier", "auto"},
      {R"("top_logprobs": 1)", "top_logprobs", "logprobs"},
      {R"("stream_options": {})", "stream_options", "stream"},
      {R"("priority": 101)", "priority", "from -100 to 100"},
      {R"("prompt_logprobs": 1)", "prompt_logprobs", "echo"},
      {R"("messages2": [])", "messages2", "not a field"},
  };
  for (const Refused& each : cases) {
    const auto request = Chat(each.fields);
    ASSERT_FALSE(request.ok()) << each.fields;
    EXPECT_TRUE(absl::IsInvalidArgument(request.status()));
    EXPECT_EQ(FieldOf(request.status()), each.field) << request.status();
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(each.words)) << each.fields;
  }
}

TEST(ChatRequestTest, UnknownFieldsMayBeIgnored) {
  EXPECT_TRUE(Chat(R"("x": 1, "response_format": {"type": "text", "y": 2})", Traits(),
                   {.ignore_unknown_fields = true, .max_prompts = 1})
                  .ok());
}

TEST(CompletionRequestTest, PromptsAreTextsOrIdsOrArraysOfThem) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {R"("a")", {R"(prompt: "a")"}},
      {R"([1, 2])", {"prompt_token_ids { ids: 1 ids: 2 }"}},
      {R"(["a", [3]])", {R"(prompt: "a")", "prompt_token_ids { ids: 3 }"}},
      {R"([[1], [2, 3]])", {"prompt_token_ids { ids: 1 }", "prompt_token_ids { ids: 2 ids: 3 }"}},
  };
  for (const auto& [prompt, messages] : cases) {
    const auto request = Completion(std::string(R"("n": 2, "prompt": )") + prompt);
    ASSERT_TRUE(request.ok()) << request.status();
    ASSERT_EQ(request->calls.size(), messages.size());
    for (size_t i = 0; i < messages.size(); ++i) {
      const std::string common = "sampling { num_sequences: 2 } stopping { max_new_tokens: 16 } ";
      EXPECT_EQ(MissingFrom(request->calls[i], common + messages[i]), "") << prompt;
    }
  }
}

TEST(CompletionRequestTest, WrongPromptsAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("n": 1)", "prompt"},
      {R"("prompt": {})", "prompt"},
      {R"("prompt": [])", "prompt"},
      {R"("prompt": [1, "a"])", "prompt[1]"},
      {R"("prompt": ["a", 1])", "prompt[1]"},
      {R"("prompt": [-1])", "prompt[0]"},
      {R"("prompt": "a", "suffix": "b")", "suffix"},
      {R"("prompt": "a", "best_of": 2)", "best_of"},
      {R"("prompt": "a", "max_tokens": 0)", "max_tokens"},
  };
  for (const auto& [fields, field] : cases) {
    const auto request = Completion(fields);
    ASSERT_FALSE(request.ok()) << fields;
    EXPECT_EQ(FieldOf(request.status()), field) << request.status();
  }
}

TEST(CompletionRequestTest, EchoAsksForTheLogprobsOfThePrompt) {
  const auto request = Completion(R"("prompt": "a", "echo": true, "logprobs": 0, "max_tokens": 0)");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->drop_output);
  EXPECT_EQ(MissingFrom(request->calls[0],
                        "output { prompt_logprobs: true logprobs: true } "
                        "stopping { max_new_tokens: 1 }"),
            "");
}

TEST(ParseBodyTest, RefusesWhatIsNoObject) {
  const std::string deep = R"({"a":)" + std::string(64, '[') + std::string(64, ']') + "}";
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{"), std::string(R"({"a":1,"a":2})"),
        std::string(R"({"a":NaN})"), std::string(R"({"a":1e999})"), std::string("{\"a\":\"\xff\"}"),
        std::string("{}\0", 3), deep}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseBody(text).status())) << text;
  }
  EXPECT_EQ(Written(*ParseBody(R"({"z": 1, "a": [true, null]})")), R"({"z":1,"a":[true,null]})");
}

}  // namespace
}  // namespace tlm::openai
