// Calls that the fake engine answers with one message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "tests/support/proto.h"
#include "tests/unit/server/rpc/generate_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class ScoreAndVerifyTest : public RpcTest {
 protected:
  // Starts the call and waits until it is queued.
  const Request& StartScore(const std::string& request) {
    status_ = std::async(std::launch::async, [this, request] {
      grpc::ClientContext context;
      return stub_->Score(&context, Proto<v1::ScoreRequest>(request), &scores_);
    });
    return Queued();
  }
  const Request& StartVerify(const std::string& more = "") {
    status_ = std::async(std::launch::async, [this, more] { return Verify(more); });
    return Queued();
  }
  // Of "cde" after the prompt "ab".
  grpc::Status Verify(const std::string& more) {
    auto request = Proto<v1::VerifyRequest>(R"(
        request { prompt: "ab" add_special_tokens: false sampling { seed: 7 } }
        claimed_token_ids: [99, 100, 101])");
    Merge(more, request);
    grpc::ClientContext context;
    return stub_->Verify(&context, request, &verdict_);
  }
  void PushText(std::string_view text) {
    for (const int32_t id : ByteIds(text)) stream_->PushToken(Token(id));
    FakeEngine::Deliver(*stream_);
  }
  void PushScored(int64_t continuation, int32_t id, float logprob, uint32_t rank) {
    SampledToken token = Token(id);
    token.score = ScoredToken{id, logprob, rank};
    stream_->PushScored({continuation, token});
    FakeEngine::Deliver(*stream_);
  }
  void Finish() {
    stream_->PushEnd(EndedWith(FinishReason::kRowsComplete));
    FakeEngine::Deliver(*stream_);
    EXPECT_TRUE(status_.get().ok());
    EXPECT_TRUE(admission_.WaitUntilEmpty(absl::InfiniteDuration()));
  }

  std::future<grpc::Status> status_;
  std::shared_ptr<TokenStream> stream_;
  v1::ScoreResponse scores_;
  v1::VerifyResponse verdict_;

 private:
  const Request& Queued() {
    const Request& queued = engine_.WaitForRequest();
    stream_ = queued.stream;
    stream_->PushStart({.queue_time = absl::Milliseconds(1), .cached_prompt_tokens = 1});
    return queued;
  }
};

TEST_F(ScoreAndVerifyTest, SumsEachContinuation) {
  const Request& queued = StartScore(R"(request_id: "mine" prompt: "ab" add_special_tokens: false
      continuations { text: "cd" } continuations { text: "e" } top_logprobs: 2)");
  EXPECT_EQ(queued.prompt, ByteIds("ab"));
  ASSERT_TRUE(queued.score() != nullptr);
  EXPECT_EQ(queued.score()->continuations.size(), 2u);
  EXPECT_EQ(queued.score()->top, 2u);
  PushScored(0, 'c', -0.5f, 1);
  PushScored(1, 'e', -2.0f, 3);
  PushScored(0, 'd', -0.25f, 1);
  Finish();
  EXPECT_THAT(scores_, IsProto(R"(
      request_id: "mine" fingerprint: "f00d" usage { prompt_tokens: 5 cached_prompt_tokens: 1 }
      scores {
        sum_logprob: -0.75 token_count: 2 is_greedy: true
        tokens { id: 99 bytes: "c" logprob: -0.5 rank: 1 }
        tokens { id: 100 bytes: "d" logprob: -0.25 rank: 1 } }
      scores {
        sum_logprob: -2 token_count: 1 tokens { id: 101 bytes: "e" logprob: -2 rank: 3 } })"));
}

TEST_F(ScoreAndVerifyTest, ComparesWhatTheEngineDraws) {
  const Request& queued = StartVerify(R"(request_id: "mine" output_index: 1
      request { sampling { num_sequences: 2 } cache { cache_salt: "salt" } })");
  EXPECT_EQ(queued.id, "mine");
  EXPECT_EQ(queued.prompt, ByteIds("ab"));
  EXPECT_EQ(queued.cache.salt, "salt");
  EXPECT_TRUE(queued.branch_streams.empty());
  ASSERT_TRUE(queued.generate() != nullptr);
  EXPECT_EQ(queued.generate()->claimed, ByteIds("cde"));
  EXPECT_EQ(queued.generate()->output_index, 1u);
  EXPECT_EQ(queued.generate()->sampling.seed, 7u);
  PushText("cd");
  PushText("e");
  Finish();
  EXPECT_THAT(verdict_, IsProto(R"(
      request_id: "mine" fingerprint: "f00d" verified: true verified_token_count: 3
      usage { prompt_tokens: 5 cached_prompt_tokens: 1 })"));
}

TEST_F(ScoreAndVerifyTest, NothingBehindAStopStringIsComputed) {
  EXPECT_EQ(StartVerify(R"(request { stopping { stop_strings: "d" } })").generate()->claimed,
            ByteIds("cd"));
  PushText("cd");
  Finish();
  EXPECT_THAT(verdict_.mismatch(), HasFields("index: 2 finished: FINISH_REASON_STOP"));
}

TEST_F(ScoreAndVerifyTest, TheEngineGetsTheConstraintOfAClaim) {
  const Request& queued = StartVerify(R"(request { choices { choices: "cde" } })");
  ASSERT_TRUE(queued.generate()->constraint.has_value());
  EXPECT_THAT(queued.generate()->constraint->end_ids, ElementsAre(kEosId));
  PushText("cde");
  Finish();
  EXPECT_TRUE(verdict_.verified());
}

TEST_F(ScoreAndVerifyTest, AMalformedConstraintIsNamed) {
  const grpc::Status status = Verify(R"(request { regex: "(a" })");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), StartsWith("request.regex: the pattern "));
  EXPECT_EQ(FieldIn(status), "request.regex");
  EXPECT_EQ(engine_.submitted(), 0);
}

}  // namespace
}  // namespace tlm
