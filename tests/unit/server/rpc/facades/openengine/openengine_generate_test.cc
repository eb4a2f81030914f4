#include "server/rpc/facades/openengine/openengine_generate.h"

#include <memory>
#include <string>

#include "tests/unit/server/rpc/facades/mapping_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

class OpenEngineGenerateTest
    : public MappingTest<openengine::GenerateRequest, openengine::GenerateResponse> {
 protected:
  OpenEngineGenerateTest() : MappingTest("token_ids { ids: 7 }") {}

  std::unique_ptr<GenerateMapping<openengine::GenerateRequest, openengine::GenerateResponse>> Make()
      const override {
    return std::make_unique<OpenEngineMapping>(metadata_);
  }

  OpenEngineMetadata metadata_;
};

std::string Started(int prompt_tokens, int sequences = 1) {
  return "started { request_id: 'mine' prompt_token_count: " + std::to_string(prompt_tokens) +
         " effective { num_sequences: " + std::to_string(sequences) + " } }";
}

TEST_F(OpenEngineGenerateTest, DecidesOnEveryField) {
  ExpectDecisionOnEveryField(
      Paths("kv.session.session_id kv.session.transfer_backend kv.session.endpoints.host "
            "kv.session.endpoints.port kv.session.endpoints.protocol kv.session.dp_rank "
            "kv.session.attributes_struct guided.backend media.modality media.url media.data_uri "
            "media.raw_bytes media.mime_type media.uuid lora_name extra "
            "response.prompt_candidates.token_ids.ids response.prompt_candidates.all "
            "response.output_candidates.token_ids.ids response.output_candidates.all"),
      {"response.prompt_logprob_start"},
      {{"extra", "extra { fields { key: 'speed' value { number_value: 1 } } }"},
       {"guided.structural_tag", std::string("guided { structural_tag: ") + kTag + " }"}},
      [](const std::string& path) -> std::string {
        if (path.starts_with("response.prompt_"))
          return "response { return_prompt_logprobs: true }";
        if (path.starts_with("response.output_"))
          return "response { return_output_logprobs: true }";
        return "response {}";
      });
}

TEST_F(OpenEngineGenerateTest, RefusesFieldsOfNewerClients) {
  ExpectUnknownFieldsAreRefused("sampling");
}

TEST_F(OpenEngineGenerateTest, TakesThePathOfTheModelForItsName) {
  for (const std::string name : {"tiny", "/models/tiny", "someone/tiny"}) {
    EXPECT_EQ(Read("model: '" + name + "'")->model(), "tiny") << name;
  }
  for (const std::string name : {"", "nottiny", "tiny/"}) {
    EXPECT_EQ(Read("model: '" + name + "'")->model(), name);
  }
}

TEST_F(OpenEngineGenerateTest, ReadsTheMetadata) {
  metadata_ = {.priority = {"-3"}};
  EXPECT_EQ(Read()->scheduling().priority(), -3);
  metadata_ = {.data_parallel_rank = {"0"}};
  EXPECT_THAT(Read(), IsOk());
  for (const char* value : {"x", "", "101", "-101", "1e1", "99999999999999999999"}) {
    metadata_ = {.priority = {value}};
    ExpectRefused("", "openengine-priority");
  }
  metadata_ = {.priority = {"1", "1"}};
  ExpectRefused("", "openengine-priority");
  for (const char* value : {"x", "1", "-1"}) {
    metadata_ = {.data_parallel_rank = {value}};
    ExpectRefused("", "openengine-target-dp-rank");
  }
}

TEST_F(OpenEngineGenerateTest, KeepsAllWithATopKOfMinusOne) {
  EXPECT_THAT(Read("sampling { top_k: -1 }")->sampling(), HasFields("top_k: 0"));
  ExpectRefused("sampling { top_k: -2 }", "sampling.top_k");
}

TEST_F(OpenEngineGenerateTest, RefusesAStopConditionWithoutOne) {
  ExpectRefused("stopping { conditions { stop_text: 'END' } conditions {} }",
                "stopping.conditions[1]");
}

TEST_F(OpenEngineGenerateTest, LeavesTextsOutWithoutDetokenization) {
  const auto detokenize = [](const std::string& value) {
    return "extra { fields { key: 'detokenize' value { " + value + " } } }";
  };
  EXPECT_THAT(Read(detokenize("bool_value: false"))->output(), HasFields("text: false"));
  ExpectRefused(detokenize("number_value: 0"), "extra.detokenize");
}

TEST_F(OpenEngineGenerateTest, RefusesWhatBelongsToLogprobsWithoutThem) {
  ExpectRefused("response { prompt_logprob_start: 1 }", "response.prompt_logprob_start");
  ExpectRefused("response { prompt_candidates { top_n: 1 } }", "response.prompt_candidates");
  ExpectRefused("response { return_prompt_logprobs: true prompt_candidates { top_n: 21 } }",
                "response.prompt_candidates.top_n");
}

TEST_F(OpenEngineGenerateTest, SendsThePromptOnceFromItsStart) {
  ASSERT_THAT(Read("response { return_prompt_logprobs: true prompt_logprob_start: 1 }"), IsOk());
  EXPECT_THAT(
      Write({Started(3), "prompt { tokens { id: 7 } }",
             R"(prompt { offset: 1 tokens { id: 8 bytes: 'a' logprob: -0.5 rank: 2 top { id: 9 } }
                                   tokens { id: 9 bytes: 'b' logprob: -0.5 rank: 2 } })"}),
      ElementsAre(IsProto(R"(
          request_id: 'mine'
          prompt {
            tokens { token_id: 8 token: 'a' logprob: -0.5 rank: 2 }
            tokens { token_id: 9 token: 'b' logprob: -0.5 rank: 2 } })")));
}

TEST_F(OpenEngineGenerateTest, SendsTokensWithTheirTextAndAlternatives) {
  ASSERT_THAT(Read("response { return_output_logprobs: true output_candidates { top_n: 2 } }"),
              IsOk());
  EXPECT_THAT(
      Write({Started(1), R"(tokens { text: "\342\202\254" tokens { id: 8 bytes: "\342\202"
                 logprob: -0.5 rank: 2
                 top { id: 9 logprob: -0.25 } top { id: 8 logprob: -1 } } })"}),
      ElementsAre(HasFields(R"(request_id: 'mine' token { output_index: 0 text: "\342\202\254"
          tokens { token_id: 8 token: "\357\277\275" logprob: -0.5 rank: 2
                   candidates { token_id: 9 logprob: -0.25 }
                   candidates { token_id: 8 logprob: -1 } } })")));
}

TEST_F(OpenEngineGenerateTest, SendsTheUsageWithTheLastEnd) {
  ASSERT_THAT(Read(), IsOk());
  EXPECT_THAT(Write({Started(4, 2),
                     "finished { output_index: 1 reason: FINISH_REASON_EOS eos_token_id: 256 }",
                     "finished { reason: FINISH_REASON_LENGTH }",
                     R"(summary { usage { prompt_tokens: 4 cached_prompt_tokens: 3
                                  completion_tokens: 5 } })"}),
              ElementsAre(IsProto(R"(
                  request_id: 'mine'
                  finished {
                    output_index: 1 reason: FINISH_REASON_STOP
                    stop_match { eos_token_id: 256 } })"),
                          IsProto(R"(
                              request_id: 'mine'
                              finished { output_index: 0 reason: FINISH_REASON_LENGTH }
                              usage {
                                prompt_tokens: 4 completion_tokens: 5 total_tokens: 9
                                cached_prompt_tokens: 3 })")));
}

TEST_F(OpenEngineGenerateTest, TellsTheTokensOfReasoningWhereItsMarkersAreText) {
  EXPECT_FALSE(Read()->output().regions());
  model_.chat_format = *FindChatFormat(nullptr, *tokenizer_, "think", "none");
  EXPECT_TRUE(Read()->output().regions());
  model_.chat_format.special_tokens = {"<think>"};
  EXPECT_FALSE(Read()->output().regions());
  EXPECT_THAT(Write({Started(4), "finished { reason: FINISH_REASON_LENGTH }",
                     "summary { usage { reasoning_tokens: 3 } }"}),
              ElementsAre(HasFields("usage { reasoning_tokens: 3 }")));
}

}  // namespace
}  // namespace tlm
