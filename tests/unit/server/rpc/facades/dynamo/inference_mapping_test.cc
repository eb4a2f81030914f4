#include "server/rpc/facades/dynamo/inference_mapping.h"

#include <limits>
#include <memory>
#include <string>

#include "tests/unit/server/rpc/facades/mapping_fixture.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Answer = InferenceMapping::Answer;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

class InferenceMappingTest : public MappingTest<vllm::GenerateRequest, vllm::GenerateResponse> {
 protected:
  InferenceMappingTest() : MappingTest("token_ids { ids: [7, 8, 9] }") {}

  std::unique_ptr<GenerateMapping<vllm::GenerateRequest, vllm::GenerateResponse>> Make()
      const override {
    return std::make_unique<InferenceMapping>(answer_, rank_);
  }

  Answer answer_ = Answer::kStream;
  std::string rank_;
};

constexpr char kStarted[] = "started { prompt_token_count: 3 effective { num_sequences: 1 } }";

// A token of an event, with three alternatives, one of them the token itself.
std::string Token(int id) {
  std::string top;
  for (const int other : {id + 1, id, id + 2}) {
    top += " top { id: " + std::to_string(other) + " logprob: -0.25 rank: 3 }";
  }
  return " tokens { id: " + std::to_string(id) + " logprob: -0.5 rank: 2" + top + " }";
}
std::string Tokens(const std::string& text, int output = 0) {
  return "tokens { output_index: " + std::to_string(output) + " text: '" + text + "'" + Token(65) +
         Token(66) + " }";
}

TEST_F(InferenceMappingTest, DecidesOnEveryField) {
  ExpectDecisionOnEveryField(
      Paths("session_id media.modality media.url media.data_uri media.raw_bytes "
            "media.features.kwargs media.features.identifier media.features.offset "
            "media.features.length media.features.mm_hash media.features.is_embed media.mime_type "
            "media.uuid lora_name kv.kv_transfer_params kv.ec_transfer_params "
            "response.prompt_candidates.token_ids.ids response.prompt_candidates.all "
            "response.output_candidates.token_ids.ids response.output_candidates.all"),
      {"response.prompt_token_ids", "response.output_token_ids", "response.skip_special_tokens"},
      {{"decoding.structural_tag", std::string("decoding { structural_tag: ") + kTag + " }"}},
      [](const std::string& path) -> std::string {
        if (path.starts_with("response.prompt_c")) return "response { prompt_logprobs: true }";
        if (path.starts_with("response.output_c")) return "response { output_logprobs: true }";
        return "response {}";
      });
}

TEST_F(InferenceMappingTest, RefusesFieldsOfNewerClients) {
  ExpectUnknownFieldsAreRefused("sampling");
}

TEST_F(InferenceMappingTest, LeavesZerosToTheDefaults) {
  const absl::StatusOr<v1::GenerateRequest> generate = Read("sampling {} decoding {} stopping {}");
  ASSERT_THAT(generate, IsOk());
  EXPECT_THAT(generate->sampling(), IsProto(""));
  EXPECT_THAT(generate->stopping(), IsProto(""));
  EXPECT_FALSE(generate->has_truncate_prompt_tokens());
}

TEST_F(InferenceMappingTest, TakesASeedOfEitherSign) {
  EXPECT_TRUE(Read("sampling { seed: 0 }")->sampling().has_seed());
  EXPECT_EQ(Read("sampling { seed: -4 }")->sampling().seed(),
            std::numeric_limits<uint64_t>::max() - 3);
}

TEST_F(InferenceMappingTest, TurnsThePriorityRound) {
  EXPECT_EQ(Read("priority: -5")->scheduling().priority(), 5);
  for (const char* const priority : {"101", "-101", "-2147483648"}) {
    ExpectRefused(std::string("priority: ") + priority, "priority");
  }
}

TEST_F(InferenceMappingTest, HasRankZeroAlone) {
  rank_ = "0";
  EXPECT_THAT(Read(), IsOk());
  for (const char* rank : {"1", "00", "x"}) {
    rank_ = rank;
    EXPECT_THAT(Read(),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("x-data-parallel-rank")));
  }
}

TEST_F(InferenceMappingTest, GenerateHasOneSequence) {
  EXPECT_THAT(Read("sampling { num_sequences: 2 }"), IsOk());
  answer_ = Answer::kUnary;
  ExpectRefused("sampling { num_sequences: 2 }", "sampling.num_sequences");
}

TEST_F(InferenceMappingTest, RefusesResponsesThatItCannotGive) {
  ExpectRefused("response { output_candidates { top_n: 3 } }", "response.output_candidates");
  EXPECT_EQ(Read("response { output_logprobs: true output_candidates { top_n: 3 } }")
                ->output()
                .top_logprobs(),
            3);
  ExpectRefused("response { output_logprobs: true output_candidates { top_n: 21 } }",
                "response.output_candidates.top_n");
  ExpectRefused("response { skip_special_tokens: false }", "response.skip_special_tokens",
                kUnimplemented);
  // The ids of a text come with its log-probabilities alone.
  ExpectRefused("text: 'ab' response { prompt_token_ids: true }", "response.prompt_token_ids",
                kUnimplemented);
  EXPECT_THAT(Read("text: 'ab' response { prompt_token_ids: true prompt_logprobs: true }"), IsOk());
}

TEST_F(InferenceMappingTest, BeginsWithThePrompt) {
  ASSERT_THAT(Read("response { prompt_token_ids: true }"), IsOk());
  // Two of three: the request was truncated.
  EXPECT_THAT(Write({"started { prompt_token_count: 2 effective { num_sequences: 1 } }"}),
              ElementsAre(IsProto("prompt_info { num_prompt_tokens: 2 token_ids: [8, 9] }")));
}

TEST_F(InferenceMappingTest, SendsThePromptWhole) {
  ASSERT_THAT(Read(R"(response { prompt_token_ids: true prompt_logprobs: true
                                 prompt_candidates { top_n: 1 } })"),
              IsOk());
  EXPECT_THAT(Write({kStarted, "prompt { tokens { id: 7 } }",
                     "prompt { offset: 1" + Token(8) + Token(9) + " }"}),
              ElementsAre(IsProto(R"(
                  prompt_info {
                    num_prompt_tokens: 3 token_ids: [7, 8, 9] logprobs: [0, -0.5, -0.5]
                    ranks: [0, 2, 2] candidate_tokens {}
                    candidate_tokens { tokens { id: 9 logprob: -0.25 rank: 3 } }
                    candidate_tokens { tokens { id: 10 logprob: -0.25 rank: 3 } } })")));
}

TEST_F(InferenceMappingTest, SendsWhatIsAskedFor) {
  ASSERT_THAT(Read(), IsOk());
  EXPECT_THAT(Write({kStarted, Tokens("AB")}),
              ElementsAre(_, IsProto("outputs { text: 'AB' num_tokens: 2 }")));
  ASSERT_THAT(Read(R"(response { output_token_ids: true output_logprobs: true
                                 output_candidates { top_n: 2 } })"),
              IsOk());
  // Of the two best one is the token itself.
  EXPECT_THAT(Write({kStarted, Tokens("AB")}), ElementsAre(_, IsProto(R"(
                  outputs {
                    text: 'AB' num_tokens: 2 token_ids: [65, 66] logprobs: [-0.5, -0.5]
                    ranks: [2, 2]
                    candidate_tokens { tokens { id: 66 logprob: -0.25 rank: 3 } }
                    candidate_tokens { tokens { id: 67 logprob: -0.25 rank: 3 } } })")));
}

TEST_F(InferenceMappingTest, EndsEachSequence) {
  ASSERT_THAT(Read("response { output_token_ids: true }"), IsOk());
  EXPECT_THAT(
      Write({"started { prompt_token_count: 3 effective { num_sequences: 2 } }", Tokens("AB", 1),
             "finished { output_index: 1 reason: FINISH_REASON_CONTEXT_LENGTH }",
             "finished { reason: FINISH_REASON_STOP stop_string: 'END' }", "summary {}"}),
      ElementsAre(_, _,
                  IsProto("outputs { index: 1 finish_info { finish_reason: LENGTH "
                          "num_output_tokens: 2 } }"),
                  IsProto("outputs { finish_info { finish_reason: STOP stop_string: 'END' } }")));
}

TEST_F(InferenceMappingTest, SendsTheTokenThatEndsASequence) {
  constexpr char kEnd[] = "finished { reason: FINISH_REASON_EOS eos_token_id: 256 }";
  ASSERT_THAT(Read("response { output_token_ids: true }"), IsOk());
  EXPECT_THAT(Write({kStarted, "tokens { text: 'A' tokens { id: 65 } }", kEnd}),
              ElementsAre(_, _, IsProto(R"(
                  outputs {
                    token_ids: 256 num_tokens: 1 finish_info {
                      finish_reason: STOP num_output_tokens: 2 eos_token_id: 256 } })")));
  // It was sent with the text already, or there is no log-probability for it.
  for (const char* const without : {"stopping { include_stop_strings: true }",
                                    "response { output_token_ids: true output_logprobs: true }"}) {
    ASSERT_THAT(Read(without), IsOk());
    EXPECT_THAT(Write({kStarted, kEnd}),
                ElementsAre(_, IsProto("outputs { finish_info { finish_reason: STOP "
                                       "eos_token_id: 256 } }")));
  }
}

TEST_F(InferenceMappingTest, GathersTheAnswerOfGenerate) {
  answer_ = Answer::kUnary;
  const absl::StatusOr<v1::GenerateRequest> generate = Read("response { output_token_ids: true }");
  ASSERT_THAT(generate, IsOk());
  EXPECT_TRUE(generate->output().final_only());
  vllm::GenerateResponse answer;
  for (const char* const text :
       {kStarted, "tokens { text: 'A' tokens { id: 65 } }",
        "tokens { text: 'B' tokens { id: 66 } }", "finished { reason: FINISH_REASON_LENGTH }"}) {
    auto event = Proto<v1::GenerateResponse>(text);
    mapping_->Write(event, answer);
  }
  EXPECT_THAT(answer, IsProto(R"(
      prompt_info { num_prompt_tokens: 3 }
      outputs {
        text: 'AB' num_tokens: 2 token_ids: [65, 66]
        finish_info { finish_reason: LENGTH num_output_tokens: 2 } })"));
}

}  // namespace
}  // namespace tlm
