// Checks determinism_test's promise on the CUDA backend with emulated kernels: with recorded
// graphs, kernels that overlap, and steps launched before the tokens of the step before are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cuda/cuda_ops.h"
#include "model/weights/name_map.h"
#include "tests/golden/rounds.h"
#include "tests/support/block_model.h"
#include "tests/support/chunked_sequence.h"
#include "tests/support/simt/emulator.h"

namespace tlm {
namespace {

// With drafts, there is room for fewer graphs than there are shapes.
absl::StatusOr<std::unique_ptr<Ops>> EmulatedDevice(const Schedule& schedule) {
  const bool drafts = schedule.options.speculation != Speculation::kOff;
  return CudaOps::Create({.max_graphs = drafts ? 6 : 256}, nullptr);
}

// A narrow model, with heads and matrices in shapes for the tensor cores and some in other shapes.
ModelConfig TinyConfig() {
  ModelConfig config = SmallConfig("qwen3");
  config.num_layers = 1;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 64;
  config.d_ff = 32;
  return config;
}

// The same configuration, with inputs that blocks of 256 divide.
ModelConfig TinyBlockConfig() {
  ModelConfig config = TinyConfig();
  config.d_model = 256;
  config.d_ff = 256;
  return config;
}

struct Case {
  const char* name;
  ModelConfig config;
  WeightFormat format = WeightFormat::kAsGiven;
  std::vector<DType> blocks = {};  // types of matrices; empty: bfloat16
  uint64_t rounds = 1;
  DType kv = DType::kBF16;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class DeterminismEmulatedTest : public ::testing::TestWithParam<Case> {};

TEST_P(DeterminismEmulatedTest, EveryScheduleGivesWhatEachRequestGivesAlone) {
  const uint64_t rounds = GetParam().rounds;
  constexpr int kSchedules = 10;  // of each round
  ScheduleRunner runner({.config = GetParam().config,
                         .dtype = DType::kBF16,
                         .requests = 8,
                         .max_outputs = kMaxOutputs,
                         .format = GetParam().format,
                         .blocks = GetParam().blocks,
                         .kv = GetParam().kv});
  runner.set_machine({.backend = EmulatedDevice, .ops = {}, .model = {}});
  const auto prepare = [](uint64_t round, int index, Schedule& schedule) {
    if (index == Rounds::kAlone) return;
    simt::emulated::Configure({.seed = uint64_t{kSchedules} * round + static_cast<uint64_t>(index),
                               .progress = simt::emulated::Progress::kRandom});
    if (index % 2 == 1) return;
    schedule.options.speculation = Speculation::kAlways;
    schedule.drafter = index % 4 == 0 ? Drafter::kKnown : Drafter::kGreedyModel;
    schedule.truth = 50;
  };
  const auto [counts, compared] =
      RunRounds(runner, {.rounds = rounds, .schedules = kSchedules, .prepare = prepare});
  // The schedules did what they are there for.
  EXPECT_GT(counts.preemptions, 0);
  EXPECT_GT(counts.copied_blocks, 0);
  EXPECT_GT(counts.launches_ahead, 100);
  EXPECT_GT(counts.accepted, 20);
  EXPECT_GT(counts.drafted, counts.accepted);
  EXPECT_GT(counts.ahead_with_drafts, 50);
  EXPECT_GT(compared, 50);
  EXPECT_GT(runner.book().repeated, 500);
  if (rounds == 1) return;
  EXPECT_GT(counts.cached_tokens, 0);
  EXPECT_GT(counts.launches_ahead, 200);
  EXPECT_GT(counts.accepted, 100);
  EXPECT_GT(counts.drafted - counts.accepted,
            5);  // how many are judged depends on the steps' times
  EXPECT_GT(counts.constrained_drafted, 10);
  EXPECT_GT(counts.penalised_drafted, 10);
  EXPECT_GT(counts.ahead_with_drafts, 100);
  EXPECT_GT(counts.confirmed, 0);
  EXPECT_GT(counts.refuted, 0);
  EXPECT_GT(compared, 100);
  EXPECT_GT(runner.book().repeated, 1000);
}

INSTANTIATE_TEST_SUITE_P(
    Models, DeterminismEmulatedTest,
    ::testing::Values(
        Case{.name = "bf16", .config = TinyConfig(), .rounds = 2},
        Case{.name = "fp8_keys_and_values",
             .config = TinyConfig(),
             .rounds = 2,
             .kv = DType::kF8E4M3},
        Case{.name = "int8", .config = TinyConfig(), .format = WeightFormat::kInt8},
        Case{.name = "int4_and_fp8_keys_and_values",
             .config = TinyConfig(),
             .format = WeightFormat::kInt4,
             .kv = DType::kF8E4M3},
        Case{.name = "Q4_K", .config = TinyBlockConfig(), .blocks = {DType::kQ4K, DType::kQ8_0}}),
    [](const auto& info) { return info.param.name; });

// Returns the logits of every prompt position, computed in steps.
std::vector<float> LogitsOf(const ModelConfig& config, const ModelWeights& weights) {
  constexpr int64_t kTokens = 80;
  const auto ops = CudaOps::Create(CudaOptions(), nullptr);
  EXPECT_THAT(ops, IsOk());
  const auto model = TransformerLM::Load(
      config, weights, **ops,
      {.max_tokens = kTokens, .max_sequences = 1, .max_logits_rows = kTokens, .max_context = 256},
      {.num_blocks = 12, .dtype = DType::kBF16});
  EXPECT_THAT(model, IsOk());
  return RunAlone(**model, RandomIds(kTokens, config.vocab_size, 2), 70);
}

// Uses steps of 70 and of 10 rows.
void ExpectLogitsOfRoundedValues(const BlockModel& blocks) {
  const ModelConfig& config = blocks.config();
  ModelWeights rounded = blocks.dequantised();
  std::vector<std::vector<uint16_t>> values;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    TensorView& tensor = *PlaceOf(spec, &rounded);
    if (tensor.shape.rank() != 2) continue;
    std::vector<uint16_t>& bits = values.emplace_back();
    const float* const from = tensor.as<float>();
    for (int64_t i = 0; i < tensor.elements(); ++i) bits.push_back(FloatToBf16(from[i]));
    tensor = {DType::kBF16, tensor.shape, bits.data()};
  }
  if (config.tie_word_embeddings) rounded.lm_head = rounded.token_embedding;
  EXPECT_EQ(LogitsOf(config, blocks.weights()), LogitsOf(config, rounded));
}

TEST(BlockModelsEmulatedTest, GiveTheLogitsOfTheirValuesInBfloat16) {
  simt::emulated::Configure({});
  // Stacks of several types, and gated ones that are not kept in blocks.
  ExpectLogitsOfRoundedValues(BlockModel(BlockConfig("qwen3"), GgufBlockTypes(), 3));
  ExpectLogitsOfRoundedValues(BlockModel(BlockConfig("gpt2"), GgufBlockTypes(), 4));
  ExpectLogitsOfRoundedValues(
      BlockModel(BlockConfig("llama"), {DType::kI4G32}, 5, /*reordered=*/true));
  ExpectLogitsOfRoundedValues(BlockModel(BlockConfig("qwen3"), Float8BlockTypes(), 7));
  // Matrices of 192 inputs are floats.
  ExpectLogitsOfRoundedValues(BlockModel(BlockConfig("qwen2"), {DType::kQ4K}, 6));
}

// The allocated memory equals the plan, up to padding.
TEST(BlockModelsEmulatedTest, TakeTheMemoryThatIsPlanned) {
  simt::emulated::Configure({});
  const BlockModel blocks(BlockConfig("qwen3"), {DType::kQ4K, DType::kQ8_0}, 7);
  const RandomModel floats(BlockConfig("gpt2"), DType::kF32, 7);
  struct Case {
    const ModelConfig& config;
    const ModelWeights& weights;
    WeightFormat format;
  };
  for (const Case& c : {Case{blocks.config(), blocks.weights(), WeightFormat::kAsGiven},
                        Case{blocks.config(), blocks.weights(), WeightFormat::kFloat32},
                        Case{floats.config(), floats.weights(), WeightFormat::kInt8},
                        Case{floats.config(), floats.weights(), WeightFormat::kInt4}}) {
    SCOPED_TRACE(WeightFormatName(c.format));
    const auto ops = CudaOps::Create(CudaOptions(), nullptr);
    ASSERT_THAT(ops, IsOk());
    const PackingPlan planned = PlanPacking(c.config, c.weights, c.format, **ops);
    const auto packed = PackWeights(c.config, c.weights, planned, **ops);
    ASSERT_THAT(packed, IsOk());
    const std::map<DType, uint64_t> by_type = BytesByType(*packed);
    uint64_t bytes = 0;
    for (const auto& [dtype, part] : by_type) bytes += part;
    EXPECT_GE(planned.device, bytes * 95 / 100);
    EXPECT_LE(planned.device, bytes * 11 / 10);
    const auto allocated = (*ops)->device().AllocatedBytes();
    EXPECT_EQ(allocated[static_cast<size_t>(MemoryPurpose::kWeights)], bytes);
    const BatchLimits limits{
        .max_tokens = 64, .max_sequences = 4, .max_logits_rows = 4, .max_context = 256};
    const DType type = planned.matrix_type;
    const size_t workspace = TransformerLM::WorkspaceBytes(c.config, limits, type, **ops);
    const auto total = [&] {
      size_t all = 0;
      for (const size_t part : (*ops)->device().AllocatedBytes()) all += part;
      return all;
    };
    const KvPlan kv{.num_blocks = 8, .dtype = (*ops)->DefaultKvType(type)};
    const size_t before = total();
    const auto model = TransformerLM::Load(c.config, c.weights, **ops, limits, kv, c.format);
    ASSERT_THAT(model, IsOk());
    const size_t of_kv = static_cast<size_t>((*model)->num_kv_blocks()) * kBlockTokens *
                         static_cast<size_t>((*model)->kv_shape().bytes_per_token());
    const auto graphs =
        (*ops)->device().AllocatedBytes()[static_cast<size_t>(MemoryPurpose::kGraphs)];
    EXPECT_EQ(total() - before - graphs, bytes + workspace + of_kv);
  }
}

// Returns the tokens of one greedy request, each with `top` alternatives.
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

// If more alternatives are requested than the device returns, the host samples: the next step must
// not take its token from the device.
TEST(HostSamplingEmulatedTest, TokensThatTheHostSamplesAreWaitedFor) {
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
