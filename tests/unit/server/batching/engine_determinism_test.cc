// Same request, same tokens, whatever the schedule.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

constexpr int64_t kContext = 6 * 64;

class EngineDeterminismTest : public ::testing::TestWithParam<int> {
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
    return setup;
  }

  Request RandomGenerate() {
    const int64_t prompt = Between(1, kContext - 1);
    Request request = GenerateRequest(Prompt(prompt, random_()), Between(1, 200));
    GenerateWork& work = *request.generate;
    work.sampling.temperature = OneIn(2) ? 0.0f : 0.9f;
    work.sampling.top_k = OneIn(2) ? 0 : 20;
    work.sampling.seed = random_();
    work.output_index = static_cast<uint32_t>(Between(0, 3));
    if (OneIn(3)) work.stop.eos_token_ids = {static_cast<int32_t>(Between(0, 60))};
    work.stop.min_new_tokens = Between(0, 30);
    return request;
  }

  Request RandomForward() {
    const int64_t prompt = Between(1, kContext);
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < prompt; ++i) {
      if (OneIn(6) || i == prompt - 1) positions.push_back(i);
    }
    return ForwardRequest(Prompt(prompt, random_()), positions, nullptr);
  }

  struct Submitted {
    Request request;  // a copy
    std::shared_ptr<CollectingReader> reader;
    bool detached = false;
  };

  Submitted SubmitOne(LoopBench& bench) {
    Request request = OneIn(4) ? RandomForward() : RandomGenerate();
    request.priority = static_cast<int32_t>(Between(-1, 1));
    Submitted submitted{.request = request, .reader = nullptr};
    submitted.reader = bench.Submit(std::move(request), Between(1, 10), /*paused=*/OneIn(3));
    return submitted;
  }

  // A cancelled one has received a beginning of it.
  static void ExpectAsAlone(const Submitted& submitted) {
    const CollectingReader::Collected collected = submitted.reader->collected();
    ASSERT_EQ(collected.ends.size(), 1);
    const bool cancelled = collected.ends[0].status.code() == absl::StatusCode::kCancelled;
    ASSERT_TRUE(collected.ends[0].status.ok() || (submitted.detached && cancelled))
        << collected.ends[0].status;
    if (submitted.request.generate.has_value()) {
      std::vector<int32_t> expected = GenerateAlone(submitted.request, kContext);
      if (cancelled) {
        ASSERT_LE(collected.tokens.size(), expected.size());
        expected.resize(collected.tokens.size());
      }
      EXPECT_EQ(collected.token_ids(), expected);
      return;
    }
    const std::vector<int64_t>& positions = submitted.request.forward->positions;
    if (!cancelled) {
      ASSERT_EQ(collected.rows.size(), positions.size());
    }
    for (size_t i = 0; i < collected.rows.size(); ++i) {
      ASSERT_EQ(collected.rows[i].position, positions[i]);
      const std::span<const int32_t> before =
          std::span(submitted.request.prompt).first(static_cast<size_t>(positions[i]) + 1);
      ASSERT_EQ(collected.rows[i].logits, ScriptedModel::LogitsAfter(before));
    }
  }

  std::mt19937 random_{static_cast<uint32_t>(GetParam())};
};

TEST_P(EngineDeterminismTest, EveryScheduleGivesWhatRunningAloneGives) {
  LoopBench bench(RandomSetup());
  std::vector<Submitted> all;
  for (int i = 0; i < 10; ++i) all.push_back(SubmitOne(bench));
  int64_t arrivals_left = 15;
  for (int64_t step = 0; bench.ended < static_cast<int64_t>(all.size()) || arrivals_left > 0;
       ++step) {
    ASSERT_LT(step, 200000) << "no end in sight";
    if (arrivals_left > 0 && OneIn(5)) {
      all.push_back(SubmitOne(bench));
      --arrivals_left;
    }
    if (OneIn(40)) {
      Submitted& unlucky =
          all[static_cast<size_t>(Between(0, static_cast<int64_t>(all.size()) - 1))];
      unlucky.reader->stream()->Detach();
      unlucky.detached = true;
    }
    const bool computed = bench.Step();
    for (const Submitted& submitted : all) {
      if (!computed || OneIn(6)) submitted.reader->TakeNow();
    }
  }
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  EXPECT_EQ(bench.queue->waiting().requests, 0);
  for (const Submitted& submitted : all) {
    submitted.reader->TakeNow();
    ExpectAsAlone(submitted);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EngineDeterminismTest, ::testing::Range(0, 150));

}  // namespace
}  // namespace tlm
