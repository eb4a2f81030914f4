#include "server/batching/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <semaphore>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/server/batching/engine_fixture.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using Collected = CollectingReader::Collected;

TEST_F(EngineTest, RefusesOptionsTheModelCannotServe) {
  ScriptedModel small(kLimits, 7);
  const struct {
    EngineOptions options;
    const char* message;
    ScriptedModel* model = nullptr;
  } kCases[] = {
      {{.max_batch_tokens = 513}, "max_batch_tokens is 513, the model's batches have at most 512"},
      {{.max_batch_tokens = 0}, "max_batch_tokens is 0"},
      {{.max_prefill_tokens = 0}, "max_prefill_tokens"},
      {{.max_running_requests = 65}, "at most 64 sequences"},
      {{.max_queued_requests = 0}, "max_queued_requests"},
      {{.max_queue_time = absl::ZeroDuration()}, "max_queue_time is 0"},
      {{.max_decode_stretch = 0.5}, "max_decode_stretch is 0.5"},
      {{}, "7 blocks of 64 tokens, one sequence of max_context 512", &small},
  };
  for (const auto& [options, message, model] : kCases) {
    EXPECT_THAT(Engine::Start(model != nullptr ? *model : model_, options, *Clock::Monotonic()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
  // What is at the limits is taken.
  Start({.max_batch_tokens = 512, .max_running_requests = 64});
  Start({.max_decode_stretch = 1});
}

TEST_F(EngineTest, RefusesWhatItCannotRun) {
  Start();
  const auto with = [](Request request, auto change) {
    change(request, *request.generate());
    return request;
  };
  const auto claim = [&](int64_t tokens, std::shared_ptr<TokenStream> stream, auto change) {
    Request request = GenerateRequest(Prompt(500), 20, std::move(stream));
    request.generate()->claimed = Prompt(tokens);
    return with(std::move(request), change);
  };
  const auto resumed = [&](std::vector<int32_t> generated, auto change) {
    Request request = GenerateRequest(Prompt(5), 4);
    request.generate()->stop.ending_ids = EndingIds({7});
    request.generate()->generated = std::move(generated);
    return with(std::move(request), change);
  };
  const auto as_it_is = [](Request&, GenerateWork&) {};
  const auto of_two_outputs = [](Request& request, GenerateWork&) {
    request.branch_streams = {UnreadStream()};
  };
  std::pair<Request, const char*> cases[] = {
      {GenerateRequest({}, 1), "no tokens"},
      {GenerateRequest(Prompt(513), 1), "513 tokens, the limit is 512"},
      {GenerateRequest(Prompt(5), 0), "max_new_tokens is 0"},
      {GenerateRequest(Prompt(5), 1, UnreadStream(0)), "no tokens"},
      {with(GenerateRequest(Prompt(5), 1),
            [](Request& request, GenerateWork&) {
              request.branch_streams.assign(64, UnreadStream());
            }),
       "65 outputs are wanted of one prompt, max_running_requests is 64"},
      {ForwardRequest(Prompt(5), {}, UnreadStream(1)), "no position"},
      {ForwardRequest(Prompt(5), {2, 2}, UnreadStream(1)), "not ascend"},
      {ForwardRequest(Prompt(5), {5}, UnreadStream(1)), "length 5"},
      {ForwardRequest(Prompt(5), {4}, UnreadStream(0)), "no rows"},
      {ScoreRequestFor(Prompt(5), {1}, UnreadStream(9)), "bounded"},
      {ScoreRequestFor(Prompt(5), {}), "no continuation"},
      {ScoreRequestFor(Prompt(5), {2, 0}), "continuation 1 has no tokens"},
      {ScoreRequestFor({}, {2}), "no tokens"},
      {ScoreRequestFor(Prompt(500), {12, 13}),
       "the prompt and continuation 1 have 513 tokens, the limit is 512"},
      {claim(13, UnreadStream(), as_it_is),
       "the prompt and the claimed output have 513 tokens, the limit is 512"},
      {claim(3, UnreadStream(2), as_it_is), "holds 2 tokens, 3 are claimed"},
      {claim(3, UnreadStream(), [](Request&, GenerateWork& work) { work.score_prompt = true; }),
       "prompt scores cannot be verified"},
      {claim(3, UnreadStream(), of_two_outputs), "several outputs"},
      {resumed({1, 7, 2}, as_it_is), "ends at index 1 and has 3 tokens"},
      {resumed({1, 2, 3, 4, 5}, as_it_is), "ends at index 3 and has 5 tokens"},
      {resumed({1, 2}, [](Request& request, GenerateWork&) { request.prompt = Prompt(511); }),
       "513 tokens, the limit is 512"},
      {resumed({1}, of_two_outputs), "several outputs"},
  };
  for (auto& [request, message] : cases) {
    EXPECT_THAT(engine_->Submit(std::move(request)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::ZeroDuration()));
  // What is at the limits is taken.
  Request taken[] = {
      GenerateRequest(Prompt(512), 1),
      with(GenerateRequest(Prompt(5), 1),
           [](Request& request, GenerateWork&) {
             for (int i = 1; i < 64; ++i) request.branch_streams.push_back(UnreadStream());
           }),
      ScoreRequestFor(Prompt(500), {12, 1}), claim(12, UnreadStream(12), as_it_is),
      resumed({1, 2}, [](Request& request, GenerateWork&) { request.prompt = Prompt(510); })};
  for (Request& request : taken) EXPECT_THAT(engine_->Submit(std::move(request)), IsOk());
}

TEST_F(EngineTest, RefusesMoreThanTheQueueHolds) {
  Start({.max_running_requests = 1, .max_queued_requests = 1});
  gate_.Close();
  Submit(GenerateRequest(Prompt(5), 2));
  gate_.WaitForArrival();  // admitted
  EXPECT_THAT(engine_->CheckOpen(), IsOk());
  Submit(GenerateRequest(Prompt(6), 2));
  EXPECT_EQ(ReasonOf(engine_->CheckOpen()), "QUEUE_FULL");
  Request third = GenerateRequest(Prompt(7), 2);
  EXPECT_EQ(ReasonOf(engine_->Submit(std::move(third))), "QUEUE_FULL");
  third.deadline = Clock::Monotonic()->Now() - absl::Seconds(1);
  const absl::Status late = engine_->Submit(std::move(third));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(late), "EXPIRED_IN_QUEUE");
  EXPECT_NE(third.stream, nullptr);
}

// These engines have nothing to compute when they must notice something.

TEST_F(EngineTest, AParkedForwardGoesOnWhenItsReaderTakes) {
  Start();
  const auto reader = Submit(ForwardRequest(Prompt(60), AllPositions(60), nullptr),
                             /*capacity=*/20, /*paused=*/true);
  for (size_t rows = 20; rows <= 60; rows += 20) {
    reader->WaitForCalls(static_cast<int64_t>(rows) / 20);
    reader->TakeNow();
    EXPECT_EQ(reader->collected().rows.size(), rows);
  }
  EXPECT_THAT(reader->collected().ends[0].status, IsOk());
}

TEST_F(EngineTest, AParkedForwardEndsWhenItsReaderLetsGoOrAtItsDeadline) {
  for (const bool detached : {true, false}) {
    FakeClock clock;
    Start({}, clock);
    Request request = ForwardRequest(Prompt(60), AllPositions(60), nullptr);
    request.deadline = clock.Now() + absl::Milliseconds(20);
    const auto reader = Submit(std::move(request), /*capacity=*/20, /*paused=*/true);
    reader->WaitForCalls(1);
    if (detached) {
      reader->stream()->Detach();
    } else {
      clock.Advance(absl::Milliseconds(20));  // without a notification: the engine wakes by itself
    }
    EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
    reader->TakeNow();
    EXPECT_EQ(reader->collected().ends[0].status.code(),
              detached ? absl::StatusCode::kCancelled : absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(engine_->Stats().kv_blocks_used, 0);
    engine_.reset();
  }
}

TEST_F(EngineTest, StatsTellWhatIsGoingOn) {
  Start({.max_running_requests = 1});
  EXPECT_EQ(engine_->Stats().kv_blocks_total, 64);
  gate_.Close();
  Submit(GenerateRequest(Prompt(70), 2));
  gate_.WaitForArrival();
  Submit(GenerateRequest(Prompt(30), 2));
  const EngineStats stuck = engine_->Stats();
  EXPECT_TRUE(stuck.busy);
  EXPECT_LE(stuck.last_progress, Clock::Monotonic()->Now());
  EXPECT_EQ(stuck.waiting_requests, 1);
  EXPECT_EQ(stuck.waiting_tokens, 30);
  EXPECT_EQ(engine_->Stats().last_progress, stuck.last_progress);
  gate_.Open();
  ASSERT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  const EngineStats after = engine_->Stats();
  EXPECT_GT(after.last_progress, stuck.last_progress);
  EXPECT_EQ(after.finished_requests, 2);
  EXPECT_EQ(after.prefill_tokens, 100);
  EXPECT_EQ(after.decode_tokens, 2);
  EXPECT_EQ(after.waiting_tokens, 0);
  EXPECT_THAT(after.fault, IsOk());
}

// An engine whose steps take a millisecond for every token.
class TimedEngineTest : public ::testing::Test {
 protected:
  void Start(const EngineOptions& options) {
    model_.set_on_forward([this](const Batch& batch) {
      clock_.Advance(absl::Milliseconds(1) * static_cast<int64_t>(batch.token_ids.size()));
    });
    auto engine = Engine::Start(model_, options, clock_);
    ASSERT_THAT(engine, IsOk());
    engine_ = *std::move(engine);
  }
  Collected Run(Request request) {
    const auto reader = CollectingReader::Create();
    request.stream = reader->stream();
    EXPECT_THAT(engine_->Submit(std::move(request)), IsOk());
    const Collected collected = reader->WaitForEnd();
    EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
    return collected;
  }
  Request Within(absl::Duration time, Request request) {
    request.deadline = clock_.Now() + time;
    return request;
  }

  FakeClock clock_;
  ScriptedModel model_{kLimits, 64};
  std::unique_ptr<Engine> engine_;
};

TEST_F(TimedEngineTest, RefusesWhatTheMeasuredRatesCannotReach) {
  Start({});
  const auto unreachable = [this](absl::Duration time, Request request) {
    return ReasonOf(engine_->Submit(Within(time, std::move(request)))) == "INFEASIBLE";
  };
  const absl::Duration tight = absl::Milliseconds(150);
  EXPECT_THAT(Run(GenerateRequest(Prompt(400, 1), 30)).ends[0].status, IsOk());
  for (uint32_t seed = 2; seed < 5; ++seed) Run(GenerateRequest(Prompt(400, seed), 2));
  // 400 ms for the prompt, unless it may lie in the cache: then the engine looks.
  Request bypassing = GenerateRequest(Prompt(400, 9), 1);
  bypassing.cache.bypass = true;
  EXPECT_TRUE(unreachable(tight, bypassing));
  EXPECT_FALSE(unreachable(absl::Milliseconds(250), bypassing));
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  EXPECT_THAT(Run(Within(tight, GenerateRequest(Prompt(400, 1), 1))).ends[0].status, IsOk());
  EXPECT_EQ(ReasonOf(Run(Within(tight, GenerateRequest(Prompt(400, 9), 1))).ends[0].status),
            "INFEASIBLE");
  // A millisecond for each of 400 tokens.
  Request long_output = GenerateRequest(Prompt(4), 400);
  EXPECT_FALSE(unreachable(tight, long_output));
  long_output.generate()->stop.min_new_tokens = 400;
  EXPECT_TRUE(unreachable(tight, long_output));
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
}

TEST_F(TimedEngineTest, StatsTellThePace) {
  Start({.prefix_cache = false});
  for (uint32_t seed = 0; seed < 4; ++seed) Run(GenerateRequest(Prompt(100, seed), 101));
  const EngineStats stats = engine_->Stats();
  EXPECT_NEAR(stats.prefill_tokens_per_second, 500, 100);
  EXPECT_NEAR(stats.decode_tokens_per_second, 500, 100);
  EXPECT_EQ(stats.estimated_queue_time, absl::ZeroDuration());
  clock_.Advance(absl::Minutes(5));
  EXPECT_LT(engine_->Stats().decode_tokens_per_second, 1);
}

TEST_F(EngineTest, IsIdleWhenTheLastOutputHasEnded) {
  Start();
  gate_.Close();
  Request request = GenerateRequest(Prompt(100), 20);
  request.generate()->sampling.temperature = 1;
  const Request copy = request;
  const auto second = CollectingReader::Create();
  request.branch_streams = {second->stream()};
  const auto first = Submit(std::move(request));
  gate_.WaitForArrival();
  EXPECT_FALSE(engine_->WaitUntilIdle(absl::ZeroDuration()));
  gate_.Open();
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  EXPECT_EQ(engine_->Stats().finished_requests, 1);
  ExpectAsAlone(first->WaitForEnd(), copy, kContext);
  ExpectAsAlone(second->WaitForEnd(), OnlyOutput(copy, 1), kContext);
}

class EventReader : public KvEventListener {
 public:
  void OnKvEvents() override { calls.release(); }
  std::counting_semaphore<> calls{0};
};

TEST_F(EngineTest, TellsOfItsPrefixCacheOnlyIfAsked) {
  Start();
  EXPECT_EQ(engine_->kv_events(), nullptr);
  EXPECT_FALSE(engine_->Stats().kv_events.has_value());
  Start({.prefix_cache = false, .kv_events = {.enabled = true}});
  EXPECT_EQ(engine_->kv_events(), nullptr);
}

TEST_F(EngineTest, ARequestsKvEventsComeBeforeItsEnd) {
  Start({.kv_events = {.enabled = true}});
  const auto reader = std::make_shared<EventReader>();
  auto subscription = engine_->kv_events()->Subscribe("tenant", 0, reader).value();
  EXPECT_TRUE(subscription->Next()->snapshot.has_value());
  EXPECT_EQ(subscription->Next(), nullptr);
  Request request = GenerateRequest(Prompt(130), 1);
  request.tenant = "tenant";
  request.cache.salt = "salt";
  Submit(std::move(request))->WaitForEnd();
  const auto stored = subscription->Next();
  ASSERT_NE(stored, nullptr);
  ASSERT_EQ(stored->events.size(), 1u);
  ASSERT_EQ(stored->events[0].blocks.size(), 2u);
  const KvBlock& block = *stored->events[0].blocks[1];
  EXPECT_EQ(block.scope->salt, "salt");
  const std::vector<int32_t> prompt = Prompt(130);
  EXPECT_EQ(std::vector(block.tokens.begin(), block.tokens.end()),
            std::vector(prompt.begin() + 64, prompt.begin() + 128));
  EXPECT_EQ(engine_->Stats().kv_events->stored_blocks, 2);
  reader->calls.acquire();

  EXPECT_EQ(subscription->Next(), nullptr);
  engine_->FlushPrefixCache([](int64_t) {});
  reader->calls.acquire();
  EXPECT_EQ(subscription->Next()->events.at(0).kind, KvEvent::Kind::kCleared);
  EXPECT_EQ(subscription->Next(), nullptr);
  EXPECT_FALSE(subscription->closed());
  engine_->Stop();
  reader->calls.acquire();
  EXPECT_TRUE(subscription->closed());
}

}  // namespace
}  // namespace tlm
