#include "server/rpc/facades/openengine/openengine_generate.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/rpc/facades/every_field.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::_;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class OpenEngineGenerateTest : public ::testing::Test {
 protected:
  OpenEngineGenerateTest()
      : tokenizer_(MakeByteTokenizer()), model_(MakeServedModel(tokenizer_.get())) {
    request_.mutable_token_ids()->add_ids(7);
  }

  // What becomes of the request, which stays as it is.
  absl::StatusOr<v1::GenerateRequest> Read(OpenEngineMetadata metadata = {}) {
    mapping_ = std::make_unique<OpenEngineMapping>(std::move(metadata));
    openengine::GenerateRequest taken = request_;
    v1::GenerateRequest generate;
    const absl::Status status = mapping_->Read(taken, model_, generate);
    if (!status.ok()) return status;
    return generate;
  }
  std::string RefusedField(absl::StatusCode code = absl::StatusCode::kInvalidArgument,
                           OpenEngineMetadata metadata = {}) {
    const absl::StatusOr<v1::GenerateRequest> generate = Read(std::move(metadata));
    EXPECT_THAT(generate, StatusIs(code, _));
    return FieldOf(generate.status());
  }

  // The message that the event makes, if there is one.
  bool Write(v1::GenerateResponse event) {
    message_.Clear();
    return mapping_->Write(event, message_);
  }
  void Start(uint32_t prompt_tokens = 1, uint32_t sequences = 1) {
    v1::GenerateResponse event;
    event.mutable_started()->set_request_id("mine");
    event.mutable_started()->set_prompt_token_count(prompt_tokens);
    event.mutable_started()->mutable_effective()->set_num_sequences(sequences);
    EXPECT_FALSE(Write(event));
  }
  static v1::TokenInfo Token(uint32_t id, const std::string& bytes) {
    v1::TokenInfo token;
    token.set_id(id);
    token.set_bytes(bytes);
    token.set_logprob(-0.5F);
    token.set_rank(2);
    for (const uint32_t other : {id + 1, id}) {
      token.add_top()->set_id(other);
    }
    return token;
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  ServedModel model_;
  openengine::GenerateRequest request_;
  std::unique_ptr<OpenEngineMapping> mapping_;
  openengine::GenerateResponse message_;
};

constexpr char kTag[] =
    R"({"triggers": ["<"], "structures": [{"begin": "<", "schema": {}, "end": ">"}]})";

TEST_F(OpenEngineGenerateTest, DecidesOnEveryField) {
  const std::set<std::string> refused = {"kv.session.session_id",
                                         "kv.session.transfer_backend",
                                         "kv.session.endpoints.host",
                                         "kv.session.endpoints.port",
                                         "kv.session.endpoints.protocol",
                                         "kv.session.dp_rank",
                                         "kv.session.attributes_struct",
                                         "guided.backend",
                                         "media.modality",
                                         "media.url",
                                         "media.data_uri",
                                         "media.raw_bytes",
                                         "media.mime_type",
                                         "media.uuid",
                                         "lora_name",
                                         "extra",
                                         "response.prompt_candidates.token_ids.ids",
                                         "response.prompt_candidates.all",
                                         "response.output_candidates.token_ids.ids",
                                         "response.output_candidates.all"};
  const std::set<std::string> answered = {"response.prompt_logprob_start"};
  for (const std::string& path : FieldPaths<openengine::GenerateRequest>()) {
    SCOPED_TRACE(path);
    request_.clear_response();
    openengine::ResponseOptions& response = *request_.mutable_response();
    if (path.find("response.prompt_") == 0) response.set_return_prompt_logprobs(true);
    if (path.find("response.output_") == 0) response.set_return_output_logprobs(true);
    const openengine::GenerateRequest without = request_;
    const absl::StatusOr<v1::GenerateRequest> before = Read();
    ASSERT_THAT(before, IsOk());
    if (path == "extra") {
      (*request_.mutable_extra()->mutable_fields())["speed"].set_number_value(1);
    } else {
      SetField(path, request_);
    }
    if (path == "guided.structural_tag") request_.mutable_guided()->set_structural_tag(kTag);
    const absl::StatusOr<v1::GenerateRequest> after = Read();
    request_ = without;
    if (refused.count(path) > 0) {
      EXPECT_THAT(after, StatusIs(absl::StatusCode::kUnimplemented, _));
      EXPECT_THAT(path, StartsWith(FieldOf(after.status())));
      continue;
    }
    ASSERT_THAT(after, IsOk());
    EXPECT_EQ(MessageDifferencer::Equals(*before, *after), answered.count(path) > 0);
  }
}

TEST_F(OpenEngineGenerateTest, RefusesFieldsOfNewerClients) {
  auto& sampling = *request_.mutable_sampling();
  sampling.GetReflection()->MutableUnknownFields(&sampling)->AddVarint(77, 1);
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("77")));
}

TEST_F(OpenEngineGenerateTest, TakesThePathOfTheModelForItsName) {
  for (const char* name : {"tiny", "/models/tiny", "someone/tiny"}) {
    request_.set_model(name);
    EXPECT_EQ(Read()->model(), "tiny") << name;
  }
  for (const char* name : {"", "nottiny", "tiny/"}) {
    request_.set_model(name);
    EXPECT_EQ(Read()->model(), name);
  }
}

TEST_F(OpenEngineGenerateTest, ReadsTheMetadata) {
  EXPECT_EQ(Read({.priority = {"-3"}})->scheduling().priority(), -3);
  EXPECT_THAT(Read({.data_parallel_rank = {"0"}}), IsOk());
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  for (const char* value : {"x", "", "101", "-101", "1e1", "99999999999999999999"}) {
    EXPECT_EQ(RefusedField(kInvalid, {.priority = {value}}), "openengine-priority") << value;
  }
  EXPECT_EQ(RefusedField(kInvalid, {.priority = {"1", "1"}}), "openengine-priority");
  for (const char* value : {"x", "1", "-1"}) {
    EXPECT_EQ(RefusedField(kInvalid, {.data_parallel_rank = {value}}), "openengine-target-dp-rank");
  }
}

TEST_F(OpenEngineGenerateTest, KeepsAllWithATopKOfMinusOne) {
  request_.mutable_sampling()->set_top_k(-1);
  EXPECT_TRUE(Read()->sampling().has_top_k());
  EXPECT_EQ(Read()->sampling().top_k(), 0);
  request_.mutable_sampling()->set_top_k(-2);
  EXPECT_EQ(RefusedField(), "sampling.top_k");
}

TEST_F(OpenEngineGenerateTest, RefusesAStopConditionWithoutOne) {
  request_.mutable_stopping()->add_conditions()->set_stop_text("END");
  request_.mutable_stopping()->add_conditions();
  EXPECT_EQ(RefusedField(), "stopping.conditions[1]");
}

TEST_F(OpenEngineGenerateTest, LeavesTextsOutWithoutDetokenization) {
  auto& extra = *request_.mutable_extra()->mutable_fields();
  extra["detokenize"].set_bool_value(false);
  EXPECT_FALSE(Read()->output().text());
  EXPECT_TRUE(Read()->output().has_text());
  extra["detokenize"].set_number_value(0);
  EXPECT_EQ(RefusedField(), "extra.detokenize");
}

TEST_F(OpenEngineGenerateTest, RefusesWhatBelongsToLogprobsWithoutThem) {
  request_.mutable_response()->set_prompt_logprob_start(1);
  EXPECT_EQ(RefusedField(), "response.prompt_logprob_start");
  request_.mutable_response()->Clear();
  request_.mutable_response()->mutable_prompt_candidates()->set_top_n(1);
  EXPECT_EQ(RefusedField(), "response.prompt_candidates");
  request_.mutable_response()->set_return_prompt_logprobs(true);
  request_.mutable_response()->mutable_prompt_candidates()->set_top_n(21);
  EXPECT_EQ(RefusedField(), "response.prompt_candidates.top_n");
}

TEST_F(OpenEngineGenerateTest, SendsThePromptOnceFromItsStart) {
  openengine::ResponseOptions& response = *request_.mutable_response();
  response.set_return_prompt_logprobs(true);
  response.set_prompt_logprob_start(1);
  ASSERT_THAT(Read(), IsOk());
  Start(3);
  v1::GenerateResponse event;
  event.mutable_prompt()->add_tokens()->set_id(7);
  EXPECT_FALSE(Write(event));
  event.mutable_prompt()->set_offset(1);
  *event.mutable_prompt()->mutable_tokens(0) = Token(8, "a");
  *event.mutable_prompt()->add_tokens() = Token(9, "b");
  ASSERT_TRUE(Write(event));
  EXPECT_EQ(message_.request_id(), "mine");
  ASSERT_EQ(message_.prompt().tokens_size(), 2);
  EXPECT_EQ(message_.prompt().tokens(0).token_id(), 8);
  EXPECT_EQ(message_.prompt().tokens(0).logprob(), -0.5);
  EXPECT_THAT(message_.prompt().tokens(0).candidates(), IsEmpty());
}

TEST_F(OpenEngineGenerateTest, SendsTokensWithTheirTextAndAlternatives) {
  openengine::ResponseOptions& response = *request_.mutable_response();
  response.set_return_output_logprobs(true);
  response.mutable_output_candidates()->set_top_n(2);
  ASSERT_THAT(Read(), IsOk());
  Start();
  v1::GenerateResponse event;
  event.mutable_tokens()->set_text("\xe2\x82\xac");
  *event.mutable_tokens()->add_tokens() = Token(8, "\xe2\x82");
  ASSERT_TRUE(Write(event));
  ASSERT_TRUE(message_.token().has_output_index());
  EXPECT_EQ(message_.token().text(), "\xe2\x82\xac");
  ASSERT_EQ(message_.token().tokens_size(), 1);
  const openengine::TokenInfo& token = message_.token().tokens(0);
  EXPECT_EQ(token.token(), "\xef\xbf\xbd");
  EXPECT_EQ(token.rank(), 2);
  ASSERT_EQ(token.candidates_size(), 2);
  EXPECT_EQ(token.candidates(0).token_id(), 9);
  EXPECT_EQ(token.candidates(1).token_id(), 8);
}

TEST_F(OpenEngineGenerateTest, SendsTheUsageWithTheLastEnd) {
  ASSERT_THAT(Read(), IsOk());
  Start(4, 2);
  v1::GenerateResponse event;
  event.mutable_finished()->set_output_index(1);
  event.mutable_finished()->set_reason(v1::FINISH_REASON_EOS);
  event.mutable_finished()->set_eos_token_id(kEosId);
  ASSERT_TRUE(Write(event));
  EXPECT_EQ(message_.finished().output_index(), 1);
  EXPECT_EQ(message_.finished().reason(), openengine::FINISH_REASON_STOP);
  EXPECT_EQ(message_.finished().stop_match().eos_token_id(), kEosId);
  EXPECT_FALSE(message_.has_usage());
  event.Clear();
  event.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  EXPECT_FALSE(Write(event));
  v1::Usage& usage = *event.mutable_summary()->mutable_usage();
  usage.set_prompt_tokens(4);
  usage.set_cached_prompt_tokens(3);
  usage.set_completion_tokens(5);
  ASSERT_TRUE(Write(event));
  EXPECT_TRUE(message_.finished().has_output_index());
  EXPECT_EQ(message_.finished().reason(), openengine::FINISH_REASON_LENGTH);
  EXPECT_EQ(message_.usage().total_tokens(), 9);
  EXPECT_EQ(message_.usage().cached_prompt_tokens(), 3);
  EXPECT_FALSE(message_.usage().has_reasoning_tokens());
}

TEST_F(OpenEngineGenerateTest, TellsTheTokensOfReasoningWhereItsMarkersAreText) {
  EXPECT_FALSE(Read()->output().regions());
  model_.chat_format = *FindChatFormat(nullptr, *tokenizer_, "think", "none");
  EXPECT_TRUE(Read()->output().regions());
  model_.chat_format.special_tokens = {"<think>"};
  EXPECT_FALSE(Read()->output().regions());
  Start(4, 1);
  v1::GenerateResponse event;
  event.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  EXPECT_FALSE(Write(event));
  event.mutable_summary()->mutable_usage()->set_reasoning_tokens(3);
  ASSERT_TRUE(Write(event));
  EXPECT_EQ(message_.usage().reasoning_tokens(), 3);
}

}  // namespace
}  // namespace tlm
