// The promise: the same request gives the same tokens and the same logits, bit for bit, whatever
// else the engine computes at the time and however it cuts the work up.
//
// Every logits row that any schedule computes is hashed and filed under the tokens before it. Two
// hashes under one entry, or a request whose results differ from those it has alone, break the
// promise. The last test shows that a backend which sums by batch size is caught.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "model/ops/cpu/cpu_ops.h"
#include "model/transformer_lm/transformer_lm.h"
#include "server/batching/engine.h"
#include "tests/golden/logits_book.h"
#include "tests/golden/random_requests.h"
#include "tests/support/batch_dependent_ops.h"
#include "tests/support/collecting_reader.h"
#include "tests/support/random_model.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr int64_t kContext = 256;

struct Schedule {
  int threads = 1;
  int64_t kv_blocks = 64;
  EngineOptions options;
};

Schedule RandomSchedule(std::mt19937_64& random) {
  Schedule schedule;
  schedule.threads = 1 + static_cast<int>(random() % 3);
  // Few blocks force preemption; one sequence alone always fits.
  schedule.kv_blocks = random() % 2 == 0 ? 4 + static_cast<int64_t>(random() % 6) : 64;
  schedule.options.max_batch_tokens = 8 + static_cast<int64_t>(random() % 300);
  schedule.options.max_prefill_tokens = 1 + static_cast<int64_t>(random() % 200);
  schedule.options.max_running_requests = kMaxOutputs + static_cast<int64_t>(random() % 6);
  return schedule;
}

struct Case {
  const char* config;
  DType dtype;  // of weights, keys and values
};

class DeterminismTest : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int kRequests = 14;

  // What every output of a set of requests gives under a schedule; cancelled ones give "".
  struct Run {
    std::vector<std::vector<std::string>> outcomes;
    int64_t preemptions = 0;
    int64_t copied_blocks = 0;
  };
  struct Submitted {
    Request request;
    std::vector<std::shared_ptr<CollectingReader>> readers;
    std::vector<bool> cancelled;
  };

  // The same ones for the same seed, with their mailboxes.
  std::vector<Submitted> MakeRequests(uint64_t seed) const {
    std::mt19937_64 random(seed);
    std::vector<Submitted> all(kRequests);
    for (int i = 0; i < kRequests; ++i) {
      int outputs = 0;
      all[i].request = RandomRequest(random, random_.config().vocab_size, i, &outputs);
      all[i].cancelled.assign(outputs, false);
      for (int output = 0; output < outputs; ++output) {
        all[i].readers.push_back(CollectingReader::Create(1 + static_cast<int64_t>(i % 5)));
        if (output > 0) all[i].request.branch_streams.push_back(all[i].readers[output]->stream());
      }
      all[i].request.stream = all[i].readers[0]->stream();
    }
    return all;
  }

  // All at once in an order of `shuffle`, which also cancels some outputs; without it, one after
  // the other, each alone.
  static void SubmitAll(Engine& engine, std::mt19937_64* shuffle, std::vector<Submitted>* all) {
    std::vector<int> order(all->size());
    std::iota(order.begin(), order.end(), 0);
    if (shuffle != nullptr) std::shuffle(order.begin(), order.end(), *shuffle);
    for (const int i : order) {
      Submitted& submitted = (*all)[i];
      EXPECT_THAT(engine.Submit(std::move(submitted.request)), IsOk());
      for (size_t output = 0; output < submitted.readers.size(); ++output) {
        if (shuffle == nullptr) {
          submitted.readers[output]->WaitForEnd();
        } else if ((*shuffle)() % 6 == 0) {
          submitted.cancelled[output] = true;
          submitted.readers[output]->stream()->Detach();
        }
      }
    }
  }

  Run RunTogether(const Schedule& schedule, uint64_t request_seed, std::mt19937_64* shuffle,
                  bool batch_dependent = false) {
    auto cpu = CpuOps::Create(schedule.threads);
    EXPECT_THAT(cpu, IsOk());
    BatchDependentOps wrong(**cpu);
    Ops& ops = batch_dependent ? static_cast<Ops&>(wrong) : **cpu;
    const BatchLimits limits{.max_tokens = schedule.options.max_batch_tokens,
                             .max_sequences = schedule.options.max_running_requests,
                             .max_logits_rows = 16,
                             .max_context = kContext};
    auto model = TransformerLM::Load(random_.config(), random_.weights(), ops, limits,
                                     {.num_blocks = schedule.kv_blocks, .dtype = GetParam().dtype});
    EXPECT_THAT(model, IsOk());
    RecordingModel recording(**model, book_);
    auto engine = Engine::Start(recording, schedule.options, *Clock::Real());
    EXPECT_THAT(engine, IsOk());

    std::vector<Submitted> requests = MakeRequests(request_seed);
    SubmitAll(**engine, shuffle, &requests);
    Run run;
    for (const Submitted& submitted : requests) {
      std::vector<std::string>& outcomes = run.outcomes.emplace_back();
      for (size_t output = 0; output < submitted.readers.size(); ++output) {
        const auto collected = submitted.readers[output]->WaitForEnd();
        outcomes.push_back(submitted.cancelled[output] ? "" : Outcome(collected));
      }
    }
    EXPECT_TRUE((*engine)->WaitUntilIdle(absl::Seconds(30)));
    EXPECT_EQ((*engine)->Stats().kv_blocks_used, 0);
    run.preemptions = (*engine)->Stats().preemptions;
    run.copied_blocks = recording.copies();
    return run;
  }

  // Outputs that were not cancelled, and those of them that are not what they are alone.
  struct Difference {
    int64_t compared = 0;
    int64_t different = 0;
    std::string first;
  };
  static Difference Compare(const Run& together, const Run& alone) {
    Difference result;
    for (size_t i = 0; i < alone.outcomes.size(); ++i) {
      for (size_t output = 0; output < alone.outcomes[i].size(); ++output) {
        if (together.outcomes[i][output].empty()) continue;
        ++result.compared;
        if (together.outcomes[i][output] == alone.outcomes[i][output]) continue;
        if (result.different++ == 0) result.first = fmt::format("request {}.{}", i, output);
      }
    }
    return result;
  }

  const RandomModel random_{SmallConfig(GetParam().config), GetParam().dtype, 42};
  LogitsBook book_;
};

TEST_P(DeterminismTest, EveryScheduleGivesWhatEachRequestGivesAlone) {
  std::mt19937_64 random(7);
  int64_t preemptions = 0;
  int64_t copied_blocks = 0;
  int64_t compared = 0;
  for (uint64_t round = 0; round < 4; ++round) {
    const Run alone = RunTogether(Schedule(), round, nullptr);
    for (int repeat = 0; repeat < 6; ++repeat) {
      const Schedule schedule = RandomSchedule(random);
      const Run together = RunTogether(schedule, round, &random);
      preemptions += together.preemptions;
      copied_blocks += together.copied_blocks;
      const Difference difference = Compare(together, alone);
      compared += difference.compared;
      ASSERT_EQ(difference.different, 0)
          << "round " << round << ", " << difference.first << ", " << schedule.threads
          << " threads, " << schedule.kv_blocks << " blocks, " << schedule.options.max_batch_tokens
          << " tokens a step";
    }
  }
  EXPECT_EQ(book_.contradictions, 0);
  // The schedules did what they are there for.
  EXPECT_GT(preemptions, 10);
  EXPECT_GT(copied_blocks, 20);
  EXPECT_GT(compared, 300);
  EXPECT_GT(book_.repeated, 1000);
}

TEST_P(DeterminismTest, ABackendThatSumsByBatchSizeIsCaught) {
  std::mt19937_64 random(7);
  const Run alone = RunTogether(Schedule(), 1, nullptr, /*batch_dependent=*/true);
  int64_t different = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    const Run together = RunTogether(RandomSchedule(random), 1, &random, /*batch_dependent=*/true);
    different += Compare(together, alone).different;
  }
  EXPECT_GT(different, 0);
  EXPECT_GT(book_.contradictions, 0);
}

// Rotary positions with QK-norm; windows; LayerNorm, biases, learned positions and GELU.
INSTANTIATE_TEST_SUITE_P(Models, DeterminismTest,
                         ::testing::Values(Case{"qwen3", DType::kF32}, Case{"qwen3", DType::kBF16},
                                           Case{"mistral", DType::kBF16},
                                           Case{"gpt2", DType::kF16}),
                         [](const auto& info) {
                           return fmt::format("{}_{}", info.param.config,
                                              DTypeName(info.param.dtype));
                         });

}  // namespace
}  // namespace tlm
