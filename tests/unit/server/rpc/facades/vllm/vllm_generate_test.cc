#include "server/rpc/facades/vllm/vllm_generate.h"

#include <memory>
#include <string>

#include "server/rpc/facades/vllm/tokenizer_archive.h"
#include "tests/unit/server/rpc/facades/mapping_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

class VllmGenerateTest
    : public MappingTest<vllm_engine::GenerateRequest, vllm_engine::GenerateResponse> {
 protected:
  VllmGenerateTest() : MappingTest("tokenized { input_ids: 7 } sampling_params {}") {}

  std::unique_ptr<GenerateMapping<vllm_engine::GenerateRequest, vllm_engine::GenerateResponse>>
  Make() const override {
    return std::make_unique<VllmGenerateMapping>();
  }
};

// The protocol's file explains the fields without effect.
TEST_F(VllmGenerateTest, DecidesOnEveryField) {
  ExpectDecisionOnEveryField(
      {"kv_transfer_params", "kv_transfer_params_json", "mm_inputs", "extra_mm_inputs",
       "media_refs"},
      {"request_id", "tokenized.original_text", "data_parallel_rank",
       "sampling_params.skip_special_tokens", "sampling_params.spaces_between_special_tokens",
       "sampling_params.include_stop_str_in_output", "sampling_params.grammar_from_first_token"},
      {{"data_parallel_rank", "data_parallel_rank: 0"},
       {"sampling_params.n", "sampling_params { n: 2 }"},  // 1 is what it is without
       {"sampling_params.structural_tag",
        std::string("sampling_params { structural_tag: ") + kTag + " }"}},
      [](const std::string&) { return ""; });
}

TEST_F(VllmGenerateTest, RefusesFieldsOfNewerClients) {
  ExpectUnknownFieldsAreRefused("sampling_params");
}

TEST_F(VllmGenerateTest, MapsValues) {
  const absl::StatusOr<v1::GenerateRequest> mapped = Read(R"(sampling_params {
      temperature: 0 top_k: 5 max_tokens: 9 seed: -1 stop: "end" truncate_prompt_tokens: -1 })");
  ASSERT_THAT(mapped, IsOk());
  EXPECT_THAT(*mapped, IsProto(R"(
      prompt_token_ids { ids: 7 } truncate_prompt_tokens: 63
      sampling {
        temperature: 0 top_k: 5 num_sequences: 1 seed: 18446744073709551615
        frequency_penalty: 0 presence_penalty: 0 }
      stopping { max_new_tokens: 9 stop_strings: "end" include_stop_in_output: true }
      output { text: false token_ids: true logprobs: false final_only: true })"));
}

TEST_F(VllmGenerateTest, RefusesByName) {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  vllm_engine::GenerateRequest without_input;
  EXPECT_THAT(Read(without_input), StatusIs(kInvalid, ::testing::StartsWith("input is missing")));
  ExpectRefused("data_parallel_rank: 1", "data_parallel_rank");
  ExpectRefused("sampling_params { logprobs: -1 }", "sampling_params.logprobs", kInvalid,
                "sampling_params.logprobs is -1, the range is [0, 20]");
  ExpectRefused("sampling_params { truncate_prompt_tokens: 0 }",
                "sampling_params.truncate_prompt_tokens", kInvalid, "truncate_prompt_tokens is 0");
  ExpectRefused("sampling_params { logit_bias { key: -4 value: 1 } }", "sampling_params.logit_bias",
                kInvalid, "names token -4");
}

constexpr char kStarted[] = "started { prompt_token_count: 4 cached_prompt_tokens: 2 }";

// A token with two alternatives.
std::string Token(int id) {
  return " tokens { id: " + std::to_string(id) +
         " logprob: -0.5 top { id: 101 logprob: -0.25 } top { id: 102 logprob: -1 } }";
}

TEST_F(VllmGenerateTest, StreamsChunksAndOneCompleteForEachOutput) {
  ASSERT_THAT(Read("stream: true sampling_params { n: 2 }"), IsOk());
  EXPECT_THAT(
      Write({kStarted, "tokens {" + Token(1) + Token(2) + " }",
             "tokens { output_index: 1" + Token(3) + " }", "tokens {" + Token(4) + " }",
             "finished { reason: FINISH_REASON_STOP completion_tokens: 3 stop_string: 'end' }",
             "finished { output_index: 1 reason: FINISH_REASON_LENGTH completion_tokens: 3 }"}),
      ElementsAre(IsProto(R"(
          chunk { token_ids: [1, 2] completion_tokens: 2 prompt_tokens: 4 cached_tokens: 2 })"),
                  IsProto(R"(
                      chunk {
                        token_ids: 3 completion_tokens: 1 index: 1 prompt_tokens: 4
                        cached_tokens: 2 })"),
                  IsProto(R"(
                      chunk {
                        token_ids: 4 completion_tokens: 1 prompt_tokens: 4 cached_tokens: 2 })"),
                  IsProto(R"(
                      complete {
                        finish_reason: "stop" matched_stop_str: "end" completion_tokens: 3
                        prompt_tokens: 4 cached_tokens: 2 })"),
                  IsProto(R"(
                      complete {
                        finish_reason: "length" index: 1 completion_tokens: 3 prompt_tokens: 4
                        cached_tokens: 2 })")));
}

TEST_F(VllmGenerateTest, AnswersWholeOutputsWithLogprobs) {
  ASSERT_THAT(Read("sampling_params { logprobs: 1 prompt_logprobs: 2 }"), IsOk());
  EXPECT_THAT(Write({kStarted, "prompt { tokens { id: 7 }" + Token(8) + " }",
                     "tokens {" + Token(1) + Token(2) + " }",
                     "finished { reason: FINISH_REASON_EOS completion_tokens: 3 }"}),
              ElementsAre(IsProto(R"(
                  complete {
                    output_ids: [1, 2] prompt_tokens: 4 cached_tokens: 2 completion_tokens: 3
                    finish_reason: "stop"
                    output_logprobs {
                      token_ids: [1, 2] token_logprobs: [-0.5, -0.5]
                      top_logprobs { token_ids: 101 values: -0.25 }
                      top_logprobs { token_ids: 101 values: -0.25 } }
                    input_logprobs {
                      token_ids: [7, 8] token_logprobs {} token_logprobs { value: -0.5 }
                      top_logprobs {}
                      top_logprobs { token_ids: [101, 102] values: [-0.25, -1] } } })")));
}

TEST(TokenizerArchiveTest, IsSharedWhileItIsReadAndMadeAnewLater) {
  ServedModel model = MakeServedModel(nullptr);
  TokenizerArchives archives;
  EXPECT_EQ(archives.Get(model).status().code(), absl::StatusCode::kFailedPrecondition);
  int made = 0;
  model.tokenizer_files = [&made]() -> absl::StatusOr<std::vector<ModelFile>> {
    ++made;
    return std::vector<ModelFile>{{"tokenizer.json", "{}"}, {"chat_template.jinja", "hi"}};
  };
  auto first = archives.Get(model);
  auto second = archives.Get(model);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ((*first)->zip.substr(0, 4), "PK\x03\x04");
  EXPECT_EQ((*first)->sha256.size(), 64u);
  const std::string sha256 = (*first)->sha256;
  first = absl::UnknownError("");
  second = absl::UnknownError("");
  const auto third = archives.Get(model);
  ASSERT_TRUE(third.ok());
  EXPECT_EQ((*third)->sha256, sha256);
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace tlm
