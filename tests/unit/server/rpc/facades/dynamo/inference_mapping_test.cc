#include "server/rpc/facades/dynamo/inference_mapping.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Answer = InferenceMapping::Answer;

class InferenceMappingTest : public ::testing::Test {
 protected:
  InferenceMappingTest()
      : tokenizer_(MakeByteTokenizer()), model_(MakeServedModel(tokenizer_.get())) {
    request_.mutable_token_ids()->add_ids(7);
    request_.mutable_token_ids()->add_ids(8);
    request_.mutable_token_ids()->add_ids(9);
  }

  // What becomes of the request, which stays as it is.
  absl::StatusOr<v1::GenerateRequest> Read(Answer answer = Answer::kStream,
                                           const std::string& rank = "") {
    mapping_ = std::make_unique<InferenceMapping>(answer, rank);
    vllm::GenerateRequest taken = request_;
    v1::GenerateRequest generate;
    const absl::Status status = mapping_->Read(taken, model_, generate);
    if (!status.ok()) return status;
    return generate;
  }
  std::string RefusedField(absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::StatusOr<v1::GenerateRequest> generate = Read();
    EXPECT_THAT(generate, StatusIs(code, _));
    return FieldOf(generate.status());
  }

  // The message that the event makes, if there is one.
  bool Write(v1::GenerateResponse event) {
    message_.Clear();
    return mapping_->Write(event, message_);
  }
  bool Start(uint32_t prompt_tokens = 3, uint32_t sequences = 1) {
    v1::GenerateResponse event;
    event.mutable_started()->set_prompt_token_count(prompt_tokens);
    event.mutable_started()->mutable_effective()->set_num_sequences(sequences);
    return Write(event);
  }
  static v1::GenerateResponse Tokens(const std::vector<uint32_t>& ids, const std::string& text,
                                     uint32_t index = 0) {
    v1::GenerateResponse event;
    v1::GenerateTokens& tokens = *event.mutable_tokens();
    tokens.set_output_index(index);
    tokens.set_text(text);
    for (const uint32_t id : ids) {
      v1::TokenInfo& token = *tokens.add_tokens();
      token.set_id(id);
      token.set_logprob(-0.5F);
      token.set_rank(2);
      for (const uint32_t other : {id + 1, id, id + 2}) {
        v1::TopToken& top = *token.add_top();
        top.set_id(other);
        top.set_logprob(-0.25F);
        top.set_rank(other);
      }
    }
    return event;
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  const ServedModel model_;
  vllm::GenerateRequest request_;
  std::unique_ptr<InferenceMapping> mapping_;
  vllm::GenerateResponse message_;
};

constexpr char kTag[] =
    R"({"triggers": ["<"], "structures": [{"begin": "<", "schema": {}, "end": ">"}]})";

TEST_F(InferenceMappingTest, DecidesOnEveryField) {
  const std::set<std::string> refused = {"session_id",
                                         "media.modality",
                                         "media.url",
                                         "media.data_uri",
                                         "media.raw_bytes",
                                         "media.features.kwargs",
                                         "media.features.identifier",
                                         "media.features.offset",
                                         "media.features.length",
                                         "media.features.mm_hash",
                                         "media.features.is_embed",
                                         "media.mime_type",
                                         "media.uuid",
                                         "lora_name",
                                         "kv.kv_transfer_params",
                                         "kv.ec_transfer_params",
                                         "response.prompt_candidates.token_ids.ids",
                                         "response.prompt_candidates.all",
                                         "response.output_candidates.token_ids.ids",
                                         "response.output_candidates.all"};
  // These change the answer alone, or say what is so anyway.
  const std::set<std::string> answered = {"response.prompt_token_ids", "response.output_token_ids",
                                          "response.skip_special_tokens"};
  for (const std::string& path : FieldPaths<vllm::GenerateRequest>()) {
    SCOPED_TRACE(path);
    request_.clear_response();
    vllm::ResponseOptions& response = *request_.mutable_response();
    response.set_prompt_logprobs(path.find("prompt_candidates") != path.npos);
    response.set_output_logprobs(path.find("output_candidates") != path.npos);
    const vllm::GenerateRequest without = request_;
    const absl::StatusOr<v1::GenerateRequest> before = Read();
    ASSERT_THAT(before, IsOk());
    SetField(path, request_);
    if (path == "decoding.structural_tag") request_.mutable_decoding()->set_structural_tag(kTag);
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

TEST_F(InferenceMappingTest, RefusesFieldsOfNewerClients) {
  request_.GetReflection()->MutableUnknownFields(&request_)->AddVarint(77, 1);
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("77")));
}

TEST_F(InferenceMappingTest, LeavesZerosToTheDefaults) {
  request_.mutable_sampling();
  request_.mutable_decoding();
  request_.mutable_stopping();
  const absl::StatusOr<v1::GenerateRequest> generate = Read();
  ASSERT_THAT(generate, IsOk());
  EXPECT_TRUE(MessageDifferencer::Equals(generate->sampling(), v1::SamplingParams()));
  EXPECT_TRUE(MessageDifferencer::Equals(generate->stopping(), v1::StoppingCriteria()));
  EXPECT_FALSE(generate->has_truncate_prompt_tokens());
}

TEST_F(InferenceMappingTest, TakesASeedOfEitherSign) {
  request_.mutable_sampling()->set_seed(0);
  EXPECT_TRUE(Read()->sampling().has_seed());
  request_.mutable_sampling()->set_seed(-4);
  EXPECT_EQ(Read()->sampling().seed(), std::numeric_limits<uint64_t>::max() - 3);
}

TEST_F(InferenceMappingTest, TurnsThePriorityRound) {
  request_.set_priority(-5);
  EXPECT_EQ(Read()->scheduling().priority(), 5);
  for (const int32_t priority : {101, -101, std::numeric_limits<int32_t>::min()}) {
    request_.set_priority(priority);
    EXPECT_EQ(RefusedField(), "priority") << priority;
  }
}

TEST_F(InferenceMappingTest, HasRankZeroAlone) {
  EXPECT_THAT(Read(Answer::kStream, "0"), IsOk());
  for (const char* rank : {"1", "00", "x"}) {
    EXPECT_THAT(Read(Answer::kStream, rank),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("x-data-parallel-rank")));
  }
}

TEST_F(InferenceMappingTest, GenerateHasOneSequence) {
  request_.mutable_sampling()->set_num_sequences(2);
  EXPECT_THAT(Read(), IsOk());
  EXPECT_THAT(Read(Answer::kUnary),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("sampling.num_sequences")));
}

TEST_F(InferenceMappingTest, RefusesCandidatesWithoutLogprobsAndTooMany) {
  vllm::ResponseOptions& response = *request_.mutable_response();
  response.mutable_output_candidates()->set_top_n(3);
  EXPECT_EQ(RefusedField(), "response.output_candidates");
  response.set_output_logprobs(true);
  EXPECT_EQ(Read()->output().top_logprobs(), 3);
  response.mutable_output_candidates()->set_top_n(21);
  EXPECT_EQ(RefusedField(), "response.output_candidates.top_n");
}

TEST_F(InferenceMappingTest, RefusesTextsOfSpecialTokens) {
  request_.mutable_response()->set_skip_special_tokens(false);
  EXPECT_EQ(RefusedField(absl::StatusCode::kUnimplemented), "response.skip_special_tokens");
}

TEST_F(InferenceMappingTest, RefusesTheIdsOfATextWithoutLogprobs) {
  request_.set_text("ab");
  request_.mutable_response()->set_prompt_token_ids(true);
  EXPECT_EQ(RefusedField(absl::StatusCode::kUnimplemented), "response.prompt_token_ids");
  request_.mutable_response()->set_prompt_logprobs(true);
  EXPECT_THAT(Read(), IsOk());
}

TEST_F(InferenceMappingTest, BeginsWithThePrompt) {
  request_.mutable_response()->set_prompt_token_ids(true);
  ASSERT_THAT(Read(), IsOk());
  ASSERT_TRUE(Start(2));  // of three: the request was truncated
  EXPECT_EQ(message_.prompt_info().num_prompt_tokens(), 2);
  EXPECT_THAT(message_.prompt_info().token_ids(), ElementsAre(8, 9));
  EXPECT_FALSE(message_.has_outputs());
}

TEST_F(InferenceMappingTest, SendsThePromptWhole) {
  vllm::ResponseOptions& response = *request_.mutable_response();
  response.set_prompt_token_ids(true);
  response.set_prompt_logprobs(true);
  response.mutable_prompt_candidates()->set_top_n(1);
  ASSERT_THAT(Read(), IsOk());
  EXPECT_FALSE(Start(3));
  v1::GenerateResponse event;
  event.mutable_prompt()->add_tokens()->set_id(7);
  EXPECT_FALSE(Write(event));
  event.mutable_prompt()->set_offset(1);
  event.mutable_prompt()->clear_tokens();
  *event.mutable_prompt()->mutable_tokens() = Tokens({8, 9}, "").tokens().tokens();
  ASSERT_TRUE(Write(event));
  const vllm::PromptInfo& prompt = message_.prompt_info();
  EXPECT_EQ(prompt.num_prompt_tokens(), 3);
  EXPECT_THAT(prompt.token_ids(), ElementsAre(7, 8, 9));
  EXPECT_THAT(prompt.logprobs(), ElementsAre(0, -0.5F, -0.5F));
  EXPECT_THAT(prompt.ranks(), ElementsAre(0, 2, 2));
  ASSERT_EQ(prompt.candidate_tokens_size(), 3);
  EXPECT_THAT(prompt.candidate_tokens(0).tokens(), IsEmpty());
  ASSERT_EQ(prompt.candidate_tokens(1).tokens_size(), 1);
  EXPECT_EQ(prompt.candidate_tokens(1).tokens(0).id(), 9);
}

TEST_F(InferenceMappingTest, SendsWhatIsAskedFor) {
  ASSERT_THAT(Read(), IsOk());
  ASSERT_TRUE(Start());
  ASSERT_TRUE(Write(Tokens({65, 66}, "AB")));
  EXPECT_EQ(message_.outputs().text(), "AB");
  EXPECT_EQ(message_.outputs().num_tokens(), 2);
  EXPECT_THAT(message_.outputs().token_ids(), IsEmpty());
  EXPECT_THAT(message_.outputs().logprobs(), IsEmpty());
  EXPECT_THAT(message_.outputs().candidate_tokens(), IsEmpty());

  vllm::ResponseOptions& response = *request_.mutable_response();
  response.set_output_token_ids(true);
  response.set_output_logprobs(true);
  response.mutable_output_candidates()->set_top_n(2);
  ASSERT_THAT(Read(), IsOk());
  ASSERT_TRUE(Start());
  ASSERT_TRUE(Write(Tokens({65, 66}, "AB")));
  EXPECT_THAT(message_.outputs().token_ids(), ElementsAre(65, 66));
  EXPECT_THAT(message_.outputs().logprobs(), ElementsAre(-0.5F, -0.5F));
  EXPECT_THAT(message_.outputs().ranks(), ElementsAre(2, 2));
  ASSERT_EQ(message_.outputs().candidate_tokens_size(), 2);
  // Of the two best one is the token itself.
  ASSERT_EQ(message_.outputs().candidate_tokens(0).tokens_size(), 1);
  EXPECT_EQ(message_.outputs().candidate_tokens(0).tokens(0).id(), 66);
}

TEST_F(InferenceMappingTest, EndsEachSequence) {
  request_.mutable_response()->set_output_token_ids(true);
  ASSERT_THAT(Read(), IsOk());
  ASSERT_TRUE(Start(3, 2));
  ASSERT_TRUE(Write(Tokens({65, 66}, "AB", 1)));
  v1::GenerateResponse event;
  event.mutable_finished()->set_output_index(1);
  event.mutable_finished()->set_reason(v1::FINISH_REASON_CONTEXT_LENGTH);
  ASSERT_TRUE(Write(event));
  EXPECT_EQ(message_.outputs().index(), 1);
  EXPECT_EQ(message_.outputs().num_tokens(), 0);
  EXPECT_EQ(message_.outputs().finish_info().finish_reason(), vllm::FinishInfo::LENGTH);
  EXPECT_EQ(message_.outputs().finish_info().num_output_tokens(), 2);
  event.mutable_finished()->set_output_index(0);
  event.mutable_finished()->set_reason(v1::FINISH_REASON_STOP);
  event.mutable_finished()->set_stop_string("END");
  ASSERT_TRUE(Write(event));
  EXPECT_EQ(message_.outputs().finish_info().finish_reason(), vllm::FinishInfo::STOP);
  EXPECT_EQ(message_.outputs().finish_info().stop_string(), "END");
  EXPECT_EQ(message_.outputs().finish_info().num_output_tokens(), 0);
  event.mutable_summary();
  EXPECT_FALSE(Write(event));
}

TEST_F(InferenceMappingTest, SendsTheTokenThatEndsASequence) {
  v1::GenerateResponse event;
  event.mutable_finished()->set_reason(v1::FINISH_REASON_EOS);
  event.mutable_finished()->set_eos_token_id(kEosId);
  request_.mutable_response()->set_output_token_ids(true);
  ASSERT_THAT(Read(), IsOk());
  ASSERT_TRUE(Start());
  ASSERT_TRUE(Write(Tokens({65}, "A")));
  ASSERT_TRUE(Write(event));
  EXPECT_THAT(message_.outputs().token_ids(), ElementsAre(kEosId));
  EXPECT_EQ(message_.outputs().num_tokens(), 1);
  EXPECT_EQ(message_.outputs().finish_info().num_output_tokens(), 2);
  EXPECT_EQ(message_.outputs().finish_info().eos_token_id(), kEosId);

  // It was sent with the text already.
  request_.mutable_stopping()->set_include_stop_strings(true);
  ASSERT_THAT(Read(), IsOk());
  ASSERT_TRUE(Start());
  ASSERT_TRUE(Write(event));
  EXPECT_EQ(message_.outputs().num_tokens(), 0);

  // There is no log-probability for it.
  request_.mutable_stopping()->Clear();
  request_.mutable_response()->set_output_logprobs(true);
  ASSERT_THAT(Read(), IsOk());
  ASSERT_TRUE(Start());
  ASSERT_TRUE(Write(event));
  EXPECT_EQ(message_.outputs().num_tokens(), 0);
}

TEST_F(InferenceMappingTest, GathersTheAnswerOfGenerate) {
  request_.mutable_response()->set_output_token_ids(true);
  const absl::StatusOr<v1::GenerateRequest> generate = Read(Answer::kUnary);
  ASSERT_THAT(generate, IsOk());
  EXPECT_TRUE(generate->output().final_only());
  ASSERT_TRUE(Start());
  v1::GenerateResponse event = Tokens({65}, "A");
  mapping_->Write(event, message_);
  event = Tokens({66}, "B");
  mapping_->Write(event, message_);
  event.mutable_finished()->set_reason(v1::FINISH_REASON_LENGTH);
  mapping_->Write(event, message_);
  EXPECT_EQ(message_.prompt_info().num_prompt_tokens(), 3);
  EXPECT_EQ(message_.outputs().text(), "AB");
  EXPECT_EQ(message_.outputs().num_tokens(), 2);
  EXPECT_THAT(message_.outputs().token_ids(), ElementsAre(65, 66));
  EXPECT_EQ(message_.outputs().finish_info().num_output_tokens(), 2);
}

}  // namespace
}  // namespace tlm
