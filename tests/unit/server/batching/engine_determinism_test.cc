// Same request, same tokens, whatever the schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using Collected = CollectingReader::Collected;

constexpr int64_t kContext = 6 * 64;

// A seed, and how many batches the model takes at a time.
class EngineDeterminismTest : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(uint32_t n) { return random_() % n == 0; }

  // Blocks for little more than one sequence, so that preemption is common.
  LoopSetup RandomSetup() {
    LoopSetup setup{
        .blocks = Between(6, 16), .max_context = kContext, .max_logits_rows = Between(1, 24)};
    setup.options.max_batch_tokens = Between(1, 150);
    setup.options.max_prefill_tokens = Between(1, 150);
    setup.options.max_running_requests = Between(1, 12);
    setup.options.prefix_cache = !OneIn(4);
    setup.options.max_decode_stretch = OneIn(4) ? 2 : 0;
    setup.options.short_prompt_tokens = OneIn(2) ? 0 : 70;
    setup.options.max_mask_wait = OneIn(3) ? absl::ZeroDuration() : absl::Seconds(10);
    setup.options.max_run_wait = OneIn(2) ? 0 : 1e9;
    setup.max_launched = std::get<1>(GetParam());
    setup.own_thread = OneIn(4) && setup.max_launched == 1;
    return setup;
  }

  // Many begin alike.
  std::vector<int32_t> RandomPrompt(int64_t tokens) {
    return Prompt(tokens, OneIn(2) ? static_cast<uint32_t>(Between(0, 2)) : random_());
  }

  Request RandomGenerate() {
    const int64_t prompt = Between(1, kContext - 1);
    Request request = GenerateRequest(RandomPrompt(prompt), Between(1, 200));
    GenerateWork& work = *request.generate();
    work.sampling.temperature = OneIn(2) ? 0.0f : 0.9f;
    work.sampling.top_k = OneIn(2) ? 0 : 20;
    work.sampling.seed = random_();
    work.output_index = static_cast<uint32_t>(Between(0, 3));
    if (OneIn(3)) work.stop.ending_ids = EndingIds({static_cast<int32_t>(Between(0, 60))});
    work.stop.min_new_tokens = Between(0, 30);
    if (OneIn(3)) Constrain(work);
    if (OneIn(8)) work.sampling.logit_bias = {{static_cast<int32_t>(Between(0, 60)), 2.0f}};
    return request;
  }

  void Constrain(GenerateWork& work) {
    std::vector<int32_t> eos;
    std::vector<int32_t> stop;
    if (!OneIn(4)) eos.push_back(ScriptedModel::kVocabSize - 1);
    if (OneIn(4)) stop.push_back(ScriptedModel::kVocabSize - 2);
    if (OneIn(4)) stop.push_back(static_cast<int32_t>(Between(0, 25)));
    work.stop.ending_ids = EndingIds(std::move(eos), std::move(stop));
    if (OneIn(4)) work.score = {.logprob = true};
    if (OneIn(8)) work.sampling.banned_token_ids = {static_cast<int32_t>(Between(0, 60))};
    std::vector<int32_t> end_ids = work.stop.ending_ids.all();
    std::erase_if(end_ids, [](int32_t id) { return id < ScriptedModel::kVocabSize - 2; });
    work.constraint = ChoicesConstraint(RandomChoices(random_()), end_ids);
  }

  Request RandomForward() {
    const int64_t prompt = Between(1, kContext);
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < prompt; ++i) {
      if (OneIn(6) || i == prompt - 1) positions.push_back(i);
    }
    return ForwardRequest(RandomPrompt(prompt), positions, nullptr);
  }

  Request RandomScore() {
    const int64_t prompt = Between(1, kContext - 1);
    std::vector<int64_t> lengths;
    for (int64_t i = Between(1, 4); i > 0; --i) {
      lengths.push_back(OneIn(2) ? Between(1, 3) : Between(1, kContext - prompt));
      lengths.back() = std::min(lengths.back(), kContext - prompt);
    }
    return ScoreRequestFor(RandomPrompt(prompt), lengths);
  }

  // With what keeps state between tokens, and what is computed before the first.
  Request RandomOutputs() {
    Request request = RandomGenerate();
    request.generate()->score_prompt = OneIn(3);
    if (OneIn(3)) request.generate()->sampling.frequency_penalty = 0.5f;
    if (OneIn(3)) request.generate()->sampling.repetition_penalty = 1.2f;
    return request;
  }

  // Goes on where another engine stopped.
  Request RandomResumed() {
    Request request = RandomGenerate();
    std::vector<int32_t> alone = GenerateAlone(request, kContext);
    if (alone.empty()) return request;
    alone.resize(static_cast<size_t>(Between(0, static_cast<int64_t>(alone.size()) - 1)));
    if (auto& constraint = request.generate()->constraint; constraint.has_value()) {
      for (const int32_t token : alone) EXPECT_TRUE(constraint->matcher.Accept(token));
    }
    request.generate()->generated = std::move(alone);
    return request;
  }

  Request RandomRequest() {
    switch (Between(0, 4)) {
      case 0:
        return RandomForward();
      case 1:
        return RandomScore();
      case 2:
        return RandomOutputs();
      case 3:
        return RandomResumed();
      default:
        return RandomGenerate();
    }
  }

  // One output of a request.
  struct Submitted {
    Request request;  // for this output alone
    std::shared_ptr<CollectingReader> reader;
    bool detached = false;
  };

  std::vector<Submitted> SubmitOne(LoopBench& bench, int64_t max_outputs) {
    const absl::Time now = bench.clock.Now();
    Request request = RandomRequest();
    request.priority = static_cast<int32_t>(Between(-1, 1));
    request.tenant = OneIn(4) ? "other" : "";
    if (request.generate() != nullptr && OneIn(8)) {
      request.soft_deadline = now + absl::Milliseconds(Between(1, 5000));
    }
    request.cache = {.bypass = OneIn(8), .salt = OneIn(8) ? "pepper" : ""};
    ++requests_;
    std::vector<Submitted> outputs;
    if (request.generate() != nullptr && request.generate()->generated.empty() && OneIn(2)) {
      const auto readers = bench.SubmitOutputs(
          request, Between(1, std::min<int64_t>(max_outputs, 5)), OneIn(3), Between(1, 20));
      for (uint32_t i = 0; i < readers.size(); ++i) {
        outputs.push_back({.request = OnlyOutput(request, i), .reader = readers[i]});
      }
    } else {
      outputs.push_back({.request = request, .reader = nullptr});
      const int64_t capacity =
          request.score() != nullptr ? TokenStream::kUnbounded : Between(1, 10);
      outputs[0].reader = bench.Submit(std::move(request), capacity, /*paused=*/OneIn(3));
    }
    return outputs;
  }

  // One that was cancelled, timed out or hit by a fault has received a beginning of it.
  void ExpectSubmittedAsAlone(const Submitted& submitted) const {
    const Collected collected = submitted.reader->collected();
    ASSERT_EQ(collected.ends.size(), 1);
    ASSERT_LE(collected.starts.size(), 1);
    const StreamEnd& end = collected.ends[0];
    const bool cut_short =
        !end.status.ok() || (end.reason == FinishReason::kTimeLimit &&
                             submitted.request.soft_deadline < absl::InfiniteFuture());
    ASSERT_TRUE(end.status.ok() ||
                (submitted.detached && end.status.code() == absl::StatusCode::kCancelled) ||
                (faults_ > 0 && end.status.code() == absl::StatusCode::kInternal))
        << end.status;
    ExpectAsAlone(collected, submitted.request, kContext, cut_short);
  }

  void RunSchedule(bool with_faults);

  std::mt19937 random_{static_cast<uint32_t>(std::get<0>(GetParam()))};
  int64_t requests_ = 0;
  int64_t faults_ = 0;
};

void EngineDeterminismTest::RunSchedule(bool with_faults) {
  const LoopSetup setup = RandomSetup();
  LoopBench bench(setup);
  bench.model.set_on_forward(
      [&](const Batch& batch) { bench.clock.Advance(absl::Milliseconds(5 + batch.tokens())); });
  std::vector<Submitted> all;
  const auto submit = [&] {
    for (Submitted& output : SubmitOne(bench, setup.options.max_running_requests)) {
      all.push_back(std::move(output));
    }
  };
  for (int i = 0; i < 8; ++i) submit();
  int64_t arrivals_left = 10;
  for (int64_t step = 0; bench.ended < requests_ || arrivals_left > 0; ++step) {
    ASSERT_LT(step, 200000) << "no end in sight";
    if (arrivals_left > 0 && OneIn(5)) {
      submit();
      --arrivals_left;
    }
    if (OneIn(40)) {
      Submitted& unlucky =
          all[static_cast<size_t>(Between(0, static_cast<int64_t>(all.size()) - 1))];
      unlucky.reader->stream()->Detach();
      unlucky.detached = true;
    }
    if (OneIn(200)) bench.loop.FlushPrefixCache();
    if (with_faults && OneIn(50)) {
      bench.model.FailOnce(absl::InternalError("lost"));
      ++faults_;
    }
    const bool computed = bench.Step();
    if (!computed) bench.queue->WaitForWork(absl::Microseconds(20));
    for (const Submitted& submitted : all) {
      if (!computed || OneIn(6)) submitted.reader->TakeNow();
    }
  }
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  EXPECT_EQ(bench.queue->waiting().requests, 0);
  EXPECT_EQ(bench.queue->waiting().prompt_tokens, 0);
  EXPECT_EQ(bench.stats.finished_requests, requests_);
  for (const Submitted& submitted : all) {
    submitted.reader->TakeNow();
    ExpectSubmittedAsAlone(submitted);
  }
}

TEST_P(EngineDeterminismTest, EveryScheduleGivesWhatRunningAloneGives) {
  RunSchedule(/*with_faults=*/false);
}

class EngineFaultsDeterminismTest : public EngineDeterminismTest {};

TEST_P(EngineFaultsDeterminismTest, WhatNoFaultHitsIsAsIfThereWereNone) {
  RunSchedule(/*with_faults=*/true);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineDeterminismTest,
                         ::testing::Combine(::testing::Range(0, 150), ::testing::Values(1, 2)));
INSTANTIATE_TEST_SUITE_P(Seeds, EngineFaultsDeterminismTest,
                         ::testing::Combine(::testing::Range(0, 50), ::testing::Values(1, 2)));

}  // namespace
}  // namespace tlm
