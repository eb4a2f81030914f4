#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "model/base/errors.h"
#include "tests/unit/server/rpc/generate_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

class GenerateHandlerTest : public GenerateTest {};

TEST_F(GenerateHandlerTest, SendsTheEventsInOrder) {
  request_.mutable_output()->set_timing(true);
  Start();
  EXPECT_EQ(engine_.WaitForRequest().prompt, ByteIds("hello"));
  PushStart();
  PushText("a");
  ReadToTheEndAfter();
  EXPECT_THAT(kinds_,
              ElementsAre(Event::kStarted, Event::kTokens, Event::kFinished, Event::kSummary));
  EXPECT_EQ(texts_[0], "a");
  EXPECT_THAT(summary_, HasFields(R"(usage { prompt_tokens: 5 completion_tokens: 1 }
      timing { first_token { nanos: 21000000 } total { nanos: 321000000 } })"));
  EXPECT_FALSE(summary_.has_resources());
}

TEST_F(GenerateHandlerTest, SummaryTellsTheCostWhenAsked) {
  request_.mutable_output()->set_resource_usage(true);
  Start();
  PushStart();
  PushText("ab");
  ReadToTheEndAfter();
  // Positions 0 .. 5, two rows of logits.
  EXPECT_EQ(summary_.resources().flops(), 6 * kLayerFlops + 21 * kAttentionFlops + 2 * kHeadFlops);
  EXPECT_EQ(summary_.resources().kv_blocks_peak(), 2u);
  EXPECT_EQ(summary_.resources().weight_bytes_read(), 3 * kStepWeightBytes);
  EXPECT_FALSE(summary_.has_timing());
}

TEST_F(GenerateHandlerTest, StartedEchoesWhatIsInEffect) {
  Merge(R"(request_id: "mine" sampling { top_p: 0.5 })", request_);
  Start();
  PushStart();
  v1::GenerateStarted started = Read().started();
  EXPECT_EQ(started.effective().seed(), engine_.WaitForRequest().generate()->sampling.seed);
  started.mutable_effective()->clear_seed();
  EXPECT_THAT(started, IsProto(R"(
      request_id: "mine" fingerprint: "f00d" prompt_token_count: 5 queue_time { nanos: 5000000 }
      effective {
        top_p: 0.5 temperature: 1 top_k: 0 min_p: 0 typical_p: 1 repetition_penalty: 1
        presence_penalty: 0 frequency_penalty: 0 num_sequences: 1 })"));
  ReadToTheEndAfter();
}

TEST_F(GenerateHandlerTest, SeedsAndIdsLeftToTheServerDiffer) {
  request_.mutable_sampling()->Clear();
  Start(0);
  const Request& first = engine_.WaitForRequest(0);
  const auto first_reader = std::move(reader_);
  const auto first_context = std::move(context_);
  Start(1);
  const Request& second = engine_.WaitForRequest(1);
  EXPECT_NE(first.id, second.id);
  EXPECT_NE(first.generate()->sampling.seed, second.generate()->sampling.seed);
}

TEST_F(GenerateHandlerTest, TokensGatherWhileTheReaderIsSlow) {
  Start();
  // Not read: the write of `started` stays in flight.
  PushStart();
  for (int i = 0; i < 50; ++i) PushText("ab");
  ReadToTheEndAfter();
  EXPECT_THAT(kinds_,
              ElementsAre(Event::kStarted, Event::kTokens, Event::kFinished, Event::kSummary));
  EXPECT_EQ(texts_[0].size(), 100u);
}

TEST_F(GenerateHandlerTest, AStopStringEndsTheOutputAndLetsGoOfTheSequence) {
  request_.mutable_stopping()->add_stop_strings("STOP");
  request_.mutable_output()->set_token_ids(true);
  Start();
  PushStart();
  PushText("one ST");
  PushText("OP two");
  engine_.WaitUntilDetached(*stream_);
  ReadToTheEndAfter(FailedWith(Cancelled("detached")));
  EXPECT_EQ(texts_[0], "one ");
  EXPECT_EQ(finished_.front().reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(finished_.front().stop_string(), "STOP");
  EXPECT_EQ(summary_.usage().completion_tokens(), 8u);
}

TEST_F(GenerateHandlerTest, AStopStringIsFoundThoughTheReaderIsSlow) {
  request_.mutable_stopping()->add_stop_strings("STOP");
  Start();
  PushStart();
  PushText("STOP");
  // Nothing was read yet, and still the engine need not go on.
  engine_.WaitUntilDetached(*stream_);
  ReadToTheEndAfter(FailedWith(Cancelled("detached")));
  EXPECT_EQ(texts_[0], "");
}

TEST_F(GenerateHandlerTest, TellsHowAnOutputEnded) {
  request_.mutable_stopping()->add_stop_token_ids('!');
  const struct {
    std::vector<int32_t> ids;
    StreamEnd end;
    const char* finished;
    const char* text;
  } kCases[] = {
      {{'a'}, EndedWith(FinishReason::kLength), "reason: FINISH_REASON_LENGTH", "a"},
      {{'a'}, EndedWith(FinishReason::kTimeLimit), "reason: FINISH_REASON_TIME_LIMIT", "a"},
      {{'a'}, EndedWith(FinishReason::kConstraint), "reason: FINISH_REASON_CONSTRAINT", "a"},
      {{'a'},
       EndedWith(FinishReason::kConstraintComplete),
       "reason: FINISH_REASON_CONSTRAINT_COMPLETE",
       "a"},
      {{'a', kEosId},
       EndedWith(FinishReason::kEos, kEosId),
       "reason: FINISH_REASON_EOS eos_token_id: 256",
       "a"},
      {{'a', '!'},
       EndedWith(FinishReason::kStopToken, '!'),
       "reason: FINISH_REASON_STOP stop_token_id: 33",
       "a"},
  };
  for (const auto& [ids, end, finished, text] : kCases) {
    SCOPED_TRACE(finished);
    Start(static_cast<size_t>(engine_.submitted()));
    PushStart();
    for (const int32_t id : ids) Push(Token(id));
    ReadToTheEndAfter(end);
    EXPECT_EQ(texts_[0], text);
    EXPECT_EQ(finished_.front().completion_tokens(), ids.size());
    finished_.front().clear_completion_tokens();
    EXPECT_THAT(finished_.front(), IsProto(finished));
    EXPECT_EQ(summary_.usage().completion_tokens(), ids.size());
  }
}

TEST_F(GenerateHandlerTest, AFaultAfterTheStartEndsWithItsStatusAndThePartialUsage) {
  Start();
  PushStart();
  PushText("abc");
  PushEnd(FailedWith(DataLoss("non-finite logits")));
  const grpc::Status status = ReadToTheEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(status.error_message(), "non-finite logits");
  // What there was is not lost.
  EXPECT_EQ(texts_[0], "abc");
  EXPECT_EQ(Trailer("tlm-prompt-tokens"), "5");
  EXPECT_EQ(Trailer("tlm-completion-tokens"), "3");
  v1::Usage usage;
  ASSERT_TRUE(usage.ParseFromString(Trailer("tlm-usage-bin")));
  EXPECT_EQ(usage.completion_tokens(), 3u);
}

TEST_F(GenerateHandlerTest, AnActiveIdIsRefusedAndUsableAfterwards) {
  request_.set_request_id("mine");
  Start(0);
  const auto first_reader = std::move(reader_);
  const auto first_context = std::move(context_);
  const auto first_stream = stream_;
  EXPECT_EQ(Refusal().error_code(), grpc::StatusCode::ALREADY_EXISTS);
  first_stream->PushStart({});
  first_stream->PushEnd(EndedWith(FinishReason::kLength));
  FakeEngine::Deliver(*first_stream);
  v1::GenerateResponse event;
  while (first_reader->Read(&event)) {
  }
  EXPECT_TRUE(first_reader->Finish().ok());
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
  Start(1);
}

class GenerateWithoutTokenizerTest : public RpcTest {
 protected:
  GenerateWithoutTokenizerTest() : RpcTest(/*with_tokenizer=*/false) {}
};

TEST_F(GenerateWithoutTokenizerTest, ServesTokenIds) {
  v1::GenerateRequest request;
  request.mutable_prompt_token_ids()->add_ids(7);
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, request);
  TokenStream& stream = *engine_.WaitForRequest().stream;
  stream.PushStart({});
  stream.PushToken(Token(299));
  stream.PushEnd(EndedWith(FinishReason::kLength));
  FakeEngine::Deliver(stream);
  v1::GenerateResponse event;
  std::vector<uint32_t> ids;
  while (reader->Read(&event)) {
    EXPECT_EQ(event.tokens().text(), "");
    for (const v1::TokenInfo& info : event.tokens().tokens()) ids.push_back(info.id());
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_THAT(ids, ElementsAre(299u));
}

// gRPC's threads do not read its prompt themselves.
class LongPromptTest : public GenerateTest {
 protected:
  LongPromptTest() : GenerateTest(/*with_tokenizer=*/true, /*max_context=*/8192) {}
};

TEST_F(LongPromptTest, WaitsWhileAShortOneIsQueued) {
  constexpr int64_t kBytes = 5000;
  request_.set_prompt(std::string(kBytes, 'x'));
  {
    const BusyReaders busy(text_pools_, kBytes);
    Call();
    busy.WaitUntilOthersWait();
    EXPECT_EQ(engine_.submitted(), 0);
    grpc::ClientContext context;
    v1::GenerateRequest few;
    few.set_prompt("few");
    const auto reader = stub_->Generate(&context, few);
    EXPECT_EQ(engine_.WaitForRequest(0).prompt.size(), 4u);
    context.TryCancel();
  }
  const Request& queued = engine_.WaitForRequest(1);
  EXPECT_EQ(queued.prompt.size(), static_cast<size_t>(kBytes));
  stream_ = queued.stream;
  streams_ = {stream_};
  PushStart();
  PushText("ab");
  ReadToTheEndAfter();
  EXPECT_EQ(text_pools_.waiting_bytes(), 0);
}

}  // namespace
}  // namespace tlm
