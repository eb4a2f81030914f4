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
  grpc::Status TryAbort(const v1::AbortRequest& request) {
    grpc::ClientContext context;
    aborted_.Clear();
    return admin_->Abort(&context, request, &aborted_);
  }
  v1::AbortResponse Abort(const std::string& request) {
    EXPECT_TRUE(TryAbort(Proto<v1::AbortRequest>(request)).ok());
    return aborted_;
  }
  grpc::Status Drain(const std::string& request) {
    grpc::ClientContext context;
    return admin_->Drain(&context, Proto<v1::DrainRequest>(request), &drained_);
  }
  // Of a client that waits for the answer.
  std::future<grpc::Status> Flush() {
    return std::async(std::launch::async, [this] {
      grpc::ClientContext context;
      return admin_->FlushPrefixCache(&context, {}, &flushed_);
    });
  }

  v1::AbortResponse aborted_;
  v1::DrainResponse drained_;
  v1::FlushPrefixCacheResponse flushed_;
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
  EXPECT_THAT(GetLoad(), HasFields(R"(
      queued_requests: 1 queued_tokens: 2 running_sequences: 3 parked_sequences: 4
      kv_blocks_total: 5 kv_blocks_used: 6 kv_blocks_cached: 7 prefill_tokens_per_second: 8.5
      decode_tokens_per_second: 9.5 estimated_queue_time { seconds: 10 nanos: 500000000 }
      steps: 11 last_step_age { seconds: 12 } uptime { seconds: 120 }
      prefix_cache { queried_tokens: 14 hit_tokens: 15 evicted_blocks: 16 published_blocks: 17 }
      preemptions: 18 finished_requests: 19)"));
  EXPECT_FALSE(GetLoad().draining());
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
  EXPECT_THAT(Abort("request_ids: 'mine'"), IsProto("aborted: 'mine' aborted_total: 1"));
  const grpc::Status status = ReadToTheEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(ReasonIn(status), "ABORTED_BY_ADMIN");
  EXPECT_EQ(Trailer("tlm-prompt-tokens"), "5");
  EXPECT_EQ(Trailer("tlm-completion-tokens"), "2");
  EXPECT_TRUE(stream_->detached());
}

TEST_F(AdminServiceTest, AllOutputsOfARequestThatWaitsAreAborted) {
  Merge("request_id: 'three' sampling { num_sequences: 3 }", request_);
  Start();
  EXPECT_THAT(Abort("request_ids: 'three'").aborted(), ElementsAre("three"));
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::ABORTED);
  for (const auto& stream : streams_) EXPECT_TRUE(stream->detached());
}

TEST_F(AdminServiceTest, UnknownAndFinishedNamesAreReported) {
  request_.set_request_id("done");
  Start();
  PushStart();
  ReadToTheEndAfter();
  const v1::AbortResponse response = Abort("request_ids: ['done', 'never', '', 'never']");
  EXPECT_THAT(response.aborted(), IsEmpty());
  EXPECT_THAT(response.not_found(), UnorderedElementsAre("done", "never", ""));
  EXPECT_EQ(response.aborted_total(), 0u);
}

TEST_F(AdminServiceTest, ANameGivenTwiceIsEndedOnceAndFound) {
  request_.set_request_id("mine");
  Start();
  const v1::AbortResponse response = Abort("request_ids: ['mine', 'mine'] all: true");
  EXPECT_THAT(response.aborted(), ElementsAre("mine"));
  EXPECT_THAT(response.not_found(), IsEmpty());
  EXPECT_EQ(ReadToTheEnd().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(AdminServiceTest, AbortAllEndsCallsOfEveryKind) {
  request_.set_request_id("generate");
  Start();
  grpc::ClientContext forward_context;
  const auto rows = stub_->Forward(&forward_context, Proto<v1::ForwardRequest>(R"(
      request_id: "forward" sequences { ids: 1 })"));
  engine_.WaitForRequest(1);
  auto scored = std::async(std::launch::async, [this] {
    grpc::ClientContext context;
    v1::ScoreResponse scores;
    return stub_->Score(&context, Proto<v1::ScoreRequest>(R"(request_id: "score"
        prompt_token_ids { ids: 1 } continuations { token_ids { ids: 2 } })"),
                        &scores);
  });
  engine_.WaitForRequest(2);
  EXPECT_THAT(Abort("all: true").aborted(), UnorderedElementsAre("generate", "forward", "score"));
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
  EXPECT_EQ(Abort("").aborted_total(), 0u);
  EXPECT_FALSE(stream_->detached());
}

TEST_F(AdminServiceTest, AbortBoundsItsNames) {
  v1::AbortRequest many;
  for (int i = 0; i <= kMaxAbortIds; ++i) many.add_request_ids("x");
  EXPECT_EQ(TryAbort(many).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::AbortRequest long_name;
  long_name.add_request_ids("x");
  long_name.add_request_ids(std::string(129, 'x'));
  const grpc::Status status = TryAbort(long_name);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldIn(status), "request_ids[1]");
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
    const v1::AbortResponse response = Abort("request_ids: '" + id + "'");
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
    while (!stop) Abort("all: true");
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
  ASSERT_TRUE(Drain("time_limit { seconds: 5 }").ok());
  EXPECT_THAT(drained_, IsProto("active_requests: 1"));
  EXPECT_TRUE(GetLoad().draining());
  ASSERT_TRUE(Drain("time_limit { seconds: 50 }").ok());
  EXPECT_TRUE(drained_.already_draining());
  EXPECT_EQ(shutdown_.Wait().drain_limit, absl::Seconds(5));
}

TEST_F(AdminServiceTest, DrainWithoutALimitLeavesItToTheServer) {
  ASSERT_TRUE(Drain("").ok());
  EXPECT_EQ(drained_.active_requests(), 0u);
  EXPECT_EQ(shutdown_.Wait().drain_limit, std::nullopt);
}

TEST_F(AdminServiceTest, DrainAfterASignalSaysSo) {
  shutdown_.Ask({});
  ASSERT_TRUE(Drain("").ok());
  EXPECT_TRUE(drained_.already_draining());
}

TEST_F(AdminServiceTest, DrainRefusesATimeThatIsNone) {
  for (const std::string time :
       {"seconds: -1", "nanos: -1", "nanos: 1000000000", "seconds: 1000000000000"}) {
    const grpc::Status status = Drain("time_limit { " + time + " }");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << time;
    EXPECT_EQ(FieldIn(status), "time_limit");
  }
  EXPECT_FALSE(shutdown_.asked());
}

TEST_F(AdminServiceTest, FlushAnswersWhenTheEngineHasDoneIt) {
  std::future<grpc::Status> flushed = Flush();
  engine_.WaitForFlush()(42);
  EXPECT_TRUE(flushed.get().ok());
  EXPECT_EQ(flushed_.blocks_freed(), 42u);
}

TEST_F(AdminServiceTest, AFlushOutlivesAClientThatDoesNotWait) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(30));
  EXPECT_EQ(admin_->FlushPrefixCache(&context, {}, &flushed_).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  engine_.WaitForFlush()(42);
}

TEST_F(AdminServiceTest, AFlushThatIsNeverAnsweredDoesNotHoldUpTheEnd) {
  std::future<grpc::Status> flushed = Flush();
  const std::function<void(int64_t)> done = engine_.WaitForFlush();
  admin_server_->Shutdown(std::chrono::system_clock::now());
  EXPECT_FALSE(flushed.get().ok());
  done(0);
}

TEST_F(AdminServiceTest, ConfigIsWhatTheServerWasStartedWith) {
  grpc::ClientContext context;
  v1::GetConfigResponse config;
  ASSERT_TRUE(admin_->GetConfig(&context, v1::GetConfigRequest(), &config).ok());
  EXPECT_THAT(config, IsProto(R"(
      options { name: "host" value: "::1" default_value: "127.0.0.1" }
      options { name: "port" value: "1" default_value: "2" })"));
}

}  // namespace
}  // namespace tlm
