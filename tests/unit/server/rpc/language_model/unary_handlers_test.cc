#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/proto.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace tlm {
namespace {

using ::testing::AnyOf;

class UnaryHandlersTest : public RpcTest {
 protected:
  explicit UnaryHandlersTest(bool with_tokenizer = true) : RpcTest(with_tokenizer) {}

  grpc::Status Tokenize(const std::string& request) {
    grpc::ClientContext context;
    return stub_->Tokenize(&context, Proto<v1::TokenizeRequest>(request), &tokens_);
  }
  grpc::Status Detokenize(const v1::DetokenizeRequest& request) {
    grpc::ClientContext context;
    return stub_->Detokenize(&context, request, &text_);
  }
  v1::ModelInfoResponse Info() {
    grpc::ClientContext context;
    v1::ModelInfoResponse response;
    EXPECT_TRUE(stub_->ModelInfo(&context, v1::ModelInfoRequest(), &response).ok());
    return response;
  }

  v1::TokenizeResponse tokens_;
  v1::DetokenizeResponse text_;
};

TEST_F(UnaryHandlersTest, TokenizeGivesIdsAndTheirBytes) {
  ASSERT_TRUE(Tokenize(R"(text: "h\303\251")").ok());
  EXPECT_THAT(tokens_, IsProto(R"(
      token_ids: [257, 104, 0xc3, 0xa9] token_bytes: ["<bos>", "h", "\303", "\251"])"));
  ASSERT_TRUE(Tokenize(R"(text: "" add_special_tokens: false)").ok());
  EXPECT_EQ(tokens_.token_ids_size(), 0);
}

TEST_F(UnaryHandlersTest, DetokenizeGivesTextAndExactBytes) {
  ASSERT_TRUE(Detokenize(Proto<v1::DetokenizeRequest>("token_ids: [104, 0xc3, 257, 33]")).ok());
  EXPECT_EQ(text_.text(), "h\xef\xbf\xbd!");
  EXPECT_EQ(text_.bytes(), "h\xc3!");
  ASSERT_TRUE(
      Detokenize(Proto<v1::DetokenizeRequest>("token_ids: 256 skip_special_tokens: false")).ok());
  EXPECT_EQ(text_.text(), "<eos>");
}

TEST_F(UnaryHandlersTest, AnswersThatFitNoMessageAreRefused) {
  // Six bytes of answer a byte of text.
  grpc::Status status = Tokenize("text: \"" + std::string(1 << 20, '\x7f') + "\"");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(status), "MESSAGE_TOO_LARGE");
  v1::DetokenizeRequest request;
  request.mutable_token_ids()->Resize(1 << 20, kEosId);  // five bytes each
  request.set_skip_special_tokens(false);
  status = Detokenize(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonIn(status), "MESSAGE_TOO_LARGE");
}

class UnaryWithoutTokenizerTest : public UnaryHandlersTest {
 protected:
  UnaryWithoutTokenizerTest() : UnaryHandlersTest(/*with_tokenizer=*/false) {}
};

TEST_F(UnaryWithoutTokenizerTest, TokenizeAndDetokenizeAreRefused) {
  EXPECT_EQ(Tokenize("").error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Detokenize({}).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(UnaryHandlersTest, ModelInfoReportsModelLimitsAndWhatIsBuilt) {
  model_.build_id = "b01d";
  const v1::ModelInfoResponse response = Info();
  EXPECT_THAT(response, HasFields(R"(
      identity { model_id: "tiny" build_id: "b01d" }
      architecture { vocab_size: 300 rope { layout: ROPE_LAYOUT_HALF } }
      limits { max_prompt_tokens: 63 max_stop_strings: 16 max_top_logprobs: 20
               max_num_sequences: 4 max_score_continuations: 256 max_chat_messages: 4096
               max_logit_bias_entries: 4096 }
      capabilities { score: true verify: true prompt_logprobs: true processed_logprobs: true
                     resume: true }
      default_sampling { typical_p: 1 })"));
  EXPECT_FALSE(response.default_sampling().has_seed());
  EXPECT_FALSE(response.capabilities().chat());
  const v1::ParameterCounts& p = response.parameters();
  EXPECT_GT(p.total(), 0u);
  EXPECT_EQ(p.total(), p.embedding() + p.position_embedding() + p.lm_head() + p.attention().q() +
                           p.attention().k() + p.attention().v() + p.attention().o() +
                           p.ffn().gate() + p.ffn().up() + p.ffn().down() + p.norms() + p.biases());
}

TEST_F(UnaryHandlersTest, ModelInfoStatesTheGuaranteeAndItsScope) {
  EXPECT_THAT(Info().determinism(), IsProto(R"(
      guarantee: DETERMINISM_GUARANTEE_SAME_BUILD_AND_DEVICE fingerprint: "f00d"
      scope: [DETERMINISM_SCOPE_BATCH, DETERMINISM_SCOPE_CHUNKING, DETERMINISM_SCOPE_PREFIX_CACHE,
              DETERMINISM_SCOPE_PREEMPTION, DETERMINISM_SCOPE_REPLICA])"));
  model_.invariance_fault = "tiles differ";
  EXPECT_THAT(Info().determinism(), IsProto(R"(
      guarantee: DETERMINISM_GUARANTEE_NONE fingerprint: "f00d" reason: "tiles differ")"));
}

TEST_F(UnaryHandlersTest, ModelInfoReportsHowTheEngineIsConfigured) {
  EngineOptions& engine = model_.limits.engine;
  engine.max_prefill_tokens = 12;
  engine.prefix_cache = true;
  engine.max_queue_time = absl::Milliseconds(1500);
  engine.max_draft_tokens = 5;
  model_.draft_model = "tiny-draft";
  EXPECT_THAT(Info(), HasFields(R"(
      limits { max_step_prefill_tokens: 12 max_queue_time { seconds: 1 nanos: 500000000 }
               max_draft_tokens: 5 }
      capabilities { prefix_cache: true
                     speculation { lookup: true draft_model: "tiny-draft" } })"));
  engine.prefix_cache = false;
  engine.max_queue_time = EngineOptions().max_queue_time;
  engine.speculation = Speculation::kOff;
  const v1::ModelInfoResponse off = Info();
  EXPECT_FALSE(off.limits().has_max_queue_time());
  EXPECT_FALSE(off.capabilities().prefix_cache());
  EXPECT_FALSE(off.capabilities().has_speculation());
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
  // Begins a call, which waits.
  std::future<grpc::Status> StartWaiting(const BusyReaders& busy) {
    std::future<grpc::Status> status = Call();
    busy.WaitUntilOthersWait();
    return status;
  }

  grpc::ClientContext context_;
  v1::TokenizeRequest request_;
  v1::TokenizeResponse response_;
};

TEST_F(LongTextTest, IsAnsweredLikeAShortOne) {
  ASSERT_TRUE(Call().get().ok());
  EXPECT_EQ(response_.token_ids_size(), 1 + kBytes);
  EXPECT_EQ(response_.token_bytes_size(), 1 + kBytes);
  v1::DetokenizeRequest ids;
  *ids.mutable_token_ids() = response_.token_ids();
  ASSERT_TRUE(Detokenize(ids).ok());
  EXPECT_EQ(text_.text(), request_.text());
}

TEST_F(LongTextTest, WaitsForItsTurnWhileShortOnesAreAnswered) {
  std::future<grpc::Status> status;
  {
    const BusyReaders busy(text_pools_, kBytes);
    status = StartWaiting(busy);
    EXPECT_EQ(admission_.active_calls(), 1) << "a drain waits for it";
    EXPECT_TRUE(Tokenize(R"(text: "few")").ok());
    EXPECT_EQ(tokens_.token_ids_size(), 4);
  }
  EXPECT_TRUE(status.get().ok());
}

TEST_F(LongTextTest, LeavesTheQueueWhenItIsCancelled) {
  const BusyReaders busy(text_pools_, kBytes);
  std::future<grpc::Status> status = StartWaiting(busy);
  context_.TryCancel();
  EXPECT_EQ(status.get().error_code(), grpc::StatusCode::CANCELLED);
  busy.WaitUntilOthersWait(false);
}

TEST_F(LongTextTest, IsAbortedWhileItWaits) {
  const BusyReaders busy(text_pools_, kBytes);
  std::future<grpc::Status> status = StartWaiting(busy);
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
    status = StartWaiting(busy);
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

}  // namespace
}  // namespace tlm
