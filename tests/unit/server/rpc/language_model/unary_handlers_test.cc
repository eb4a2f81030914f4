#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/server/rpc/rpc_fixture.h"

namespace tlm {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;

class UnaryHandlersTest : public RpcTest {
 protected:
  grpc::ClientContext context_;
};

TEST_F(UnaryHandlersTest, TokenizeGivesIdsAndTheirBytes) {
  v1::TokenizeRequest request;
  request.set_text("h\xc3\xa9");
  v1::TokenizeResponse response;
  ASSERT_TRUE(stub_->Tokenize(&context_, request, &response).ok());
  EXPECT_THAT(response.token_ids(), ElementsAre(kBosId, 'h', 0xc3, 0xa9));
  EXPECT_THAT(response.token_bytes(), ElementsAre("<bos>", "h", "\xc3", "\xa9"));
}

TEST_F(UnaryHandlersTest, TokenizeLeavesSpecialTokensOutWhenTold) {
  v1::TokenizeRequest request;
  request.set_text("");
  request.set_add_special_tokens(false);
  v1::TokenizeResponse response;
  ASSERT_TRUE(stub_->Tokenize(&context_, request, &response).ok());
  EXPECT_EQ(response.token_ids_size(), 0);
}

TEST_F(UnaryHandlersTest, TokenizeRefusesAnAnswerThatFitsNoMessage) {
  v1::TokenizeRequest request;
  // Six bytes of answer a byte of text.
  request.set_text(std::string((1 << 20), '\x7f'));
  v1::TokenizeResponse response;
  const grpc::Status status = stub_->Tokenize(&context_, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(status), "MESSAGE_TOO_LARGE");
}

// What is longer than gRPC's threads read themselves.
class LongTextTest : public UnaryHandlersTest {
 protected:
  static constexpr int64_t kBytes = 5000;

  LongTextTest() {
    request_.set_text(std::string(kBytes, 'x'));
    request_.set_request_id("long");
  }
  std::future<grpc::Status> Call() {
    return std::async(std::launch::async,
                      [this] { return stub_->Tokenize(&context_, request_, &response_); });
  }

  v1::TokenizeRequest request_;
  v1::TokenizeResponse response_;
};

TEST_F(LongTextTest, IsAnsweredLikeAShortOne) {
  ASSERT_TRUE(Call().get().ok());
  EXPECT_EQ(response_.token_ids_size(), 1 + kBytes);
  EXPECT_EQ(response_.token_bytes_size(), 1 + kBytes);
  grpc::ClientContext context;
  v1::DetokenizeRequest ids;
  *ids.mutable_token_ids() = response_.token_ids();
  v1::DetokenizeResponse text;
  ASSERT_TRUE(stub_->Detokenize(&context, ids, &text).ok());
  EXPECT_EQ(text.text(), request_.text());
}

TEST_F(LongTextTest, WaitsForItsTurnWhileShortOnesAreAnswered) {
  std::future<grpc::Status> status;
  {
    const BusyReaders busy(text_pools_, kBytes);
    status = Call();
    busy.WaitUntilOthersWait();
    EXPECT_EQ(admission_.active_calls(), 1) << "a drain waits for it";
    grpc::ClientContext context;
    v1::TokenizeRequest few;
    few.set_text("few");
    v1::TokenizeResponse response;
    EXPECT_TRUE(stub_->Tokenize(&context, few, &response).ok());
    EXPECT_EQ(response.token_ids_size(), 4);
  }
  EXPECT_TRUE(status.get().ok());
}

TEST_F(LongTextTest, LeavesTheQueueWhenItIsCancelled) {
  const BusyReaders busy(text_pools_, kBytes);
  std::future<grpc::Status> status = Call();
  busy.WaitUntilOthersWait();
  context_.TryCancel();
  EXPECT_EQ(status.get().error_code(), grpc::StatusCode::CANCELLED);
  busy.WaitUntilOthersWait(false);
}

TEST_F(LongTextTest, IsAbortedWhileItWaits) {
  const BusyReaders busy(text_pools_, kBytes);
  std::future<grpc::Status> status = Call();
  busy.WaitUntilOthersWait();
  EXPECT_EQ(calls_.Abort("long", std::nullopt, absl::AbortedError("enough")), 1);
  EXPECT_EQ(status.get().error_code(), grpc::StatusCode::ABORTED);
  busy.WaitUntilOthersWait(false);
}

TEST_F(LongTextTest, ItsDeadlineEndsTheWait) {
  const BusyReaders busy(text_pools_, kBytes);
  const grpc::Status status = ExpiredStatusOf([this](std::unique_ptr<grpc::ClientContext> context) {
    return stub_->Tokenize(context.get(), request_, &response_);
  });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(ReasonIn(status), "EXPIRED_IN_QUEUE");
  busy.WaitUntilOthersWait(false);
}

TEST_F(LongTextTest, IsRefusedWhenTooMuchWaits) {
  const BusyReaders busy(text_pools_, kBytes);
  const auto turn =
      text_pools_.For(kBytes)->Add("", FairPoolLimits().max_waiting_bytes, [](auto&) {});
  const grpc::Status status = Call().get();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(status), "QUEUE_FULL");
  EXPECT_GT(DetailOf<google::rpc::RetryInfo>(status).retry_delay().seconds(), 0);
  while (admission_.active_calls() > 0) std::this_thread::yield();
}

TEST_F(LongTextTest, IsRefusedWhenTheServerStops) {
  std::future<void> stopped;
  std::future<grpc::Status> status;
  {
    const BusyReaders busy(text_pools_, kBytes);
    status = Call();
    busy.WaitUntilOthersWait();
    stopped = std::async(std::launch::async, [this] { text_pools_.Stop(); });
    const grpc::Status end = status.get();
    EXPECT_EQ(end.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(ReasonIn(end), "DRAINING");
  }
  stopped.get();
}

// Ends that meet the reading of the request, whichever comes first.
TEST_F(LongTextTest, ManyCallsMayBeCancelledAndAbortedAtAnyTime) {
  const auto call = [this](int seed) {
    for (int i = 0; i < 40; ++i) {
      grpc::ClientContext context;
      v1::TokenizeRequest request;
      request.set_text(std::string(static_cast<size_t>(60'000), 'x'));
      request.set_request_id("stress");
      v1::TokenizeResponse response;
      std::thread ends([&, this] {
        for (int spin = 0; spin < (seed + i) % 40; ++spin) std::this_thread::yield();
        if (i % 3 == 0) context.TryCancel();
        if (i % 3 == 1) calls_.Abort("stress", std::nullopt, absl::AbortedError("enough"));
      });
      const grpc::Status status = stub_->Tokenize(&context, request, &response);
      ends.join();
      EXPECT_THAT(status.error_code(), AnyOf(grpc::StatusCode::OK, grpc::StatusCode::CANCELLED,
                                             grpc::StatusCode::ABORTED))
          << status.error_message();
      EXPECT_EQ(response.token_ids_size(), status.ok() ? 60'001 : 0);
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) callers.emplace_back(call, 11 * i);
  for (std::thread& caller : callers) caller.join();
  while (admission_.active_calls() > 0) std::this_thread::yield();
  EXPECT_EQ(text_pools_.waiting_bytes(), 0);
  EXPECT_EQ(calls_.AbortAll(std::nullopt, absl::AbortedError("")).calls, 0);
}

TEST_F(UnaryHandlersTest, DetokenizeGivesTextAndExactBytes) {
  v1::DetokenizeRequest request;
  for (const uint32_t id : {104, 0xc3, 257, 33}) request.add_token_ids(id);
  v1::DetokenizeResponse response;
  ASSERT_TRUE(stub_->Detokenize(&context_, request, &response).ok());
  EXPECT_EQ(response.text(), "h\xef\xbf\xbd!");
  EXPECT_EQ(response.bytes(), "h\xc3!");
}

TEST_F(UnaryHandlersTest, DetokenizeKeepsSpecialTokensWhenTold) {
  v1::DetokenizeRequest request;
  request.add_token_ids(kEosId);
  request.set_skip_special_tokens(false);
  v1::DetokenizeResponse response;
  ASSERT_TRUE(stub_->Detokenize(&context_, request, &response).ok());
  EXPECT_EQ(response.text(), "<eos>");
}

TEST_F(UnaryHandlersTest, DetokenizeRefusesAnAnswerThatFitsNoMessage) {
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Resize(1 << 20, kEosId);  // five bytes each
  request.set_skip_special_tokens(false);
  v1::DetokenizeResponse response;
  const grpc::Status status = stub_->Detokenize(&context_, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(status), "MESSAGE_TOO_LARGE");
}

TEST_F(UnaryHandlersTest, DetokenizeNamesAnIdOutOfRange) {
  v1::DetokenizeRequest request;
  request.add_token_ids(300);
  v1::DetokenizeResponse response;
  const grpc::Status status = stub_->Detokenize(&context_, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(), "token_ids[0]");
}

TEST_F(UnaryHandlersTest, ModelInfoReportsTheLimitsThatConvertChecks) {
  v1::ModelInfoResponse response;
  ASSERT_TRUE(stub_->ModelInfo(&context_, v1::ModelInfoRequest(), &response).ok());
  EXPECT_EQ(response.identity().model_id(), "tiny");
  EXPECT_EQ(response.architecture().vocab_size(), 300u);
  EXPECT_EQ(response.architecture().rope().layout(), v1::ROPE_LAYOUT_HALF);
  EXPECT_EQ(response.limits().max_prompt_tokens(), 63u);
  EXPECT_EQ(response.limits().max_stop_strings(), 16u);
  EXPECT_EQ(response.limits().max_top_logprobs(), 20u);
  EXPECT_EQ(response.determinism().fingerprint(), "f00d");
  EXPECT_FALSE(response.default_sampling().has_seed());
  const v1::ParameterCounts& p = response.parameters();
  EXPECT_GT(p.total(), 0u);
  EXPECT_EQ(p.total(), p.embedding() + p.position_embedding() + p.lm_head() + p.attention().q() +
                           p.attention().k() + p.attention().v() + p.attention().o() +
                           p.ffn().gate() + p.ffn().up() + p.ffn().down() + p.norms() + p.biases());
}

TEST_F(UnaryHandlersTest, ModelInfoOfAnotherModelIsNotFound) {
  v1::ModelInfoRequest request;
  request.set_model("huge");
  v1::ModelInfoResponse response;
  EXPECT_EQ(stub_->ModelInfo(&context_, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(UnaryHandlersTest, ModelInfoReportsWhatIsBuilt) {
  v1::ModelInfoResponse response;
  ASSERT_TRUE(stub_->ModelInfo(&context_, v1::ModelInfoRequest(), &response).ok());
  EXPECT_TRUE(response.capabilities().score());
  EXPECT_TRUE(response.capabilities().verify());
  EXPECT_TRUE(response.capabilities().prompt_logprobs());
  EXPECT_TRUE(response.capabilities().processed_logprobs());
  EXPECT_FALSE(response.capabilities().chat());
  EXPECT_EQ(response.limits().max_num_sequences(), 4u);
  EXPECT_EQ(response.limits().max_score_continuations(), 256u);
  EXPECT_EQ(response.limits().max_chat_messages(), 4096u);
  EXPECT_EQ(response.limits().max_logit_bias_entries(), 4096u);
  EXPECT_TRUE(response.default_sampling().has_typical_p());
}

TEST_F(UnaryHandlersTest, ModelInfoStatesTheGuaranteeAndItsScope) {
  v1::ModelInfoResponse response;
  ASSERT_TRUE(stub_->ModelInfo(&context_, v1::ModelInfoRequest(), &response).ok());
  const v1::DeterminismInfo& determinism = response.determinism();
  EXPECT_EQ(determinism.guarantee(), v1::DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE);
  EXPECT_THAT(determinism.scope(),
              ElementsAre(v1::DETERMINISM_SCOPE_BATCH, v1::DETERMINISM_SCOPE_CHUNKING,
                          v1::DETERMINISM_SCOPE_PREFIX_CACHE, v1::DETERMINISM_SCOPE_PREEMPTION,
                          v1::DETERMINISM_SCOPE_REPLICA));
  EXPECT_EQ(determinism.reason(), "");
  EXPECT_TRUE(response.capabilities().resume());
}

TEST_F(UnaryHandlersTest, ModelInfoGuaranteesNothingWhereTheDeviceCannot) {
  model_.invariance_fault = "tiles differ";
  v1::ModelInfoResponse response;
  ASSERT_TRUE(stub_->ModelInfo(&context_, v1::ModelInfoRequest(), &response).ok());
  EXPECT_EQ(response.determinism().guarantee(), v1::DETERMINISM_GUARANTEE_NONE);
  EXPECT_EQ(response.determinism().reason(), "tiles differ");
  EXPECT_TRUE(response.determinism().scope().empty());
}

TEST_F(UnaryHandlersTest, ModelInfoReportsHowTheEngineIsConfigured) {
  model_.build_id = "b01d";
  model_.limits.engine.max_prefill_tokens = 12;
  model_.limits.engine.prefix_cache = false;
  v1::ModelInfoResponse off;
  ASSERT_TRUE(stub_->ModelInfo(&context_, v1::ModelInfoRequest(), &off).ok());
  EXPECT_EQ(off.identity().build_id(), "b01d");
  EXPECT_EQ(off.limits().max_step_prefill_tokens(), 12u);
  EXPECT_FALSE(off.limits().has_max_queue_time());
  EXPECT_FALSE(off.capabilities().prefix_cache());
  model_.limits.engine.prefix_cache = true;
  model_.limits.engine.max_queue_time = absl::Milliseconds(1500);
  grpc::ClientContext second;
  v1::ModelInfoResponse on;
  ASSERT_TRUE(stub_->ModelInfo(&second, v1::ModelInfoRequest(), &on).ok());
  EXPECT_TRUE(on.capabilities().prefix_cache());
  EXPECT_EQ(on.limits().max_queue_time().seconds(), 1);
  EXPECT_EQ(on.limits().max_queue_time().nanos(), 500'000'000);
}

TEST_F(UnaryHandlersTest, ModelInfoReportsWhatGuesses) {
  model_.limits.engine.max_draft_tokens = 5;
  model_.draft_model = "tiny-draft";
  v1::ModelInfoResponse on;
  ASSERT_TRUE(stub_->ModelInfo(&context_, v1::ModelInfoRequest(), &on).ok());
  EXPECT_EQ(on.limits().max_draft_tokens(), 5u);
  EXPECT_TRUE(on.capabilities().speculation().lookup());
  EXPECT_EQ(on.capabilities().speculation().draft_model(), "tiny-draft");
  model_.limits.engine.speculation = Speculation::kOff;
  grpc::ClientContext second;
  v1::ModelInfoResponse off;
  ASSERT_TRUE(stub_->ModelInfo(&second, v1::ModelInfoRequest(), &off).ok());
  EXPECT_FALSE(off.capabilities().has_speculation());
}

class UnaryWithoutTokenizerTest : public RpcTest {
 protected:
  UnaryWithoutTokenizerTest() : RpcTest(/*with_tokenizer=*/false) {}
};

TEST_F(UnaryWithoutTokenizerTest, TokenizeAndDetokenizeAreRefused) {
  grpc::ClientContext first;
  v1::TokenizeResponse ids;
  EXPECT_EQ(stub_->Tokenize(&first, v1::TokenizeRequest(), &ids).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  grpc::ClientContext second;
  v1::DetokenizeResponse text;
  EXPECT_EQ(stub_->Detokenize(&second, v1::DetokenizeRequest(), &text).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace tlm
