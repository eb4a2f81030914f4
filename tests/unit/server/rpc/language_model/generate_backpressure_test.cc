// Generate with readers that do not keep up: what the server keeps for them is bounded, and nothing
// waits for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "model/base/errors.h"
#include "server/rpc/output/output_group.h"
#include "tests/unit/server/rpc/generate_fixture.h"

namespace tlm {
namespace {

// A token stream, and as much and a token stream again in the handler.
constexpr int64_t kMaxKept = 3 * kStreamCapacity + 1;

class GenerateBackpressureTest : public GenerateTest {
 protected:
  GenerateBackpressureTest() : GenerateTest(true, 1 << 16) {}

  // Pushes until the token stream stays full; how many there were.
  int64_t Fill(size_t output = 0) {
    int64_t pushed = 0;
    while (streams_[output]->Room() > 0 && pushed <= kMaxKept) {
      streams_[output]->PushToken(Token('a'));
      FakeEngine::Deliver(*streams_[output]);
      ++pushed;
    }
    return pushed;
  }
  // Pushes `tokens` and the end on a thread of its own while the stream is read.
  grpc::Status PushAndRead(int64_t tokens) {
    std::thread engine_side([this, tokens] {
      PushText(std::string(static_cast<size_t>(tokens), 'a'));
      PushEnd(EndedWith(FinishReason::kLength));
    });
    const grpc::Status status = ReadToTheEnd();
    engine_side.join();
    return status;
  }
};

TEST_F(GenerateBackpressureTest, ForAReaderThatDoesNotReadTheSequenceIsParked) {
  Start();
  PushStart();
  // Nothing is read: the write of `started` stays in flight.
  const int64_t pushed = Fill();
  EXPECT_GE(pushed, kStreamCapacity);
  EXPECT_LE(pushed, kMaxKept);
  EXPECT_TRUE(PushAndRead(1000).ok());
  EXPECT_EQ(texts_[0], std::string(static_cast<size_t>(pushed + 1000), 'a'));
  EXPECT_EQ(summary_.usage().completion_tokens(), static_cast<uint64_t>(pushed + 1000));
}

TEST_F(GenerateBackpressureTest, EveryOutputIsParkedForItself) {
  request_.mutable_sampling()->set_num_sequences(2);
  Start();
  PushStart(0);
  PushStart(1);
  EXPECT_LE(Fill(0), kMaxKept);
  EXPECT_LE(Fill(1), kMaxKept);
  context_->TryCancel();
  engine_.WaitUntilDetached(*streams_[0]);
  engine_.WaitUntilDetached(*streams_[1]);
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(GenerateBackpressureTest, PromptLogprobsAreBoundedToo) {
  request_.set_prompt(std::string(5000, 'a'));
  request_.mutable_output()->set_prompt_logprobs(true);
  Start();
  PushStart();
  SampledToken token = Token('a');
  token.score = ScoredToken{'a', -1.0f, 1};
  int64_t pushed = 0;
  while (stream_->Room() > 0 && pushed <= kMaxKept) {
    stream_->PushScored({++pushed, token});
    FakeEngine::Deliver(*stream_);
  }
  EXPECT_LE(pushed, kMaxKept);
  std::thread engine_side([this, token, pushed] {
    for (int64_t i = pushed + 1; i < 5000; ++i) {
      if (stream_->Room() == 0) FakeEngine::Deliver(*stream_);
      engine_.WaitForRoom(*stream_);
      stream_->PushScored({i, token});
    }
    PushText("x");
    PushEnd(EndedWith(FinishReason::kLength));
  });
  int64_t tokens = 0;
  v1::GenerateResponse event;
  while (reader_->Read(&event)) {
    if (event.has_prompt()) {
      EXPECT_EQ(event.prompt().offset(), tokens);
    }
    tokens += event.prompt().tokens_size();
  }
  engine_side.join();
  EXPECT_TRUE(reader_->Finish().ok());
  EXPECT_EQ(tokens, 5000);
}

TEST_F(GenerateBackpressureTest, FinalOnlyGathersMoreThanATokenStreamHolds) {
  request_.mutable_output()->set_final_only(true);
  Start();
  PushStart();
  EXPECT_TRUE(PushAndRead(5000).ok());
  EXPECT_EQ(texts_[0].size(), 5000u);
  EXPECT_EQ(std::count(kinds_.begin(), kinds_.end(), Event::kTokens), 1);
}

TEST_F(GenerateBackpressureTest, ChunksMayBeLargerThanATokenStream) {
  request_.mutable_output()->set_min_chunk_tokens(2000);
  Start();
  PushStart();
  EXPECT_TRUE(PushAndRead(5000).ok());
  EXPECT_EQ(texts_[0].size(), 5000u);
  EXPECT_EQ(std::count(kinds_.begin(), kinds_.end(), Event::kTokens), 3);
}

TEST_F(GenerateBackpressureTest, AStopStringBehindAFullTokenStreamIsFoundOnceItIsRead) {
  request_.mutable_stopping()->add_stop_strings("STOP");
  Start();
  PushStart();
  Fill();
  std::thread engine_side([this] {
    PushText("STOP and more");
    engine_.WaitUntilDetached(*stream_);
    PushEnd(FailedWith(Cancelled("detached")));
  });
  EXPECT_TRUE(ReadToTheEnd().ok());
  engine_side.join();
  EXPECT_EQ(finished_.front().stop_string(), "STOP");
}

TEST_F(GenerateBackpressureTest, CancelWhileAWriteIsBlocked) {
  Start();
  PushStart();
  Fill();
  context_->TryCancel();
  engine_.WaitUntilDetached(*stream_);
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace tlm
