#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Event = v1::GenerateResponse::EventCase;

StreamEnd EndedWith(FinishReason reason, int32_t matched = -1) {
  StreamEnd end;
  end.reason = reason;
  end.matched_token = matched;
  end.queue_time = absl::Milliseconds(1);
  end.prefill_time = absl::Milliseconds(20);
  end.decode_time = absl::Milliseconds(300);
  end.kv_blocks_peak = 2;
  end.steps = 3;
  return end;
}

StreamEnd FailedWith(absl::Status status) {
  StreamEnd end;
  end.status = std::move(status);
  return end;
}

SampledToken Token(int32_t id) {
  SampledToken token;
  token.id = id;
  return token;
}

class GenerateHandlerTest : public RpcTest {
 protected:
  GenerateHandlerTest() {
    request_.set_prompt("hello");
    request_.set_add_special_tokens(false);
  }

  // Starts the call and waits until it is queued.
  void Start(size_t index = 0) {
    context_ = std::make_unique<grpc::ClientContext>();
    reader_ = stub_->Generate(context_.get(), request_);
    stream_ = engine_.WaitForRequest(index).stream;
  }
  void PushStart() {
    stream_->PushStart({.queue_time = absl::Milliseconds(5), .cached_prompt_tokens = 0});
    FakeEngine::Deliver(*stream_);
  }
  void PushText(std::string_view text) {
    for (const int32_t id : ByteIds(text)) stream_->PushToken(Token(id));
    FakeEngine::Deliver(*stream_);
  }
  void PushEnd(StreamEnd end) {
    stream_->PushEnd(std::move(end));
    FakeEngine::Deliver(*stream_);
  }
  v1::GenerateResponse Read() {
    v1::GenerateResponse event;
    EXPECT_TRUE(reader_->Read(&event));
    return event;
  }
  // Reads the rest of the stream, of which it keeps the kinds and the text.
  grpc::Status ReadToTheEnd() {
    v1::GenerateResponse event;
    while (reader_->Read(&event)) {
      kinds_.push_back(event.event_case());
      text_ += event.tokens().text();
      if (event.has_finished()) finished_ = event.finished();
      if (event.has_summary()) summary_ = event.summary();
    }
    return reader_->Finish();
  }
  std::string Trailer(const std::string& name) {
    const auto& trailers = context_->GetServerTrailingMetadata();
    const auto found = trailers.find(name);
    return found == trailers.end() ? "" : std::string(found->second.data(), found->second.size());
  }

  v1::GenerateRequest request_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
  std::shared_ptr<TokenStream> stream_;
  std::vector<Event> kinds_;
  std::string text_;
  v1::GenerateFinished finished_;
  v1::GenerateSummary summary_;
};

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
  EXPECT_EQ(text_, "a");
  EXPECT_EQ(finished_.reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(finished_.matched_case(), v1::GenerateFinished::MATCHED_NOT_SET);
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
  EXPECT_EQ(started.effective().seed(), engine_.WaitForRequest().generate->sampling.seed);
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
  EXPECT_NE(first.generate->sampling.seed, second.generate->sampling.seed);
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
  EXPECT_EQ(text_.size(), 100u);
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
  EXPECT_EQ(text_, "one ");
  EXPECT_EQ(finished_.reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(finished_.stop_string(), "STOP");
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
  EXPECT_EQ(text_, "");
}

TEST_F(GenerateHandlerTest, FinishedNamesTheMatchedEosToken) {
  Start();
  PushStart();
  stream_->PushToken(Token('a'));
  stream_->PushToken(Token(kEosId));
  PushEnd(EndedWith(FinishReason::kEos, kEosId));
  EXPECT_TRUE(ReadToTheEnd().ok());
  EXPECT_EQ(text_, "a");
  EXPECT_EQ(finished_.reason(), v1::FINISH_REASON_EOS);
  EXPECT_EQ(finished_.eos_token_id(), static_cast<uint32_t>(kEosId));
  EXPECT_EQ(summary_.usage().completion_tokens(), 2u);
}

TEST_F(GenerateHandlerTest, FinishedNamesTheMatchedStopToken) {
  request_.mutable_stopping()->add_stop_token_ids('!');
  Start();
  PushStart();
  stream_->PushToken(Token('!'));
  PushEnd(EndedWith(FinishReason::kStopToken, '!'));
  EXPECT_TRUE(ReadToTheEnd().ok());
  EXPECT_EQ(finished_.reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(finished_.stop_token_id(), static_cast<uint32_t>('!'));
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
  // News for a call that is over disturb nobody.
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
  EXPECT_EQ(text_, "abc");
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
  const auto deadline = std::chrono::system_clock::now() + std::chrono::hours(1);
  context_->set_deadline(deadline);
  reader_ = stub_->Generate(context_.get(), request_);
  const absl::Time seen = engine_.WaitForRequest().deadline;
  EXPECT_LT(absl::AbsDuration(seen - absl::FromChrono(deadline)), absl::Minutes(1));
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

}  // namespace
}  // namespace tlm
