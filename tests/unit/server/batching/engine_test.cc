#include "server/batching/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST_F(EngineTest, GeneratesWhatTheModelSays) {
  Start();
  const auto reader = Submit(GenerateRequest(Prompt(100), 20));
  const Collected collected = reader->WaitForEnd();
  EXPECT_EQ(collected.token_ids(), GenerateAlone(GenerateRequest(Prompt(100), 20), kContext));
  EXPECT_EQ(collected.starts.size(), 1);
  EXPECT_THAT(collected.ends[0].status, IsOk());
  EXPECT_GE(collected.ends[0].queue_time, absl::ZeroDuration());
}

TEST_F(EngineTest, RefusesOptionsTheModelCannotServe) {
  const auto start = [this](EngineOptions options) {
    return Engine::Start(model_, options, *Clock::Monotonic()).status();
  };
  EXPECT_THAT(start({.max_batch_tokens = 513}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("max_batch_tokens is 513, the model's batches have at most 512")));
  EXPECT_THAT(start({.max_batch_tokens = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_batch_tokens is 0")));
  EXPECT_THAT(start({.max_prefill_tokens = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_prefill_tokens")));
  EXPECT_THAT(start({.max_running_requests = 65}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 64 sequences")));
  EXPECT_THAT(start({.max_queued_requests = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_queued_requests")));
  EXPECT_THAT(start({.max_queue_time = absl::ZeroDuration()}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_queue_time is 0")));
  EXPECT_THAT(start({.max_decode_stretch = 0.5}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_decode_stretch is 0.5")));
  ScriptedModel small(kLimits, 7);
  EXPECT_THAT(Engine::Start(small, {}, *Clock::Monotonic()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("7 blocks of 64 tokens, one sequence of max_context 512")));
}

TEST_F(EngineTest, RefusesWhatItCannotRun) {
  Start();
  const auto submit = [this](Request request) { return engine_->Submit(std::move(request)); };
  const auto invalid = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(submit(GenerateRequest({}, 1)), invalid("no tokens"));
  EXPECT_THAT(submit(GenerateRequest(Prompt(513), 1)), invalid("513 tokens, the limit is 512"));
  EXPECT_THAT(submit(GenerateRequest(Prompt(5), 0)), invalid("max_new_tokens is 0"));
  EXPECT_THAT(submit(ForwardRequest(Prompt(5), {}, UnreadStream(1))), invalid("no position"));
  EXPECT_THAT(submit(ForwardRequest(Prompt(5), {2, 2}, UnreadStream(1))), invalid("not ascend"));
  EXPECT_THAT(submit(ForwardRequest(Prompt(5), {5}, UnreadStream(1))), invalid("length 5"));
  EXPECT_THAT(submit(ForwardRequest(Prompt(5), {4}, UnreadStream(0))), invalid("no rows"));
  EXPECT_THAT(submit(GenerateRequest(Prompt(5), 1, UnreadStream(0))), invalid("no tokens"));
  EXPECT_THAT(submit(ScoreRequestFor(Prompt(5), {1}, UnreadStream(9))), invalid("bounded"));
  EXPECT_THAT(submit(ScoreRequestFor(Prompt(5), {})), invalid("no continuation"));
  EXPECT_THAT(submit(ScoreRequestFor(Prompt(5), {2, 0})), invalid("continuation 1 has no tokens"));
  EXPECT_THAT(submit(ScoreRequestFor({}, {2})), invalid("no tokens"));
  EXPECT_THAT(submit(ScoreRequestFor(Prompt(500), {12, 13})),
              invalid("the prompt and continuation 1 have 513 tokens, the limit is 512"));
  Request many = GenerateRequest(Prompt(5), 1);
  for (int i = 0; i < 64; ++i) many.branch_streams.push_back(UnreadStream());
  EXPECT_THAT(submit(std::move(many)),
              invalid("65 outputs are wanted of one prompt, max_running_requests is 64"));
  const auto claim = [](int64_t tokens, std::shared_ptr<TokenStream> stream = UnreadStream()) {
    Request request = GenerateRequest(Prompt(500), 20, std::move(stream));
    request.generate()->claimed = Prompt(tokens);
    return request;
  };
  EXPECT_THAT(submit(claim(13)),
              invalid("the prompt and the claimed output have 513 tokens, the limit is 512"));
  EXPECT_THAT(submit(claim(3, UnreadStream(2))), invalid("holds 2 tokens, 3 are claimed"));
  Request scored = claim(3);
  scored.generate()->score_prompt = true;
  EXPECT_THAT(submit(std::move(scored)), invalid("prompt scores cannot be verified"));
  Request several = claim(3);
  several.branch_streams.push_back(UnreadStream());
  EXPECT_THAT(submit(std::move(several)), invalid("several outputs"));
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::ZeroDuration()));
}

TEST_F(EngineTest, SubmitMovesIfAndOnlyIfItReturnsOk) {
  Start({.max_running_requests = 1, .max_queued_requests = 1});
  EXPECT_THAT(engine_->CheckOpen(), IsOk());
  gate_.Close();
  Submit(GenerateRequest(Prompt(5), 2));
  gate_.WaitForArrival();  // admitted
  EXPECT_THAT(engine_->CheckOpen(), IsOk());
  Request second = GenerateRequest(Prompt(6), 2);
  EXPECT_THAT(engine_->Submit(std::move(second)), IsOk());
  EXPECT_EQ(second.stream, nullptr);

  Request third = GenerateRequest(Prompt(7), 2);
  const absl::Status full = engine_->Submit(std::move(third));
  EXPECT_EQ(ReasonOf(full), "QUEUE_FULL");
  EXPECT_TRUE(RetryAfterOf(full).has_value());
  EXPECT_EQ(ReasonOf(engine_->CheckOpen()), "QUEUE_FULL");
  EXPECT_EQ(third.prompt, Prompt(7));
  EXPECT_NE(third.stream, nullptr);

  third.deadline = Clock::Monotonic()->Now() - absl::Seconds(1);
  const absl::Status late = engine_->Submit(std::move(third));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(late), "EXPIRED_IN_QUEUE");
  EXPECT_NE(third.stream, nullptr);
}

// Every engine below has nothing to compute when it must notice something.

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

TEST_F(EngineTest, AParkedForwardEndsWhenItsReaderLetsGo) {
  Start();
  const auto reader = Submit(ForwardRequest(Prompt(60), AllPositions(60), nullptr),
                             /*capacity=*/20, /*paused=*/true);
  reader->WaitForCalls(1);
  reader->stream()->Detach();
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  reader->TakeNow();
  EXPECT_EQ(reader->collected().ends[0].status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(engine_->Stats().kv_blocks_used, 0);
}

TEST_F(EngineTest, AParkedForwardEndsAtItsDeadline) {
  FakeClock clock;
  Start({}, clock);
  Request request = ForwardRequest(Prompt(60), AllPositions(60), nullptr);
  request.deadline = clock.Now() + absl::Milliseconds(20);
  const auto reader = Submit(std::move(request), /*capacity=*/1, /*paused=*/true);
  reader->WaitForCalls(1);
  clock.Advance(absl::Milliseconds(20));  // without a notification: the engine wakes by itself
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  reader->TakeNow();
  EXPECT_EQ(reader->collected().ends[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  engine_.reset();
}

TEST_F(EngineTest, AParkedForwardDoesNotKeepOthersWaiting) {
  Start({.max_running_requests = 1});
  const auto parked = Submit(ForwardRequest(Prompt(60), AllPositions(60), nullptr),
                             /*capacity=*/20, /*paused=*/true);
  parked->WaitForCalls(1);
  const auto other = Submit(GenerateRequest(Prompt(60), 10));
  EXPECT_THAT(other->WaitForEnd().ends[0].status, IsOk());
  parked->Resume();
  EXPECT_EQ(parked->WaitForEnd().rows.size(), 60);
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

TEST_F(EngineTest, AFaultIsRecordedAndTheEngineGoesOn) {
  Start();
  model_.FailOnce(absl::InternalError("lost"));
  const auto failed = Submit(GenerateRequest(Prompt(5), 5));
  EXPECT_EQ(failed->WaitForEnd().ends[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(engine_->Stats().fault.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(engine_->Stats().consecutive_faults, 1);
  const auto next = Submit(GenerateRequest(Prompt(5), 5));
  EXPECT_EQ(next->WaitForEnd().token_ids(), GenerateAlone(GenerateRequest(Prompt(5), 5), kContext));
}

TEST_F(EngineTest, AGoodStepEndsAFault) {
  Start();
  model_.FailOnce(absl::InternalError("lost"));
  Submit(GenerateRequest(Prompt(5), 5))->WaitForEnd();
  Submit(GenerateRequest(Prompt(5), 5))->WaitForEnd();
  EXPECT_THAT(engine_->Stats().fault, IsOk());
  EXPECT_EQ(engine_->Stats().consecutive_faults, 0);
}

TEST_F(EngineTest, RefusesAResumedOutputThatGoesOnBehindItsEnd) {
  Start();
  const auto resumed = [](std::vector<int32_t> generated) {
    Request request = GenerateRequest(Prompt(5), 4);
    request.generate()->stop.ending_ids = EndingIds({7});
    request.generate()->generated = std::move(generated);
    return request;
  };
  const auto invalid = [this](Request request, const char* message) {
    EXPECT_THAT(engine_->Submit(std::move(request)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  invalid(resumed({1, 7, 2}), "ends at index 1 and has 3 tokens");
  invalid(resumed({1, 2, 3, 4, 5}), "ends at index 3 and has 5 tokens");
  Request full = resumed({1, 2});
  full.prompt = Prompt(kContext - 1);
  invalid(std::move(full), "513 tokens, the limit is 512");
  Request branches = resumed({1});
  branches.branch_streams = {UnreadStream()};
  invalid(std::move(branches), "several outputs");
  EXPECT_THAT(Submit(resumed({1, 2}))->WaitForEnd().ends[0].status, IsOk());
  // Whole already: nothing is missing but the end.
  const Collected whole = Submit(resumed({1, 7}))->WaitForEnd();
  EXPECT_EQ(whole.ends[0].reason, FinishReason::kEos);
  EXPECT_TRUE(whole.tokens.empty());
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
  std::vector<std::shared_ptr<CollectingReader>> branches;
  for (int i = 0; i < 40; ++i) {
    branches.push_back(CollectingReader::Create());
    request.branch_streams.push_back(branches.back()->stream());
  }
  const auto first = Submit(std::move(request));
  gate_.WaitForArrival();
  EXPECT_FALSE(engine_->WaitUntilIdle(absl::ZeroDuration()));
  gate_.Open();
  EXPECT_TRUE(engine_->WaitUntilIdle(absl::Minutes(1)));
  EXPECT_EQ(engine_->Stats().finished_requests, 1);
  EXPECT_EQ(engine_->Stats().prefill_tokens, 100);
  EXPECT_EQ(first->WaitForEnd().token_ids(), GenerateAlone(copy, kContext));
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(branches[i]->WaitForEnd().token_ids(),
              GenerateAlone(OnlyOutput(copy, i + 1), kContext));
  }
}

TEST_F(EngineTest, ScoresContinuations) {
  Start();
  const Request request = ScoreRequestFor(Prompt(100), {3, 1, 20});
  const Collected collected = Submit(request)->WaitForEnd();
  EXPECT_THAT(collected.ends[0].status, IsOk());
  const auto expected = ContinuationScoresAlone(request);
  for (size_t i = 0; i < 3; ++i) {
    ExpectScores(EntriesOf(collected.scored, static_cast<int64_t>(i)), expected[i]);
  }
}

class EventReader : public KvEventListener {
 public:
  void OnKvEvents() override {
    MutexLock lock(&mutex_);
    ++calls_;
    changed_.NotifyAll();
  }
  void WaitForCalls(int calls) {
    MutexLock lock(&mutex_);
    while (calls_ < calls) changed_.Wait(&mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int calls_ = 0;
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
  reader->WaitForCalls(1);

  EXPECT_EQ(subscription->Next(), nullptr);
  engine_->FlushPrefixCache([](int64_t) {});
  reader->WaitForCalls(2);
  EXPECT_EQ(subscription->Next()->events.at(0).kind, KvEvent::Kind::kCleared);
  EXPECT_EQ(subscription->Next(), nullptr);
  EXPECT_FALSE(subscription->closed());
  engine_->Stop();
  reader->WaitForCalls(3);
  EXPECT_TRUE(subscription->closed());
}

}  // namespace
}  // namespace tlm
