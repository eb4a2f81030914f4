#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "server/rpc/convert/convert.h"
#include "tests/unit/server/rpc/convert/convert_case.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

uint64_t FixedRandom() { return 0x1234; }

using R = v1::GenerateRequest;

R ValidRequest(const std::string& more = "") {
  auto request = Proto<R>("prompt_token_ids { ids: 1 }");
  Merge(more, request);
  return request;
}

absl::StatusOr<GenerateCall> Convert(const R& request) {
  const absl::Status id = RequestIdOf(request.request_id(), SharedModel(), FixedRandom).status();
  if (!id.ok()) return id;
  return ConvertGenerate(request, SharedModel(), FixedRandom);
}

// A prompt of so many tokens.
Change<R> Prompt(int tokens, uint32_t truncate = 0) {
  return [=](R& r) {
    r.mutable_prompt_token_ids()->mutable_ids()->Resize(tokens, 2);
    if (truncate > 0) r.set_truncate_prompt_tokens(truncate);
  };
}
Change<R> Stops(int count) {
  return [=](R& r) {
    for (int i = 0; i < count; ++i) r.mutable_stopping()->add_stop_strings("x");
  };
}
Change<R> Stop(size_t bytes) {
  return [=](R& r) { r.mutable_stopping()->add_stop_strings(std::string(bytes, 'x')); };
}
Change<R> StopIds(int count) {
  return [=](R& r) { r.mutable_stopping()->mutable_stop_token_ids()->Resize(count, 1); };
}
Change<R> RequestId(const std::string& id) {
  return [=](R& r) { r.set_request_id(id); };
}
Change<R> Salt(size_t bytes) {
  return [=](R& r) { r.mutable_cache()->set_cache_salt(std::string(bytes, 's')); };
}

TEST(ConvertGenerateTest, TakesTheWholeOfEveryRange) {
  ExpectAccepted(
      ValidRequest(), Convert,
      {"", "stopping { max_new_tokens: 4294967295 }",
       "stopping { max_new_tokens: 5 min_new_tokens: 5 }", Stops(16), Stop(1024), StopIds(256),
       "output { top_logprobs: 20 }", "output { logprobs_mode: LOGPROBS_MODE_RAW }",
       "output { logprobs_mode: LOGPROBS_MODE_PROCESSED }", "output { prompt_logprobs: true }",
       R"(model: "tiny")", RequestId(std::string(128, '~')), RequestId("my request \"1\""),
       Salt(256), "cache { bypass_prefix_cache: true }", "speculation { mode: OFF }",
       "speculation { max_draft_tokens: 16 }", "scheduling { priority: -100 }",
       "scheduling { soft_time_limit { nanos: 1 } }",
       "scheduling { soft_time_limit { seconds: 31536000 } }", Prompt(63),
       "prompt_token_ids { ids: 299 }", Prompt(1000, /*truncate=*/63), R"(prompt: "hello")",
       // A beginning-of-sequence token makes it a prompt.
       R"(prompt: "")"});
}

TEST(ConvertGenerateTest, NamesTheFieldThatIsOutOfRange) {
  ExpectRefused(
      ValidRequest(), Convert,
      {{"stopping { max_new_tokens: 0 }", "stopping.max_new_tokens"},
       {"stopping { max_new_tokens: 5 min_new_tokens: 6 }", "stopping.min_new_tokens"},
       {"stopping { min_new_tokens: 65 }", "stopping.min_new_tokens"},
       {Stops(17), "stopping.stop_strings"},
       {R"(stopping { stop_strings: ["x", ""] })", "stopping.stop_strings[1]"},
       {Stop(1025), "stopping.stop_strings[0]"},
       {Stop(1 << 20), "stopping.stop_strings[0]"},
       {StopIds(257), "stopping.stop_token_ids"},
       {"stopping { stop_token_ids: [1, 300] }", "stopping.stop_token_ids[1]"},
       {"output { top_logprobs: 21 }", "output.top_logprobs"},
       {"output { logprobs_mode: 77 }", "output.logprobs_mode"},
       {R"(model: "huge")", "model", "", absl::StatusCode::kNotFound},
       {RequestId(std::string(129, 'x')), "request_id"},
       {RequestId("a\nb"), "request_id"},
       {RequestId("\xc3\xa9"), "request_id"},
       {Salt(257), "cache.cache_salt"},
       {"speculation { mode: 3 }", "speculation.mode"},
       {"speculation { max_draft_tokens: 0 }", "speculation.max_draft_tokens"},
       {"speculation { max_draft_tokens: 17 }", "speculation.max_draft_tokens"},
       {"scheduling { priority: 101 }", "scheduling.priority"},
       {"scheduling { soft_time_limit {} }", "scheduling.soft_time_limit"},
       {"scheduling { soft_time_limit { seconds: -1 } }", "scheduling.soft_time_limit"},
       {"scheduling { soft_time_limit { nanos: 1000000000 } }", "scheduling.soft_time_limit"},
       {"scheduling { soft_time_limit { seconds: 31536001 } }", "scheduling.soft_time_limit"},
       {"scheduling { soft_time_limit { seconds: 9223372036854775807 } }",
        "scheduling.soft_time_limit"}});
}

TEST(ConvertGenerateTest, NamesThePromptThatIsNone) {
  const auto text = [](size_t bytes) {
    return [=](R& r) { r.set_prompt(std::string(bytes, 'x')); };
  };
  ExpectRefused(ValidRequest(), Convert,
                {{[](R& r) { r.clear_input(); }, "input"},
                 {Prompt(0), "prompt_token_ids.ids"},
                 {Prompt(64), "prompt_token_ids.ids"},
                 {Prompt(100), "prompt_token_ids.ids", "100 tokens, the limit is 63"},
                 {R"(prompt: "" add_special_tokens: false)", "prompt"},
                 {text((1 << 20) + 1), "prompt"},
                 {text(63), "prompt"},
                 {"prompt_token_ids { ids: 300 }", "prompt_token_ids.ids[1]"},
                 {"prompt_token_ids { ids: 4294967295 }", "prompt_token_ids.ids[1]"},
                 {"chat {}", "chat", "", absl::StatusCode::kFailedPrecondition},
                 {"truncate_prompt_tokens: 0", "truncate_prompt_tokens"},
                 {Prompt(100, /*truncate=*/64), "prompt_token_ids.ids"}});
}

TEST(ConvertGenerateTest, NamesThePartOfAConstraintAtFault) {
  const auto long_schema = [](R& r) { r.set_json_schema(std::string((1 << 20) + 1, ' ')); };
  ExpectRefused(ValidRequest(), Convert,
                {{"choices {}", "choices.choices"},
                 {"json_object: false", "json_object"},
                 {long_schema, "json_schema", "", absl::StatusCode::kResourceExhausted},
                 {"json {}", "json"},
                 {R"(regex: "a" json {})", "json"},
                 {"json_object: true json { whitespace: 9 }", "json.whitespace"},
                 {"json_object: true json { property_order: 9 }", "json.property_order"},
                 {"json_object: true json { escapes: 9 }", "json.escapes"},
                 {R"(structural_tag { triggers: "<" })", "structural_tag.regions"},
                 {"structural_tag { regions {} }", "structural_tag.triggers"},
                 {R"(structural_tag { triggers: ["<", ""] regions { begin: "<a>" regex: "a" } })",
                  "structural_tag.triggers[1]"},
                 {R"(structural_tag { triggers: "<" regions { begin: "[" } })",
                  "structural_tag.regions[0].content"},
                 {R"(structural_tag { triggers: "<" regions { begin: "<a>" regex: "a" }
                            regions { begin: "[" regex: "a" } })",
                  "structural_tag.regions[1].begin"},
                 {R"(structural_tag { triggers: "<" regions { begin: "<a>" json_object: false } })",
                  "structural_tag.regions[0].json_object"}});
}

TEST(RequestIdTest, IsTheOneGivenOrMadeUp) {
  const ServedModel model = MakeServedModel(nullptr);
  EXPECT_EQ(*RequestIdOf("mine", model, FixedRandom), "mine");
  EXPECT_EQ(*RequestIdOf("", model, FixedRandom), "0000000000001234");
}

TEST(ConvertGenerateTest, UnsetMeansTheServersDefaults) {
  const absl::StatusOr<GenerateCall> call = Convert(ValidRequest());
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->work.sampling.temperature, 1.0f);
  EXPECT_EQ(call->work.sampling.top_p, 1.0f);
  EXPECT_EQ(call->work.sampling.seed, 0x1234u);
  EXPECT_EQ(call->work.stop.max_new_tokens, 64);
  EXPECT_THAT(call->work.stop.ending_ids.all(), ElementsAre(kEosId));
  EXPECT_FALSE(call->work.score.logprob);
  EXPECT_TRUE(call->output.text);
  EXPECT_FALSE(call->output.token_infos);
  EXPECT_EQ(call->output.min_chunk_tokens, 1);
}

TEST(ConvertGenerateTest, ASetZeroIsAZero) {
  const absl::StatusOr<GenerateCall> call = Convert(ValidRequest(R"(
      sampling { temperature: 0 seed: 0 }
      output { text: false top_logprobs: 2 logprobs: false })"));
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->work.sampling.temperature, 0.0f);
  EXPECT_EQ(call->work.sampling.seed, 0u);
  EXPECT_FALSE(call->output.text);
  EXPECT_FALSE(call->work.score.logprob);
  EXPECT_EQ(call->work.score.top, 2u);
  EXPECT_TRUE(call->output.token_infos);
}

TEST(ConvertGenerateTest, LogprobsOptionsReachTheWork) {
  EXPECT_FALSE(Convert(ValidRequest())->work.score.processed);
  EXPECT_FALSE(Convert(ValidRequest())->work.score_prompt);
  const absl::StatusOr<GenerateCall> call = Convert(
      ValidRequest("output { logprobs_mode: LOGPROBS_MODE_PROCESSED prompt_logprobs: true }"));
  EXPECT_TRUE(call->work.score.processed);
  EXPECT_TRUE(call->work.score_prompt);
  EXPECT_TRUE(Convert(ValidRequest("output { top_logprobs: 1 }"))->work.score.logprob);
}

TEST(ConvertGenerateTest, SchedulingAndCacheOptionsReachTheCall) {
  EXPECT_EQ(Convert(ValidRequest())->soft_time_limit, absl::InfiniteDuration());
  EXPECT_FALSE(Convert(ValidRequest())->cache.bypass);
  const absl::StatusOr<GenerateCall> call = Convert(ValidRequest(R"(
      scheduling { soft_time_limit { seconds: 2 nanos: 500000000 } priority: -7 }
      cache { bypass_prefix_cache: true cache_salt: "pepper" })"));
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->soft_time_limit, absl::Milliseconds(2500));
  EXPECT_EQ(call->priority, -7);
  EXPECT_TRUE(call->cache.bypass);
  EXPECT_EQ(call->cache.salt, "pepper");
}

TEST(ConvertGenerateTest, SpeculationReachesTheWork) {
  const std::pair<const char*, int64_t> kCases[] = {
      {"", std::numeric_limits<int64_t>::max()},
      {"speculation { max_draft_tokens: 3 }", 3},
      {"speculation { max_draft_tokens: 3 mode: AUTO }", 3},
      {"speculation { max_draft_tokens: 3 mode: OFF }", 0}};
  for (const auto& [options, drafted] : kCases) {
    EXPECT_EQ(Convert(ValidRequest(options))->work.max_draft_tokens, drafted) << options;
  }
}

TEST(ConvertGenerateTest, ConstraintsReachTheCall) {
  EXPECT_FALSE(Convert(ValidRequest())->constraint.has_value());
  R request = ValidRequest(R"(json_schema: "{\"type\": \"object\"}"
      json { whitespace: JSON_WHITESPACE_COMPACT property_order: JSON_PROPERTY_ORDER_ANY })");
  absl::StatusOr<GenerateCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->constraint->field, "json_schema");
  ASSERT_NE(call->constraint->spec.content(), nullptr);
  EXPECT_EQ(KindName(*call->constraint->spec.content()), "json_schema");
  EXPECT_EQ(TextOf(*call->constraint->spec.content()), "{\"type\": \"object\"}");
  EXPECT_TRUE(call->constraint->spec.json.compact);
  EXPECT_TRUE(call->constraint->spec.json.any_property_order);
  EXPECT_FALSE(call->constraint->spec.json.any_escapes);
  Merge("json { escapes: JSON_ESCAPES_ANY }", request);
  EXPECT_TRUE(Convert(request)->constraint->spec.json.any_escapes);
  call = Convert(ValidRequest(R"(choices { choices: "yes" })"));
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(*call->constraint->spec.content(),
            ConstraintSpec::Content(ConstraintSpec::Choices{{"yes"}}));
  call = Convert(ValidRequest(R"(structural_tag { triggers: "<"
      regions { begin: "<a>" grammar: "root ::= \"a\"" end: "</a>" }
      regions { begin: "<a>" json_object: true } })"));
  ASSERT_THAT(call, IsOk());
  ASSERT_NE(call->constraint->spec.flow(), nullptr);
  const ConstraintSpec::Flow& spec = *call->constraint->spec.flow();
  ASSERT_EQ(spec.nodes.size(), 1u);
  EXPECT_TRUE(spec.nodes[0].is_free && spec.nodes[0].may_end);
  EXPECT_THAT(spec.nodes[0].triggers, ElementsAre("<"));
  const std::vector<ConstraintSpec::Edge>& edges = spec.nodes[0].edges;
  ASSERT_EQ(edges.size(), 2u);
  EXPECT_EQ(edges[0].begin, "<a>");
  EXPECT_EQ(edges[0].content, ConstraintSpec::Content(ConstraintSpec::Grammar{"root ::= \"a\""}));
  EXPECT_EQ(edges[0].end, "</a>");
  EXPECT_EQ(edges[0].field, "structural_tag.regions[0].grammar");
  EXPECT_EQ(edges[0].target, 0);
  EXPECT_EQ(edges[1].content, ConstraintSpec::Content(ConstraintSpec::JsonObject()));
}

TEST(ConvertGenerateTest, IgnoreEosLeavesNoEosIds) {
  const absl::StatusOr<GenerateCall> call = Convert(ValidRequest("stopping { ignore_eos: true }"));
  ASSERT_THAT(call, IsOk());
  EXPECT_THAT(call->work.stop.ending_ids.all(), IsEmpty());
}

TEST(ConvertGenerateTest, PromptsAreTokenizedAndTruncated) {
  EXPECT_THAT(Convert(Proto<R>(R"(prompt: "hi")"))->prompt, ElementsAre(kBosId, 'h', 'i'));
  EXPECT_THAT(Convert(Proto<R>(R"(prompt: "hi" add_special_tokens: false)"))->prompt,
              ElementsAre('h', 'i'));
  const auto request = Proto<R>("prompt_token_ids { ids: [1, 2, 3, 4] } truncate_prompt_tokens: 2");
  EXPECT_THAT(Convert(request)->prompt, ElementsAre(3, 4)) << "the last tokens";
}

TEST(ConvertGenerateTest, WithoutATokenizerThereAreTokenIdsAlone) {
  const ServedModel model = MakeServedModel(nullptr);
  const auto convert = [&](const R& r) { return ConvertGenerate(r, model, FixedRandom); };
  constexpr auto kMissing = absl::StatusCode::kFailedPrecondition;
  ExpectRefused(ValidRequest(), convert,
                {{R"(prompt: "hi")", "prompt", "send prompt_token_ids", kMissing},
                 {R"(regex: "a")", "regex", "", kMissing},
                 {"output { text: true }", "output.text", "", kMissing},
                 {Stop(1), "stopping.stop_strings", "", kMissing}});
  const absl::StatusOr<GenerateCall> call = convert(ValidRequest());
  ASSERT_THAT(call, IsOk());
  EXPECT_FALSE(call->output.text);
  EXPECT_TRUE(call->output.token_infos);
}

}  // namespace
}  // namespace tlm
