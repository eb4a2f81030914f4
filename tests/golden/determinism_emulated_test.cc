// determinism_test's promise on the CUDA backend, its kernels emulated: with recorded
// graphs, kernels that overlap, and steps launched before the tokens of the one before are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "model/ops/cuda/cuda_ops.h"
#include "tests/golden/schedules.h"
#include "tests/support/simt/emulator.h"

namespace tlm {
namespace {

// With drafts there is room for fewer graphs than there are shapes.
absl::StatusOr<std::unique_ptr<Ops>> EmulatedDevice(const Schedule& schedule) {
  const bool drafts = schedule.options.speculation != Speculation::kOff;
  return CudaOps::Create({.max_graphs = drafts ? 6 : 256}, nullptr);
}

// Narrow, but with heads and matrices as the tensor cores take them, and some as they do not.
ModelConfig TinyConfig() {
  ModelConfig config = SmallConfig("qwen3");
  config.num_layers = 1;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 64;
  config.d_ff = 32;
  return config;
}

TEST(DeterminismEmulatedTest, EveryScheduleGivesWhatEachRequestGivesAlone) {
  constexpr uint64_t kRounds = 2;
  constexpr uint64_t kSchedules = 10;  // of each round
  ScheduleRunner runner(
      {.config = TinyConfig(), .dtype = DType::kBF16, .requests = 8, .max_outputs = kMaxOutputs});
  runner.set_machine({.backend = EmulatedDevice, .ops = {}, .model = {}});
  std::mt19937_64 random(7);
  ScheduleCounts counts;
  int64_t compared = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const Outcomes alone = runner.Execute(AloneSchedule(), round, random).passes[0];
    for (uint64_t i = 0; i < kSchedules; ++i) {
      simt::emulated::Configure(
          {.seed = kSchedules * round + i, .progress = simt::emulated::Progress::kRandom});
      Schedule schedule = RandomSchedule(random);
      if (i % 2 == 0) {
        schedule.options.speculation = Speculation::kAlways;
        schedule.drafter = i % 4 == 0 ? Drafter::kKnown : Drafter::kGreedyModel;
        schedule.truth = 50;
      }
      const ScheduleRun together = runner.Execute(schedule, round, random, &alone);
      counts += together.counts;
      const Difference difference = Compare(together, alone);
      compared += difference.compared;
      ASSERT_EQ(difference.different, 0)
          << "round " << round << ", " << difference.first << ", " << schedule.Describe();
    }
  }
  EXPECT_EQ(runner.book().contradictions, 0);
  // The schedules did what they are there for.
  EXPECT_GT(counts.preemptions, 0);
  EXPECT_GT(counts.copied_blocks, 0);
  EXPECT_GT(counts.cached_tokens, 0);
  EXPECT_GT(counts.launches_ahead, 200);
  EXPECT_GT(counts.accepted, 100);
  EXPECT_GT(counts.drafted - counts.accepted, 20);
  EXPECT_GT(counts.constrained_drafted, 10);
  EXPECT_GT(counts.penalised_drafted, 10);
  EXPECT_GT(counts.ahead_with_drafts, 100);
  EXPECT_GT(counts.confirmed, 0);
  EXPECT_GT(counts.refuted, 0);
  EXPECT_GT(compared, 100);
  EXPECT_GT(runner.book().repeated, 1000);
}

// The tokens that one greedy request gives, each told with `top` alternatives.
std::vector<int32_t> Greedy(LanguageModel& model, uint32_t top) {
  const auto reader = CollectingReader::Create();
  Request request;
  request.prompt = {1, 2, 3, 4, 5};
  request.work.emplace<GenerateWork>();
  request.generate()->sampling.temperature = 0;
  request.generate()->stop.max_new_tokens = 12;
  request.generate()->score.top = top;
  request.stream = reader->stream();
  const EngineOptions options = {
      .max_batch_tokens = 64, .max_running_requests = 4, .speculation = Speculation::kOff};
  auto engine = Engine::Start(model, options, *Clock::Monotonic());
  EXPECT_THAT(engine, IsOk());
  EXPECT_THAT((*engine)->Submit(std::move(request)), IsOk());
  return reader->WaitForEnd().token_ids();
}

// Where more alternatives are asked for than the device tells, the host samples: the next step must
// not take its token from the device.
TEST(DeterminismEmulatedTest, TokensThatTheHostSamplesAreWaitedFor) {
  const RandomModel weights(TinyConfig(), DType::kBF16, 42);
  const auto ops = CudaOps::Create(CudaOptions(), nullptr);
  ASSERT_THAT(ops, IsOk());
  const auto model = TransformerLM::Load(
      weights.config(), weights.weights(), **ops,
      {.max_tokens = 64, .max_sequences = 4, .max_logits_rows = 4, .max_context = 256},
      {.num_blocks = 8, .dtype = DType::kBF16});
  ASSERT_THAT(model, IsOk());
  LogitsBook book;
  RecordingModel recording(**model, book);
  const std::vector<int32_t> on_device = Greedy(recording, /*top=*/3);
  EXPECT_EQ(recording.launches_ahead(), 11);
  EXPECT_EQ(Greedy(recording, /*top=*/100), on_device);
  EXPECT_EQ(recording.launches_ahead(), 11);
  EXPECT_EQ(book.contradictions, 0);
}

}  // namespace
}  // namespace tlm
