#include "server/rpc/admin/admin_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "model/base/errors.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/server/rpc/generate_fixture.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// The Admin service beside the LanguageModel service, on the same fake engine.
class AdminServiceTest : public GenerateTest {
 protected:
  AdminServiceTest() {
    admin_gate_.Open({engine_, admission_, calls_, model_.limits, clock_.Now() - absl::Minutes(2)});
    grpc::ServerBuilder builder;
    builder.RegisterService(&admin_service_);
    admin_server_ = builder.BuildAndStart();
    admin_ = v1::Admin::NewStub(admin_server_->InProcessChannel(grpc::ChannelArguments()));
  }
  ~AdminServiceTest() override {
    admin_server_->Shutdown(std::chrono::system_clock::now());
    admin_server_->Wait();
  }

  v1::GetLoadResponse GetLoad() {
    grpc::ClientContext context;
    v1::GetLoadResponse load;
    EXPECT_TRUE(admin_->GetLoad(&context, v1::GetLoadRequest(), &load).ok());
    return load;
  }
  grpc::Status Abort(const v1::AbortRequest& request, v1::AbortResponse* response) {
    grpc::ClientContext context;
    return admin_->Abort(&context, request, response);
  }
  v1::AbortResponse AbortById(const std::string& id) {
    v1::AbortRequest request;
    request.add_request_ids(id);
    v1::AbortResponse response;
    EXPECT_TRUE(Abort(request, &response).ok());
    return response;
  }
  grpc::Status Drain(const v1::DrainRequest& request, v1::DrainResponse* response) {
    grpc::ClientContext context;
    return admin_->Drain(&context, request, response);
  }

  FakeClock clock_{absl::UnixEpoch() + absl::Hours(1)};
  ShutdownRequest shutdown_;
  AdminGate admin_gate_;  // open
  AdminService admin_service_{
      AdminContext{{authenticator_, metrics_, clock_, [this] { return random_++; }},
                   shutdown_,
                   {{"host", "::1", "127.0.0.1"}, {"port", "1", "2"}}},
      admin_gate_};
  std::unique_ptr<grpc::Server> admin_server_;
  std::unique_ptr<v1::Admin::Stub> admin_;
};

TEST_F(AdminServiceTest, LoadIsWhatTheEngineCounts) {
  EngineStats stats;
  stats.waiting_requests = 1;
  stats.waiting_tokens = 2;
  stats.running_requests = 3;
  stats.parked_requests = 4;
  stats.kv_blocks_total = 5;
  stats.kv_blocks_used = 6;
  stats.kv_blocks_cached = 7;
  stats.prefill_tokens_per_second = 8.5;
  stats.decode_tokens_per_second = 9.5;
  stats.estimated_queue_time = absl::Milliseconds(10500);
  stats.steps = 11;
  stats.last_progress = clock_.Now() - absl::Seconds(12);
  stats.prefix_cache = {.lookups = 13,
                        .queried_tokens = 14,
                        .hit_tokens = 15,
                        .evicted_blocks = 16,
                        .published_blocks = 17};
  stats.preemptions = 18;
  stats.finished_requests = 19;
  engine_.set_stats(stats);
  const v1::GetLoadResponse load = GetLoad();
  EXPECT_EQ(load.queued_requests(), 1u);
  EXPECT_EQ(load.queued_tokens(), 2u);
  EXPECT_EQ(load.running_sequences(), 3u);
  EXPECT_EQ(load.parked_sequences(), 4u);
  EXPECT_EQ(load.kv_blocks_total(), 5u);
  EXPECT_EQ(load.kv_blocks_used(), 6u);
  EXPECT_EQ(load.kv_blocks_cached(), 7u);
  EXPECT_EQ(load.prefill_tokens_per_second(), 8.5);
  EXPECT_EQ(load.decode_tokens_per_second(), 9.5);
  EXPECT_EQ(load.estimated_queue_time().seconds(), 10);
  EXPECT_EQ(load.estimated_queue_time().nanos(), 500'000'000);
  EXPECT_EQ(load.steps(), 11u);
  EXPECT_EQ(load.last_step_age().seconds(), 12);
  EXPECT_EQ(load.uptime().seconds(), 120);
  EXPECT_EQ(load.prefix_cache().queried_tokens(), 14u);
  EXPECT_EQ(load.prefix_cache().hit_tokens(), 15u);
  EXPECT_EQ(load.prefix_cache().evicted_blocks(), 16u);
  EXPECT_EQ(load.prefix_cache().published_blocks(), 17u);
  EXPECT_EQ(load.preemptions(), 18u);
  EXPECT_EQ(load.finished_requests(), 19u);
  EXPECT_FALSE(load.draining());
}

TEST_F(AdminServiceTest, LoadCountsTheCallsThatAreActive) {
  EXPECT_EQ(GetLoad().active_calls(), 0u);
  Start();
  EXPECT_EQ(GetLoad().active_calls(), 1u);
}

TEST_F(AdminServiceTest, AStreamThatIsAbortedEndsWithItsUsage) {
  request_.set_request_id("mine");
  Start();
  PushStart();
  PushText("ab");
  EXPECT_TRUE(Read().has_started());
  const v1::AbortResponse response = AbortById("mine");
  EXPECT_THAT(response.aborted(), ElementsAre("mine"));
  EXPECT_THAT(response.not_found(), IsEmpty());
  EXPECT_EQ(response.aborted_total(), 1u);
  const grpc::Status status = ReadToTheEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(ReasonIn(status), "ABORTED_BY_ADMIN");
  EXPECT_EQ(Trailer("tlm-prompt-tokens"), "5");
  EXPECT_EQ(Trailer("tlm-completion-tokens"), "2");
  EXPECT_TRUE(stream_->detached());
}

TEST_F(AdminServiceTest, ARequestThatWaitsIsAbortedAsWell) {
  request_.set_request_id("waits");
  Start();
  EXPECT_THAT(AbortById("waits").aborted(), ElementsAre("waits"));
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_TRUE(stream_->detached());
}

TEST_F(AdminServiceTest, AllOutputsOfARequestAreAborted) {
  request_.set_request_id("three");
  request_.mutable_sampling()->set_num_sequences(3);
  Start();
  EXPECT_THAT(AbortById("three").aborted(), ElementsAre("three"));
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::ABORTED);
  for (const auto& stream : streams_) EXPECT_TRUE(stream->detached());
}

TEST_F(AdminServiceTest, UnknownAndFinishedNamesAreReported) {
  request_.set_request_id("done");
  Start();
  PushStart();
  PushEnd(EndedWith(FinishReason::kLength));
  EXPECT_TRUE(ReadToTheEnd().ok());
  v1::AbortRequest request;
  for (const char* const id : {"done", "never", "", "never"}) request.add_request_ids(id);
  v1::AbortResponse response;
  ASSERT_TRUE(Abort(request, &response).ok());
  EXPECT_THAT(response.aborted(), IsEmpty());
  EXPECT_THAT(response.not_found(), UnorderedElementsAre("done", "never", ""));
  EXPECT_EQ(response.aborted_total(), 0u);
}

TEST_F(AdminServiceTest, ANameGivenTwiceIsEndedOnceAndFound) {
  request_.set_request_id("mine");
  Start();
  v1::AbortRequest request;
  request.add_request_ids("mine");
  request.add_request_ids("mine");
  request.set_all(true);
  v1::AbortResponse response;
  ASSERT_TRUE(Abort(request, &response).ok());
  EXPECT_THAT(response.aborted(), ElementsAre("mine"));
  EXPECT_THAT(response.not_found(), IsEmpty());
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(AdminServiceTest, AbortAllEndsCallsOfEveryKind) {
  request_.set_request_id("generate");
  Start();
  grpc::ClientContext forward_context;
  v1::ForwardRequest forward;
  forward.set_request_id("forward");
  forward.add_sequences()->add_ids(1);
  const auto rows = stub_->Forward(&forward_context, forward);
  engine_.WaitForRequest(1);
  grpc::ClientContext score_context;
  v1::ScoreRequest score;
  score.set_request_id("score");
  score.mutable_prompt_token_ids()->add_ids(1);
  score.add_continuations()->mutable_token_ids()->add_ids(2);
  v1::ScoreResponse scores;
  auto scored =
      std::async(std::launch::async, [&] { return stub_->Score(&score_context, score, &scores); });
  engine_.WaitForRequest(2);

  v1::AbortRequest request;
  request.set_all(true);
  v1::AbortResponse response;
  ASSERT_TRUE(Abort(request, &response).ok());
  EXPECT_THAT(response.aborted(), UnorderedElementsAre("generate", "forward", "score"));
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::ABORTED);
  v1::ForwardResponse message;
  while (rows->Read(&message)) {
  }
  EXPECT_EQ(rows->Finish().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(scored.get().error_code(), grpc::StatusCode::ABORTED);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(engine_.WaitForRequest(i).stream->detached());
}

TEST_F(AdminServiceTest, AbortWithoutNamesEndsNothing) {
  Start();
  v1::AbortResponse response;
  ASSERT_TRUE(Abort(v1::AbortRequest(), &response).ok());
  EXPECT_EQ(response.aborted_total(), 0u);
  EXPECT_FALSE(stream_->detached());
}

TEST_F(AdminServiceTest, AbortBoundsItsNames) {
  v1::AbortRequest many;
  for (int i = 0; i <= kMaxAbortIds; ++i) many.add_request_ids("x");
  v1::AbortResponse response;
  EXPECT_EQ(Abort(many, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::AbortRequest long_name;
  long_name.add_request_ids("x");
  long_name.add_request_ids(std::string(129, 'x'));
  const grpc::Status status = Abort(long_name, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(),
            "request_ids[1]");
}

// The end that the engine tells and the abort meet; the call ends once, with one of the two.
TEST_F(AdminServiceTest, AbortsMeetEndsAtEveryMoment) {
  for (size_t i = 0; i < 200; ++i) {
    const std::string id = "call" + std::to_string(i);
    request_.set_request_id(id);
    Start(i);
    std::thread engine([&] {
      PushStart();
      PushText("abc");
      PushEnd(EndedWith(FinishReason::kLength));
    });
    const v1::AbortResponse response = AbortById(id);
    const grpc::Status status = ReadToTheEnd();
    engine.join();
    EXPECT_EQ(status.error_code(),
              response.aborted_total() == 1 ? grpc::StatusCode::ABORTED : grpc::StatusCode::OK);
  }
}

// A call is known from its admission on, before the engine has said whether it takes it.
TEST_F(AdminServiceTest, AbortsMeetRefusalsAtEveryMoment) {
  engine_.set_submit_status(ResourceExhausted("full"));
  std::atomic<bool> stop{false};
  std::thread aborter([&] {
    v1::AbortRequest all;
    all.set_all(true);
    v1::AbortResponse response;
    while (!stop) EXPECT_TRUE(Abort(all, &response).ok());
  });
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    v1::GenerateResponse event;
    const auto reader = stub_->Generate(&context, request_);
    EXPECT_FALSE(reader->Read(&event));
    const grpc::StatusCode code = reader->Finish().error_code();
    EXPECT_TRUE(code == grpc::StatusCode::RESOURCE_EXHAUSTED || code == grpc::StatusCode::ABORTED)
        << code;
  }
  stop = true;
  aborter.join();
  // A client hears of its call's end before the server has counted it out.
  const absl::Time patience = absl::Now() + absl::Seconds(30);
  while (GetLoad().active_calls() > 0 && absl::Now() < patience) std::this_thread::yield();
  EXPECT_EQ(GetLoad().active_calls(), 0u);
}

TEST_F(AdminServiceTest, DrainAsksForTheShutdownOnce) {
  Start();
  v1::DrainRequest request;
  request.mutable_time_limit()->set_seconds(5);
  v1::DrainResponse response;
  ASSERT_TRUE(Drain(request, &response).ok());
  EXPECT_FALSE(response.already_draining());
  EXPECT_EQ(response.active_requests(), 1u);
  EXPECT_TRUE(GetLoad().draining());
  request.mutable_time_limit()->set_seconds(50);
  ASSERT_TRUE(Drain(request, &response).ok());
  EXPECT_TRUE(response.already_draining());
  EXPECT_EQ(shutdown_.Wait().drain_limit, absl::Seconds(5));
}

TEST_F(AdminServiceTest, DrainWithoutALimitLeavesItToTheServer) {
  v1::DrainResponse response;
  ASSERT_TRUE(Drain(v1::DrainRequest(), &response).ok());
  EXPECT_EQ(response.active_requests(), 0u);
  EXPECT_EQ(shutdown_.Wait().drain_limit, std::nullopt);
}

TEST_F(AdminServiceTest, DrainAfterASignalSaysSo) {
  shutdown_.Ask({});
  v1::DrainResponse response;
  ASSERT_TRUE(Drain(v1::DrainRequest(), &response).ok());
  EXPECT_TRUE(response.already_draining());
}

TEST_F(AdminServiceTest, DrainRefusesATimeThatIsNone) {
  for (const auto& [seconds, nanos] :
       {std::pair<int64_t, int32_t>{-1, 0}, {0, -1}, {0, 1'000'000'000}, {1'000'000'000'000, 0}}) {
    v1::DrainRequest request;
    request.mutable_time_limit()->set_seconds(seconds);
    request.mutable_time_limit()->set_nanos(nanos);
    v1::DrainResponse response;
    const grpc::Status status = Drain(request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << seconds << " " << nanos;
    EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(), "time_limit");
  }
  EXPECT_FALSE(shutdown_.asked());
}

TEST_F(AdminServiceTest, FlushAnswersWhenTheEngineHasDoneIt) {
  v1::FlushPrefixCacheResponse response;
  auto flushed = std::async(std::launch::async, [&] {
    grpc::ClientContext context;
    return admin_->FlushPrefixCache(&context, v1::FlushPrefixCacheRequest(), &response);
  });
  engine_.WaitForFlush()(42);
  EXPECT_TRUE(flushed.get().ok());
  EXPECT_EQ(response.blocks_freed(), 42u);
}

TEST_F(AdminServiceTest, AFlushOutlivesAClientThatDoesNotWait) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(30));
  v1::FlushPrefixCacheResponse response;
  const grpc::Status status =
      admin_->FlushPrefixCache(&context, v1::FlushPrefixCacheRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  engine_.WaitForFlush()(42);
}

TEST_F(AdminServiceTest, AFlushThatIsNeverAnsweredDoesNotHoldUpTheEnd) {
  auto flushed = std::async(std::launch::async, [&] {
    grpc::ClientContext context;
    v1::FlushPrefixCacheResponse response;
    return admin_->FlushPrefixCache(&context, v1::FlushPrefixCacheRequest(), &response);
  });
  const std::function<void(int64_t)> done = engine_.WaitForFlush();
  admin_server_->Shutdown(std::chrono::system_clock::now());
  EXPECT_FALSE(flushed.get().ok());
  done(0);
}

TEST_F(AdminServiceTest, ConfigIsWhatTheServerWasStartedWith) {
  grpc::ClientContext context;
  v1::GetConfigResponse config;
  ASSERT_TRUE(admin_->GetConfig(&context, v1::GetConfigRequest(), &config).ok());
  ASSERT_EQ(config.options_size(), 2);
  EXPECT_EQ(config.options(0).name(), "host");
  EXPECT_EQ(config.options(0).value(), "::1");
  EXPECT_EQ(config.options(0).default_value(), "127.0.0.1");
  EXPECT_EQ(config.options(1).name(), "port");
}

}  // namespace
}  // namespace tlm
