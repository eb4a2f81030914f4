#include "server/rpc/facades/vllm/vllm_generate.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "server/rpc/facades/vllm/tokenizer_archive.h"
#include "tests/unit/server/rpc/facades/every_field.h"
#include "tests/unit/server/rpc/test_model.h"

namespace tlm {
namespace {

using google::protobuf::util::MessageDifferencer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

vllm_engine::GenerateRequest Basic() {
  vllm_engine::GenerateRequest request;
  request.mutable_tokenized()->add_input_ids(7);
  request.mutable_sampling_params();
  return request;
}

absl::StatusOr<v1::GenerateRequest> Mapped(vllm_engine::GenerateRequest request) {
  const ServedModel model = MakeServedModel(nullptr);
  VllmGenerateMapping mapping;
  v1::GenerateRequest generate;
  const absl::Status status = mapping.Read(request, model, generate);
  if (!status.ok()) return status;
  return generate;
}

// Every field changes the request of tlm.v1, or is refused by name, or is one of these, which the
// protocol's file explains.
TEST(VllmGenerateTest, EveryFieldIsMappedOrRefusedByName) {
  const std::string params = "sampling_params.";
  const std::set<std::string> without_effect = {"request_id",
                                                "tokenized.original_text",
                                                params + "skip_special_tokens",
                                                params + "spaces_between_special_tokens",
                                                params + "include_stop_str_in_output",
                                                params + "grammar_from_first_token"};
  const auto baseline = Mapped(Basic());
  ASSERT_TRUE(baseline.ok());
  for (const std::string& path : FieldPaths<vllm_engine::GenerateRequest>()) {
    SCOPED_TRACE(path);
    vllm_engine::GenerateRequest request = Basic();
    if (path == params + "n") {
      request.mutable_sampling_params()->set_n(2);  // 1 is what it is without
    } else {
      SetField(path, request);
    }
    const auto mapped = Mapped(request);
    if (without_effect.contains(path)) {
      EXPECT_TRUE(mapped.ok() && MessageDifferencer::Equals(*mapped, *baseline));
    } else if (mapped.ok()) {
      EXPECT_FALSE(MessageDifferencer::Equals(*mapped, *baseline));
    } else {
      const size_t name = path.rfind('.') + 1;  // 0 of a field of the request itself
      EXPECT_THAT(std::string(mapped.status().message()), HasSubstr(path.substr(name)));
    }
  }
}

TEST(VllmGenerateTest, MapsValues) {
  vllm_engine::GenerateRequest request = Basic();
  auto& params = *request.mutable_sampling_params();
  params.set_temperature(0);
  params.set_top_k(5);
  params.set_max_tokens(9);
  params.set_seed(-1);
  params.add_stop("end");
  params.set_truncate_prompt_tokens(-1);
  const auto mapped = Mapped(request);
  ASSERT_TRUE(mapped.ok());
  EXPECT_THAT(mapped->prompt_token_ids().ids(), ElementsAre(7));
  EXPECT_TRUE(mapped->sampling().has_temperature());
  EXPECT_EQ(mapped->sampling().top_k(), 5u);
  EXPECT_FALSE(mapped->sampling().has_top_p());
  EXPECT_FALSE(mapped->sampling().has_repetition_penalty());
  EXPECT_EQ(mapped->sampling().num_sequences(), 1u);
  EXPECT_EQ(mapped->sampling().seed(), ~uint64_t{0});
  EXPECT_EQ(mapped->stopping().max_new_tokens(), 9u);
  EXPECT_EQ(mapped->truncate_prompt_tokens(), 63u);
  EXPECT_TRUE(mapped->output().final_only());
  EXPECT_TRUE(mapped->stopping().include_stop_in_output());
}

TEST(VllmGenerateTest, RefusesByName) {
  const auto error = [](auto change) {
    vllm_engine::GenerateRequest request = Basic();
    change(request);
    return std::string(Mapped(request).status().message());
  };
  using Message = vllm_engine::GenerateRequest;
  EXPECT_THAT(error([](Message& m) { m.clear_input(); }), HasSubstr("input is missing"));
  EXPECT_THAT(error([](Message& m) { m.mutable_sampling_params()->set_logprobs(-1); }),
              HasSubstr("sampling_params.logprobs is -1, the range is [0, 20]"));
  EXPECT_THAT(error([](Message& m) { m.mutable_sampling_params()->set_truncate_prompt_tokens(0); }),
              HasSubstr("truncate_prompt_tokens is 0"));
  EXPECT_THAT(
      error([](Message& m) { (*m.mutable_sampling_params()->mutable_logit_bias())[-4] = 1; }),
      HasSubstr("names token -4"));
  EXPECT_THAT(error([](Message& m) {
                auto& params = *m.mutable_sampling_params();
                params.GetReflection()->MutableUnknownFields(&params)->AddVarint(99, 1);
              }),
              HasSubstr("sampling_params.99 is no field of vllm.grpc.engine.SamplingParams"));
}

v1::GenerateResponse Started() {
  v1::GenerateResponse event;
  event.mutable_started()->set_prompt_token_count(4);
  event.mutable_started()->set_cached_prompt_tokens(2);
  return event;
}

v1::GenerateResponse Tokens(uint32_t output, const std::vector<uint32_t>& ids) {
  v1::GenerateResponse event;
  event.mutable_tokens()->set_output_index(output);
  for (const uint32_t id : ids) {
    v1::TokenInfo& token = *event.mutable_tokens()->add_tokens();
    token.set_id(id);
    token.set_logprob(-0.5f);
    for (uint32_t rank = 1; rank <= 2; ++rank) {
      v1::TopToken& top = *token.add_top();
      top.set_id(100 + rank);
      top.set_logprob(-0.1f * static_cast<float>(rank));
    }
  }
  return event;
}

v1::GenerateResponse Finished(uint32_t output, v1::FinishReason reason) {
  v1::GenerateResponse event;
  event.mutable_finished()->set_output_index(output);
  event.mutable_finished()->set_reason(reason);
  event.mutable_finished()->set_completion_tokens(3);
  return event;
}

// The messages of a call with these parameters and events.
std::vector<vllm_engine::GenerateResponse> Answer(vllm_engine::GenerateRequest request,
                                                  std::vector<v1::GenerateResponse> events) {
  const ServedModel model = MakeServedModel(nullptr);
  VllmGenerateMapping mapping;
  v1::GenerateRequest generate;
  EXPECT_TRUE(mapping.Read(request, model, generate).ok());
  std::vector<vllm_engine::GenerateResponse> messages;
  for (v1::GenerateResponse& event : events) {
    vllm_engine::GenerateResponse message;
    if (mapping.Write(event, message)) messages.push_back(message);
  }
  return messages;
}

TEST(VllmGenerateTest, StreamsChunksAndOneCompleteForEachOutput) {
  vllm_engine::GenerateRequest request = Basic();
  request.set_stream(true);
  request.mutable_sampling_params()->set_n(2);
  v1::GenerateResponse stopped = Finished(0, v1::FINISH_REASON_STOP);
  stopped.mutable_finished()->set_stop_string("end");
  const auto messages =
      Answer(request, {Started(), Tokens(0, {1, 2}), Tokens(1, {3}), Tokens(0, {4}), stopped,
                       Finished(1, v1::FINISH_REASON_LENGTH)});
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_THAT(messages[0].chunk().token_ids(), ElementsAre(1, 2));
  EXPECT_EQ(messages[0].chunk().completion_tokens(), 2u);
  EXPECT_EQ(messages[0].chunk().prompt_tokens(), 4u);
  EXPECT_EQ(messages[0].chunk().cached_tokens(), 2u);
  EXPECT_FALSE(messages[0].chunk().has_output_logprobs());
  EXPECT_EQ(messages[1].chunk().index(), 1u);
  EXPECT_THAT(messages[2].chunk().token_ids(), ElementsAre(4));
  EXPECT_THAT(messages[3].complete().output_ids(), IsEmpty());
  EXPECT_EQ(messages[3].complete().finish_reason(), "stop");
  EXPECT_EQ(messages[3].complete().matched_stop_str(), "end");
  EXPECT_EQ(messages[3].complete().completion_tokens(), 3u);
  EXPECT_EQ(messages[4].complete().index(), 1u);
  EXPECT_EQ(messages[4].complete().finish_reason(), "length");
}

TEST(VllmGenerateTest, AnswersWholeOutputsWithLogprobs) {
  vllm_engine::GenerateRequest request = Basic();
  request.mutable_sampling_params()->set_logprobs(1);
  request.mutable_sampling_params()->set_prompt_logprobs(2);
  v1::GenerateResponse prompt;
  prompt.mutable_prompt()->add_tokens()->set_id(7);
  *prompt.mutable_prompt()->add_tokens() = Tokens(0, {8}).tokens().tokens(0);
  const auto messages =
      Answer(request, {Started(), prompt, Tokens(0, {1, 2}), Finished(0, v1::FINISH_REASON_EOS)});
  ASSERT_EQ(messages.size(), 1u);
  const vllm_engine::GenerateComplete& complete = messages[0].complete();
  EXPECT_THAT(complete.output_ids(), ElementsAre(1, 2));
  EXPECT_THAT(complete.output_logprobs().token_ids(), ElementsAre(1, 2));
  EXPECT_THAT(complete.output_logprobs().token_logprobs(), ElementsAre(-0.5f, -0.5f));
  ASSERT_EQ(complete.output_logprobs().top_logprobs_size(), 2);
  EXPECT_THAT(complete.output_logprobs().top_logprobs(0).token_ids(), ElementsAre(101));
  EXPECT_THAT(complete.input_logprobs().token_ids(), ElementsAre(7, 8));
  EXPECT_FALSE(complete.input_logprobs().token_logprobs(0).has_value());
  EXPECT_EQ(complete.input_logprobs().token_logprobs(1).value(), -0.5f);
  EXPECT_THAT(complete.input_logprobs().top_logprobs(1).token_ids(), ElementsAre(101, 102));
  EXPECT_EQ(complete.finish_reason(), "stop");
  EXPECT_EQ(complete.matched_stop_case(), vllm_engine::GenerateComplete::MATCHED_STOP_NOT_SET);
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
