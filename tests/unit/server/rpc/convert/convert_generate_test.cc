#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "server/rpc/convert/convert.h"
#include "tests/unit/server/rpc/convert/convert_case.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

uint64_t FixedRandom() { return 0x1234; }

v1::GenerateRequest ValidRequest() {
  v1::GenerateRequest request;
  request.mutable_prompt_token_ids()->add_ids(1);
  return request;
}

absl::StatusOr<GenerateCall> Convert(const v1::GenerateRequest& request) {
  const absl::Status id = RequestIdOf(request.request_id(), SharedModel(), FixedRandom).status();
  if (!id.ok()) return id;
  return ConvertGenerate(request, SharedModel(), FixedRandom);
}

using Case = ConvertCase<v1::GenerateRequest>;

// Shorthands for the tables below.
using R = v1::GenerateRequest;
v1::SamplingParams& Sampling(R& r) { return *r.mutable_sampling(); }
v1::StoppingCriteria& Stopping(R& r) { return *r.mutable_stopping(); }
v1::OutputOptions& Output(R& r) { return *r.mutable_output(); }
google::protobuf::Duration& SoftTimeLimit(R& r) {
  return *r.mutable_scheduling()->mutable_soft_time_limit();
}
// A region that the trigger "<" begins.
v1::StructuralTag::Region& AddRegion(R& r) {
  if (r.structural_tag().triggers().empty()) r.mutable_structural_tag()->add_triggers("<");
  v1::StructuralTag::Region& region = *r.mutable_structural_tag()->add_regions();
  region.set_begin("<a>");
  return region;
}
void AddStop(R& r, std::string stop) { Stopping(r).add_stop_strings(std::move(stop)); }

class AcceptedTest : public ::testing::TestWithParam<Case> {};
TEST_P(AcceptedTest, Converts) {
  v1::GenerateRequest request = ValidRequest();
  GetParam().change(request);
  EXPECT_THAT(Convert(request), IsOk());
}
INSTANTIATE_TEST_SUITE_P(
    Fields, AcceptedTest,
    ::testing::Values(
        Case{"NothingSet", [](R&) {}},
        Case{"MaxNewBeyondTheContext", [](R& r) { Stopping(r).set_max_new_tokens(~0u); }},
        Case{"MinNewEqualsMaxNew",
             [](R& r) {
               Stopping(r).set_max_new_tokens(5);
               Stopping(r).set_min_new_tokens(5);
             }},
        Case{"SixteenStopStrings",
             [](R& r) {
               for (int i = 0; i < 16; ++i) AddStop(r, "x");
             }},
        Case{"LongestStopString", [](R& r) { AddStop(r, std::string(1024, 'x')); }},
        Case{"MostStopIds",
             [](R& r) {
               for (int i = 0; i < 256; ++i) Stopping(r).add_stop_token_ids(299);
             }},
        Case{"MostTopLogprobs", [](R& r) { Output(r).set_top_logprobs(20); }},
        Case{"RawLogprobs", [](R& r) { Output(r).set_logprobs_mode(v1::LOGPROBS_MODE_RAW); }},
        Case{"ProcessedLogprobs",
             [](R& r) { Output(r).set_logprobs_mode(v1::LOGPROBS_MODE_PROCESSED); }},
        Case{"PromptLogprobs", [](R& r) { Output(r).set_prompt_logprobs(true); }},
        Case{"OwnModelName", [](R& r) { r.set_model("tiny"); }},
        Case{"LongestRequestId", [](R& r) { r.set_request_id(std::string(128, '~')); }},
        Case{"RequestIdWithSpaces", [](R& r) { r.set_request_id("my request \"1\""); }},
        Case{"LongestCacheSalt",
             [](R& r) { r.mutable_cache()->set_cache_salt(std::string(256, 's')); }},
        Case{"BypassOfThePrefixCache",
             [](R& r) { r.mutable_cache()->set_bypass_prefix_cache(true); }},
        Case{"NoSpeculation",
             [](R& r) { r.mutable_speculation()->set_mode(v1::SpeculationOptions::OFF); }},
        Case{"LongestDraft", [](R& r) { r.mutable_speculation()->set_max_draft_tokens(16); }},
        Case{"LowestPriority", [](R& r) { r.mutable_scheduling()->set_priority(-100); }},
        Case{"ShortestSoftTimeLimit", [](R& r) { SoftTimeLimit(r).set_nanos(1); }},
        Case{"LongestSoftTimeLimit", [](R& r) { SoftTimeLimit(r).set_seconds(31'536'000); }},
        Case{"LongestPrompt",
             [](R& r) { r.mutable_prompt_token_ids()->mutable_ids()->Resize(63, 2); }},
        Case{"LargestTokenId", [](R& r) { r.mutable_prompt_token_ids()->add_ids(299); }},
        Case{"TruncatedPrompt",
             [](R& r) {
               r.mutable_prompt_token_ids()->mutable_ids()->Resize(1000, 2);
               r.set_truncate_prompt_tokens(63);
             }},
        Case{"Text", [](R& r) { r.set_prompt("hello"); }},
        // A beginning-of-sequence token makes it a prompt.
        Case{"EmptyTextWithSpecialTokens", [](R& r) { r.set_prompt(""); }}),
    NameOfCase<v1::GenerateRequest>);

class RefusedTest : public ::testing::TestWithParam<Case> {};
TEST_P(RefusedTest, NamesTheFieldInMessageAndDetail) {
  v1::GenerateRequest request = ValidRequest();
  GetParam().change(request);
  ExpectRefused(Convert(request).status(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(
    StoppingAndOutput, RefusedTest,
    ::testing::Values(
        Case{"NoNewTokens", [](R& r) { Stopping(r).set_max_new_tokens(0); },
             "stopping.max_new_tokens"},
        Case{"MinNewAboveMaxNew",
             [](R& r) {
               Stopping(r).set_max_new_tokens(5);
               Stopping(r).set_min_new_tokens(6);
             },
             "stopping.min_new_tokens"},
        Case{"MinNewAboveTheContext", [](R& r) { Stopping(r).set_min_new_tokens(65); },
             "stopping.min_new_tokens"},
        Case{"TooManyStopStrings",
             [](R& r) {
               for (int i = 0; i < 17; ++i) AddStop(r, "x");
             },
             "stopping.stop_strings"},
        Case{"EmptyStopString",
             [](R& r) {
               AddStop(r, "x");
               AddStop(r, "");
             },
             "stopping.stop_strings[1]"},
        Case{"StopStringTooLong", [](R& r) { AddStop(r, std::string(1025, 'x')); },
             "stopping.stop_strings[0]"},
        Case{"TooManyStopIds",
             [](R& r) {
               for (int i = 0; i < 257; ++i) Stopping(r).add_stop_token_ids(1);
             },
             "stopping.stop_token_ids"},
        Case{"StopIdOutOfRange",
             [](R& r) {
               Stopping(r).add_stop_token_ids(1);
               Stopping(r).add_stop_token_ids(300);
             },
             "stopping.stop_token_ids[1]"},
        Case{"TooManyTopLogprobs", [](R& r) { Output(r).set_top_logprobs(21); },
             "output.top_logprobs"},
        Case{"MegabyteStopString", [](R& r) { AddStop(r, std::string(1 << 20, 'x')); },
             "stopping.stop_strings[0]"},
        Case{"UnknownLogprobsMode",
             [](R& r) { Output(r).set_logprobs_mode(static_cast<v1::LogprobsMode>(77)); },
             "output.logprobs_mode"}),
    NameOfCase<v1::GenerateRequest>);
INSTANTIATE_TEST_SUITE_P(
    Request, RefusedTest,
    ::testing::Values(
        Case{"OtherModel", [](R& r) { r.set_model("huge"); }, "model", "",
             absl::StatusCode::kNotFound},
        Case{"RequestIdTooLong", [](R& r) { r.set_request_id(std::string(129, 'x')); },
             "request_id"},
        Case{"RequestIdWithLineFeed", [](R& r) { r.set_request_id("a\nb"); }, "request_id"},
        Case{"RequestIdNotAscii", [](R& r) { r.set_request_id("\xc3\xa9"); }, "request_id"},
        Case{"NoInput", [](R& r) { r.clear_input(); }, "input"},
        Case{"EmptyPromptIds", [](R& r) { r.mutable_prompt_token_ids()->clear_ids(); },
             "prompt_token_ids.ids"},
        Case{"EmptyTextWithoutSpecialTokens",
             [](R& r) {
               r.set_prompt("");
               r.set_add_special_tokens(false);
             },
             "prompt"},
        Case{"TextTooLong", [](R& r) { r.set_prompt(std::string((1 << 20) + 1, 'x')); }, "prompt"},
        Case{"TextOfTooManyTokens", [](R& r) { r.set_prompt(std::string(63, 'x')); }, "prompt"},
        Case{"PromptTooLong",
             [](R& r) { r.mutable_prompt_token_ids()->mutable_ids()->Resize(64, 2); },
             "prompt_token_ids.ids"},
        Case{"PromptIdOutOfRange", [](R& r) { r.mutable_prompt_token_ids()->add_ids(300); },
             "prompt_token_ids.ids[1]"},
        Case{"PromptIdAbove31Bits", [](R& r) { r.mutable_prompt_token_ids()->add_ids(~0u); },
             "prompt_token_ids.ids[1]"},
        Case{"ChatWithoutTemplate", [](R& r) { r.mutable_chat(); }, "chat", "",
             absl::StatusCode::kFailedPrecondition},
        Case{"CacheSaltTooLong",
             [](R& r) { r.mutable_cache()->set_cache_salt(std::string(257, 's')); },
             "cache.cache_salt"},
        Case{"UnknownSpeculationMode",
             [](R& r) {
               r.mutable_speculation()->set_mode(static_cast<v1::SpeculationOptions::Mode>(3));
             },
             "speculation.mode"},
        Case{"EmptyDraft", [](R& r) { r.mutable_speculation()->set_max_draft_tokens(0); },
             "speculation.max_draft_tokens"},
        Case{"DraftTooLong", [](R& r) { r.mutable_speculation()->set_max_draft_tokens(17); },
             "speculation.max_draft_tokens"},
        Case{"PriorityTooHigh", [](R& r) { r.mutable_scheduling()->set_priority(101); },
             "scheduling.priority"},
        Case{"NoSoftTime", [](R& r) { SoftTimeLimit(r); }, "scheduling.soft_time_limit"},
        Case{"NegativeSoftTime", [](R& r) { SoftTimeLimit(r).set_seconds(-1); },
             "scheduling.soft_time_limit"},
        Case{"SoftTimeOfTooManyNanos", [](R& r) { SoftTimeLimit(r).set_nanos(1'000'000'000); },
             "scheduling.soft_time_limit"},
        Case{"SoftTimeTooLong", [](R& r) { SoftTimeLimit(r).set_seconds(31'536'001); },
             "scheduling.soft_time_limit"},
        Case{"SoftTimeOfAges", [](R& r) { SoftTimeLimit(r).set_seconds(INT64_MAX); },
             "scheduling.soft_time_limit"},
        Case{"NoChoices", [](R& r) { r.mutable_choices(); }, "choices.choices"},
        Case{"NoJsonObject", [](R& r) { r.set_json_object(false); }, "json_object"},
        Case{"TooLargeSchema", [](R& r) { r.set_json_schema(std::string((1 << 20) + 1, ' ')); },
             "json_schema", "", absl::StatusCode::kResourceExhausted},
        Case{"JsonOptionsAlone", [](R& r) { r.mutable_json(); }, "json"},
        Case{"JsonOptionsOfARegex",
             [](R& r) {
               r.set_regex("a");
               r.mutable_json();
             },
             "json"},
        Case{"UnknownWhitespace",
             [](R& r) {
               r.set_json_object(true);
               r.mutable_json()->set_whitespace(static_cast<v1::JsonWhitespace>(9));
             },
             "json.whitespace"},
        Case{"UnknownOrder",
             [](R& r) {
               r.set_json_object(true);
               r.mutable_json()->set_property_order(static_cast<v1::JsonPropertyOrder>(9));
             },
             "json.property_order"},
        Case{"UnknownEscapes",
             [](R& r) {
               r.set_json_object(true);
               r.mutable_json()->set_escapes(static_cast<v1::JsonEscapes>(9));
             },
             "json.escapes"},
        Case{"NoRegions", [](R& r) { r.mutable_structural_tag()->add_triggers("<"); },
             "structural_tag.regions"},
        Case{"NoTriggers", [](R& r) { r.mutable_structural_tag()->add_regions(); },
             "structural_tag.triggers"},
        Case{"EmptyTrigger",
             [](R& r) {
               AddRegion(r).set_regex("a");
               r.mutable_structural_tag()->add_triggers("");
             },
             "structural_tag.triggers[1]"},
        Case{"RegionWithoutTrigger", [](R& r) { AddRegion(r).set_begin("["); },
             "structural_tag.regions[0].content"},
        Case{"RegionThatNothingTriggers",
             [](R& r) {
               AddRegion(r).set_regex("a");
               AddRegion(r).set_regex("a");
               r.mutable_structural_tag()->mutable_regions(1)->set_begin("[");
             },
             "structural_tag.regions[1].begin"},
        Case{"RegionOfNoObject", [](R& r) { AddRegion(r).set_json_object(false); },
             "structural_tag.regions[0].json_object"},
        Case{"TruncateToNothing", [](R& r) { r.set_truncate_prompt_tokens(0); },
             "truncate_prompt_tokens"},
        Case{"TruncatedButStillTooLong",
             [](R& r) {
               r.mutable_prompt_token_ids()->mutable_ids()->Resize(100, 2);
               r.set_truncate_prompt_tokens(64);
             },
             "prompt_token_ids.ids"}),
    NameOfCase<v1::GenerateRequest>);

TEST(ConvertGenerateTest, TooLongAPromptNamesCountAndLimit) {
  v1::GenerateRequest request;
  request.mutable_prompt_token_ids()->mutable_ids()->Resize(100, 2);
  EXPECT_THAT(Convert(request),
              StatusIs(kInvalid, AllOf(HasSubstr("100 tokens"), HasSubstr("the limit is 63"))));
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
  v1::GenerateRequest request = ValidRequest();
  Sampling(request).set_temperature(0.0f);
  Sampling(request).set_seed(0);
  Output(request).set_text(false);
  Output(request).set_top_logprobs(2);
  Output(request).set_logprobs(false);
  const absl::StatusOr<GenerateCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->work.sampling.temperature, 0.0f);
  EXPECT_EQ(call->work.sampling.seed, 0u);
  EXPECT_FALSE(call->output.text);
  EXPECT_FALSE(call->work.score.logprob);
  EXPECT_EQ(call->work.score.top, 2u);
  EXPECT_TRUE(call->output.token_infos);
}

TEST(ConvertGenerateTest, LogprobsOptionsReachTheWork) {
  v1::GenerateRequest request = ValidRequest();
  EXPECT_FALSE(Convert(request)->work.score.processed);
  EXPECT_FALSE(Convert(request)->work.score_prompt);
  Output(request).set_logprobs_mode(v1::LOGPROBS_MODE_PROCESSED);
  Output(request).set_prompt_logprobs(true);
  EXPECT_TRUE(Convert(request)->work.score.processed);
  EXPECT_TRUE(Convert(request)->work.score_prompt);
}

TEST(ConvertGenerateTest, SchedulingAndCacheOptionsReachTheCall) {
  v1::GenerateRequest request = ValidRequest();
  EXPECT_EQ(Convert(request)->soft_time_limit, absl::InfiniteDuration());
  EXPECT_FALSE(Convert(request)->cache.bypass);
  SoftTimeLimit(request).set_seconds(2);
  SoftTimeLimit(request).set_nanos(500'000'000);
  request.mutable_scheduling()->set_priority(-7);
  request.mutable_cache()->set_bypass_prefix_cache(true);
  request.mutable_cache()->set_cache_salt("pepper");
  const absl::StatusOr<GenerateCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->soft_time_limit, absl::Milliseconds(2500));
  EXPECT_EQ(call->priority, -7);
  EXPECT_TRUE(call->cache.bypass);
  EXPECT_EQ(call->cache.salt, "pepper");
}

TEST(ConvertGenerateTest, SpeculationReachesTheWork) {
  R request = ValidRequest();
  EXPECT_EQ(Convert(request)->work.max_draft_tokens, std::numeric_limits<int64_t>::max());
  request.mutable_speculation()->set_max_draft_tokens(3);
  EXPECT_EQ(Convert(request)->work.max_draft_tokens, 3);
  request.mutable_speculation()->set_mode(v1::SpeculationOptions::AUTO);
  EXPECT_EQ(Convert(request)->work.max_draft_tokens, 3);
  request.mutable_speculation()->set_mode(v1::SpeculationOptions::OFF);
  EXPECT_EQ(Convert(request)->work.max_draft_tokens, 0);
}

TEST(ConvertGenerateTest, ConstraintsReachTheCall) {
  R request = ValidRequest();
  EXPECT_FALSE(Convert(request)->constraint.has_value());
  request.set_json_schema("{\"type\": \"object\"}");
  request.mutable_json()->set_whitespace(v1::JSON_WHITESPACE_COMPACT);
  request.mutable_json()->set_property_order(v1::JSON_PROPERTY_ORDER_ANY);
  absl::StatusOr<GenerateCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(call->constraint->field, "json_schema");
  ASSERT_NE(call->constraint->spec.content(), nullptr);
  EXPECT_EQ(KindName(*call->constraint->spec.content()), "json_schema");
  EXPECT_EQ(TextOf(*call->constraint->spec.content()), "{\"type\": \"object\"}");
  EXPECT_TRUE(call->constraint->spec.json.compact);
  EXPECT_TRUE(call->constraint->spec.json.any_property_order);
  EXPECT_FALSE(call->constraint->spec.json.any_escapes);
  request.mutable_json()->set_escapes(v1::JSON_ESCAPES_ANY);
  EXPECT_TRUE(Convert(request)->constraint->spec.json.any_escapes);
  request.clear_json();
  request.mutable_choices()->add_choices("yes");
  call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ(*call->constraint->spec.content(),
            ConstraintSpec::Content(ConstraintSpec::Choices{{"yes"}}));
  AddRegion(request).set_grammar("root ::= \"a\"");
  AddRegion(request).set_json_object(true);
  request.mutable_structural_tag()->mutable_regions(0)->set_end("</a>");
  call = Convert(request);
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

TEST(ConvertGenerateTest, TopLogprobsImplyLogprobs) {
  v1::GenerateRequest request = ValidRequest();
  Output(request).set_top_logprobs(1);
  const absl::StatusOr<GenerateCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_TRUE(call->work.score.logprob);
}

TEST(ConvertGenerateTest, IgnoreEosLeavesNoEosIds) {
  v1::GenerateRequest request = ValidRequest();
  Stopping(request).set_ignore_eos(true);
  const absl::StatusOr<GenerateCall> call = Convert(request);
  ASSERT_THAT(call, IsOk());
  EXPECT_THAT(call->work.stop.ending_ids.all(), IsEmpty());
}

TEST(ConvertGenerateTest, TextIsTokenizedWithSpecialTokensUnlessToldOtherwise) {
  v1::GenerateRequest request;
  request.set_prompt("hi");
  EXPECT_THAT(Convert(request)->prompt, ElementsAre(kBosId, 'h', 'i'));
  request.set_add_special_tokens(false);
  EXPECT_THAT(Convert(request)->prompt, ElementsAre('h', 'i'));
}

TEST(ConvertGenerateTest, TruncationKeepsTheLastTokens) {
  v1::GenerateRequest request;
  for (const uint32_t id : {1, 2, 3, 4}) request.mutable_prompt_token_ids()->add_ids(id);
  request.set_truncate_prompt_tokens(2);
  EXPECT_THAT(Convert(request)->prompt, ElementsAre(3, 4));
}

class NoTokenizerTest : public ::testing::Test {
 protected:
  absl::Status Refusal(const v1::GenerateRequest& request) {
    return ConvertGenerate(request, model_, FixedRandom).status();
  }
  const ServedModel model_ = MakeServedModel(nullptr);
};

TEST_F(NoTokenizerTest, TextInIsRefusedAndSaysWhatToSend) {
  v1::GenerateRequest request;
  request.set_prompt("hi");
  EXPECT_THAT(Refusal(request),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("send prompt_token_ids")));
}

TEST_F(NoTokenizerTest, ConstraintsAreRefused) {
  v1::GenerateRequest request = ValidRequest();
  request.set_regex("a");
  EXPECT_THAT(Refusal(request),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("regex")));
}

TEST_F(NoTokenizerTest, TextOutIsRefused) {
  v1::GenerateRequest request = ValidRequest();
  Output(request).set_text(true);
  EXPECT_EQ(FieldOf(Refusal(request)), "output.text");
}

TEST_F(NoTokenizerTest, StopStringsAreRefused) {
  v1::GenerateRequest request = ValidRequest();
  AddStop(request, "x");
  EXPECT_THAT(Refusal(request), StatusIs(absl::StatusCode::kFailedPrecondition, _));
}

TEST_F(NoTokenizerTest, UnsetTextMeansTokenIds) {
  const absl::StatusOr<GenerateCall> call = ConvertGenerate(ValidRequest(), model_, FixedRandom);
  ASSERT_THAT(call, IsOk());
  EXPECT_FALSE(call->output.text);
  EXPECT_TRUE(call->output.token_infos);
}

}  // namespace
}  // namespace tlm
