#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
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
  PushEnd(EndedWith(FinishReason::kLength));
  EXPECT_TRUE(ReadToTheEnd().ok());
  EXPECT_THAT(kinds_,
              ElementsAre(Event::kStarted, Event::kTokens, Event::kFinished, Event::kSummary));
  EXPECT_EQ(texts_[0], "a");
  EXPECT_EQ(finished_.front().reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(finished_.front().matched_case(), v1::GenerateFinished::MATCHED_NOT_SET);
  EXPECT_EQ(summary_.usage().prompt_tokens(), 5u);
  EXPECT_EQ(summary_.usage().completion_tokens(), 1u);
  EXPECT_EQ(summary_.timing().first_token().nanos(), 21'000'000);
  EXPECT_EQ(summary_.timing().total().nanos(), 321'000'000);
  EXPECT_FALSE(summary_.has_resources());
}

TEST_F(GenerateHandlerTest, SummaryTellsTheCostWhenAsked) {
  request_.mutable_output()->set_resource_usage(true);
  Start();
  PushStart();
  PushText("ab");
  PushEnd(EndedWith(FinishReason::kLength));
  EXPECT_TRUE(ReadToTheEnd().ok());
  // One layer, d_model 8, q 8, kv 4, d_ff 16, vocabulary 300; positions 0 .. 5, two heads' rows.
  const uint64_t layer = 2 * (8 * 16 + 8 * 8 + 3 * 8 * 16);
  const uint64_t attention = 2 * 2 * 8;
  EXPECT_EQ(summary_.resources().flops(), 6 * layer + 21 * attention + 2 * (2 * 8 * 300));
  EXPECT_EQ(summary_.resources().kv_blocks_peak(), 2u);
  EXPECT_EQ(summary_.resources().weight_bytes_read(), 3 * kStepWeightBytes);
  EXPECT_FALSE(summary_.has_timing());
}

TEST_F(GenerateHandlerTest, StartedEchoesWhatIsInEffect) {
  request_.set_request_id("mine");
  request_.mutable_sampling()->set_top_p(0.5f);
  Start();
  PushStart();
  const v1::GenerateStarted started = Read().started();
  EXPECT_EQ(started.request_id(), "mine");
  EXPECT_EQ(started.effective().top_p(), 0.5f);
  EXPECT_EQ(started.effective().temperature(), 1.0f);
  EXPECT_TRUE(started.effective().has_seed());
  EXPECT_EQ(started.effective().seed(), engine_.WaitForRequest().generate()->sampling.seed);
  EXPECT_TRUE(started.effective().has_top_k());
  EXPECT_TRUE(started.effective().has_repetition_penalty());
  EXPECT_EQ(started.effective().num_sequences(), 1u);
  EXPECT_EQ(started.prompt_token_count(), 5u);
  EXPECT_EQ(started.fingerprint(), "f00d");
  EXPECT_EQ(started.queue_time().nanos(), 5'000'000);
  PushEnd(EndedWith(FinishReason::kLength));
  EXPECT_TRUE(ReadToTheEnd().ok());
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
  PushEnd(EndedWith(FinishReason::kLength));
  EXPECT_TRUE(ReadToTheEnd().ok());
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
  PushEnd(FailedWith(Cancelled("detached")));
  EXPECT_TRUE(ReadToTheEnd().ok());
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
  PushEnd(FailedWith(Cancelled("detached")));
  EXPECT_TRUE(ReadToTheEnd().ok());
  EXPECT_EQ(texts_[0], "");
}

TEST_F(GenerateHandlerTest, FinishedNamesTheMatchedEosToken) {
  Start();
  PushStart();
  stream_->PushToken(Token('a'));
  stream_->PushToken(Token(kEosId));
  PushEnd(EndedWith(FinishReason::kEos, kEosId));
  EXPECT_TRUE(ReadToTheEnd().ok());
  EXPECT_EQ(texts_[0], "a");
  EXPECT_EQ(finished_.front().reason(), v1::FINISH_REASON_EOS);
  EXPECT_EQ(finished_.front().eos_token_id(), static_cast<uint32_t>(kEosId));
  EXPECT_EQ(summary_.usage().completion_tokens(), 2u);
}

TEST_F(GenerateHandlerTest, FinishedNamesTheMatchedStopToken) {
  request_.mutable_stopping()->add_stop_token_ids('!');
  Start();
  PushStart();
  stream_->PushToken(Token('!'));
  PushEnd(EndedWith(FinishReason::kStopToken, '!'));
  EXPECT_TRUE(ReadToTheEnd().ok());
  EXPECT_EQ(finished_.front().reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(finished_.front().stop_token_id(), static_cast<uint32_t>('!'));
}

TEST_F(GenerateHandlerTest, CancelLetsGoOfTheSequenceAndOfTheId) {
  request_.set_request_id("mine");
  Start();
  PushStart();
  Read();
  context_->TryCancel();
  engine_.WaitUntilDetached(*stream_);
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
  // Results of a call that is over are ignored.
  PushText("late");
  PushEnd(FailedWith(Cancelled("detached")));
  Start(1);
}

TEST_F(GenerateHandlerTest, CancelBeforeTheFirstStep) {
  Start();
  context_->TryCancel();
  engine_.WaitUntilDetached(*stream_);
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::CANCELLED);
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

TEST_F(GenerateHandlerTest, ARefusedRequestNeverStarts) {
  engine_.set_submit_status(WithRetryAfter(
      WithReason(ResourceExhausted("8 requests wait"), "QUEUE_FULL"), absl::Seconds(3)));
  context_ = std::make_unique<grpc::ClientContext>();
  reader_ = stub_->Generate(context_.get(), request_);
  const grpc::Status status = ReadToTheEnd();
  EXPECT_THAT(kinds_, ElementsAre());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(status), "QUEUE_FULL");
  EXPECT_EQ(DetailOf<google::rpc::RetryInfo>(status).retry_delay().seconds(), 3);
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

TEST_F(GenerateHandlerTest, AnInvalidFieldIsNamed) {
  request_.mutable_sampling()->set_top_p(0.0f);
  context_ = std::make_unique<grpc::ClientContext>();
  reader_ = stub_->Generate(context_.get(), request_);
  const grpc::Status status = ReadToTheEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad_request = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_EQ(bad_request.field_violations_size(), 1);
  EXPECT_EQ(bad_request.field_violations(0).field(), "sampling.top_p");
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(GenerateHandlerTest, AnActiveIdIsRefusedAndUsableAfterwards) {
  request_.set_request_id("mine");
  Start(0);
  const auto first_reader = std::move(reader_);
  const auto first_context = std::move(context_);
  const auto first_stream = stream_;
  context_ = std::make_unique<grpc::ClientContext>();
  reader_ = stub_->Generate(context_.get(), request_);
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::ALREADY_EXISTS);
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

TEST_F(GenerateHandlerTest, TheCallsDeadlineReachesTheEngine) {
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  const absl::Time deadline = Clock::Monotonic()->Now() + absl::Hours(1);
  reader_ = stub_->Generate(context_.get(), request_);
  const absl::Time seen = engine_.WaitForRequest().deadline;
  EXPECT_LT(absl::AbsDuration(seen - deadline), absl::Minutes(1));
  const auto first_reader = std::move(reader_);
  const auto first_context = std::move(context_);
  Start(1);
  EXPECT_EQ(engine_.WaitForRequest(1).deadline, absl::InfiniteFuture());
}

TEST_F(GenerateHandlerTest, APassedDeadlineLetsGoOfTheSequence) {
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  reader_ = stub_->Generate(context_.get(), request_);
  const grpc::Status status = ReadToTheEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

TEST_F(GenerateHandlerTest, ADrainingServerSaysSo) {
  admission_.Drain();
  context_ = std::make_unique<grpc::ClientContext>();
  reader_ = stub_->Generate(context_.get(), request_);
  const grpc::Status status = ReadToTheEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonIn(status), "DRAINING");
}

// Wake-ups, reads and cancellations race in every order; nothing may be used after its end.
TEST_F(GenerateHandlerTest, SurvivesCancellationAtAnyMoment) {
  for (size_t round = 0; round < 200; ++round) {
    Start(round);
    std::thread engine_side([&, stream = stream_] {
      stream->PushStart({});
      FakeEngine::Deliver(*stream);
      for (int i = 0; i < 10; ++i) {
        stream->PushToken(Token('a'));
        FakeEngine::Deliver(*stream);
      }
      stream->PushEnd(EndedWith(FinishReason::kLength));
      FakeEngine::Deliver(*stream);
    });
    v1::GenerateResponse event;
    for (size_t i = 0; i < round % 5; ++i) reader_->Read(&event);
    context_->TryCancel();
    ReadToTheEnd();
    engine_side.join();
  }
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
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

// A prompt that gRPC's threads do not read themselves.
class LongPromptTest : public GenerateTest {
 protected:
  static constexpr int64_t kBytes = 5000;

  LongPromptTest() : GenerateTest(/*with_tokenizer=*/true, /*max_context=*/8192) {
    request_.set_prompt(std::string(kBytes, 'x'));
    request_.set_request_id("long");
  }
  // Begins the call, which waits to be read.
  void StartWaiting(const BusyReaders& busy) {
    context_ = std::make_unique<grpc::ClientContext>();
    reader_ = stub_->Generate(context_.get(), request_);
    busy.WaitUntilOthersWait();
  }
};

TEST_F(LongPromptTest, WaitsWhileAShortOneIsQueued) {
  {
    const BusyReaders busy(text_pools_, kBytes);
    StartWaiting(busy);
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
  PushEnd(EndedWith(FinishReason::kLength));
  EXPECT_TRUE(ReadToTheEnd().ok());
  EXPECT_EQ(text_pools_.waiting_bytes(), 0);
}

TEST_F(LongPromptTest, IsCancelledOrAbortedWhileItWaits) {
  const BusyReaders busy(text_pools_, kBytes);
  StartWaiting(busy);
  context_->TryCancel();
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::CANCELLED);
  busy.WaitUntilOthersWait(false);
  StartWaiting(busy);
  EXPECT_EQ(calls_.Abort("long", std::nullopt, absl::AbortedError("enough")), 1);
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::ABORTED);
  busy.WaitUntilOthersWait(false);
  EXPECT_EQ(engine_.submitted(), 0);
}

TEST_F(LongPromptTest, IsRefusedAtOnceWhenTheEngineIsFull) {
  const BusyReaders busy(text_pools_, kBytes);
  engine_.set_open_status(absl::ResourceExhaustedError("full"));
  context_ = std::make_unique<grpc::ClientContext>();
  reader_ = stub_->Generate(context_.get(), request_);
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace tlm
