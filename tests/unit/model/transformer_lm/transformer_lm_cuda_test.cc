// The whole model on the CUDA backend, emulated (tests/support/simt): against the
// double-precision reference, and against itself in other batches and with everything that only
// makes it faster turned off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model/ops/cuda/cuda_ops.h"
#include "model/transformer_lm/transformer_lm.h"
#include "tests/support/chunked_sequence.h"
#include "tests/support/random_model.h"
#include "tests/support/reference_model.h"
#include "tests/support/simt/emulator.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr BatchLimits kLimits = {.max_tokens = 130,
                                 .max_sequences = 6,
                                 .max_logits_rows = 130,
                                 .max_context = 256,
                                 .max_draft_rows = 24};
constexpr int64_t kBlocks = 24;

struct Case {
  const char* config;
  DType dtype;
  bool tensor_cores = false;  // widths that the tensor cores take

  std::string Name() const {
    return std::string(config) + "_" + DTypeName(dtype) + (tensor_cores ? "_mma" : "");
  }
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.Name(); }

ModelConfig ConfigOf(const Case& c) {
  ModelConfig config = SmallConfig(c.config);
  if (c.tensor_cores) {
    config.vocab_size = 136;
    config.d_model = 64;
    config.head_dim = 64;
    config.d_ff = 88;
  }
  return config;
}

// A model on a backend of its own.
struct Loaded {
  std::unique_ptr<CudaOps> ops;
  std::unique_ptr<TransformerLM> model;
};
Loaded Load(const ModelConfig& config, const ModelWeights& weights,
            const CudaOptions& options = {}) {
  Loaded loaded;
  auto ops = CudaOps::Create(options, nullptr);
  EXPECT_THAT(ops, IsOk());
  loaded.ops = *std::move(ops);
  const DType type = PlanPacking(config, weights, WeightFormat::kAsGiven, *loaded.ops).matrix_type;
  const DType kv = loaded.ops->DefaultKvType(type);
  auto model = TransformerLM::Load(config, weights, *loaded.ops, kLimits,
                                   {.num_blocks = kBlocks, .dtype = kv});
  EXPECT_THAT(model, IsOk());
  if (model.ok()) loaded.model = *std::move(model);
  return loaded;
}

std::vector<float> RunAtOnce(TransformerLM& model, const std::vector<int32_t>& ids) {
  return RunAlone(model, ids, static_cast<int64_t>(ids.size()), 1);
}

class ReferenceTest : public ::testing::TestWithParam<Case> {};
class InvarianceTest : public ::testing::TestWithParam<Case> {};

TEST_P(ReferenceTest, LogitsAreThoseOfTheDoublePrecisionReference) {
  const RandomModel random(ConfigOf(GetParam()), GetParam().dtype, 1);
  const Loaded loaded = Load(random.config(), random.weights());
  const std::vector<int32_t> ids = RandomIds(70, random.config().vocab_size, 2);
  const std::vector<double> expected = ReferenceLogits(random.config(), random.weights(), ids);
  const std::vector<float> actual = RunAtOnce(*loaded.model, ids);
  ASSERT_EQ(actual.size(), expected.size());
  // Every operation of a layer rounds its output to 8, 11 or 24 bits; a dozen of them add up.
  const double roundoff = GetParam().dtype == DType::kBF16  ? 0x1p-9
                          : GetParam().dtype == DType::kF16 ? 0x1p-12
                                                            : 0x1p-23;
  EXPECT_LT(RelativeError(actual, expected), 6 * roundoff);
}

TEST_P(InvarianceTest, LogitsDoNotDependOnChunksOrBatchMates) {
  const RandomModel random(ConfigOf(GetParam()), GetParam().dtype, 3);
  const Loaded loaded = Load(random.config(), random.weights());
  const int64_t length = 70;
  const std::vector<int32_t> ids = RandomIds(length, random.config().vocab_size, 4);
  const std::vector<float> alone = RunAtOnce(*loaded.model, ids);
  for (const auto& [first, chunk] : {std::pair<int64_t, int64_t>{60, 1}, {1, 64}, {17, 31}}) {
    EXPECT_EQ(RunAlone(*loaded.model, ids, first, chunk), alone)
        << first << ", then chunks of " << chunk;
  }
  EXPECT_GT(loaded.ops->device().run_counts().replayed, 0);

  ChunkedSequence sequence{ids, {3, 20, 1, 23}, 0};
  std::vector<ChunkedSequence> mates;
  for (int32_t i = 0; i < 4; ++i) {
    mates.push_back({RandomIds(250, random.config().vocab_size, 5 + static_cast<uint64_t>(i)),
                     {4 + i, 8 + i, 12 + i, 16 + i},
                     0});
  }
  const auto add_mate = [](ChunkedSequence& mate, int64_t count, Batch* batch) {
    if (mate.done + count > static_cast<int64_t>(mate.ids.size())) mate.done = 0;
    AddChunk(mate, count, batch);
    mate.done += count;
  };
  std::mt19937_64 schedule(6);
  std::vector<float> together;
  while (sequence.done < length) {
    // Half of the batches decode, padded or not, among mates before and after.
    const bool decodes = schedule() % 2 == 0;
    const auto chunk = static_cast<int64_t>(decodes ? 1 : 1 + schedule() % 40);
    const int64_t count = std::min(length - sequence.done, chunk);
    const size_t before = schedule() % 3, after = schedule() % 3;
    Batch batch;
    for (size_t i = 0; i < before; ++i) add_mate(mates[i], decodes ? 1 : 15, &batch);
    const auto first_row = static_cast<int64_t>(batch.logits_rows.size());
    AddChunk(sequence, count, &batch);
    for (size_t i = 0; i < after; ++i) add_mate(mates[2 + i], decodes ? 1 : 15, &batch);
    const auto result = loaded.model->Forward(batch);
    ASSERT_THAT(result, IsOk());
    const auto begin = result->logits.begin() + first_row * random.config().vocab_size;
    together.insert(together.end(), begin, begin + count * random.config().vocab_size);
    sequence.done += count;
  }
  EXPECT_EQ(together, alone);
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) { return info.param.Name(); }

INSTANTIATE_TEST_SUITE_P(
    Families, ReferenceTest,
    ::testing::Values(Case{"cs336", DType::kF32}, Case{"qwen3", DType::kBF16, true},
                      Case{"qwen3", DType::kF16},
                      Case{"llama_tied_with_biases", DType::kBF16, true},
                      Case{"mistral", DType::kF16, true}, Case{"gpt2", DType::kF32, true},
                      Case{"gpt2", DType::kBF16}, Case{"lm_layer_norm_outside", DType::kF32},
                      Case{"lm_layer_norm_with_qk_norm", DType::kF16}),
    CaseName);
INSTANTIATE_TEST_SUITE_P(Families, InvarianceTest,
                         ::testing::Values(Case{"cs336", DType::kF32},
                                           Case{"qwen3", DType::kBF16, true},
                                           Case{"mistral", DType::kF16, true},
                                           Case{"gpt2", DType::kBF16}),
                         CaseName);

constexpr Case kQwen3 = {"qwen3", DType::kBF16, true};

// Greedy tokens of two sequences after their prompts; `ahead`: each step is launched before the
// tokens it stands on are known.
std::vector<std::vector<int32_t>> Generate(const Loaded& loaded, int64_t steps, bool ahead) {
  const int64_t vocab = loaded.model->vocab_size();
  const SamplingParams greedy{.temperature = 0.0f};
  const TokenHistory history;
  std::vector<std::vector<int32_t>> generated(2);
  std::vector<Batch> batches(steps);
  const auto wait = [&] {
    const auto result = loaded.model->Wait();
    ASSERT_THAT(result, IsOk());
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_THAT(result->tokens.at(i), IsOk());
      generated[i].push_back(result->tokens[i]->id);
    }
  };
  for (int64_t step = 0; step < steps; ++step) {
    Batch& batch = batches[step];
    for (int32_t i = 0; i < 2; ++i) {
      const int64_t prompt = 60 + i;
      ChunkedSequence sequence{RandomIds(prompt, vocab, 21 + static_cast<uint64_t>(i)),
                               {6 * i, 6 * i + 1, 6 * i + 2, 6 * i + 3},
                               0};
      if (step > 0) {
        sequence.done = prompt + step - 1;
        sequence.ids.resize(sequence.done);
        sequence.ids.push_back(ahead ? PendingToken(i) : generated[i].back());
      }
      AddChunk(sequence, step == 0 ? prompt : 1, &batch);
      batch.jobs.push_back({.row = static_cast<int32_t>(batch.rows() - 1),
                            .params = &greedy,
                            .history = &history,
                            .key = {.position = static_cast<uint64_t>(prompt + step)},
                            .score = {}});
    }
    batch.host_rows.clear();
    loaded.model->Launch(batch);
    if (!ahead || step > 0) wait();
  }
  if (ahead) wait();
  return generated;
}

TEST(StepTest, StepsMayStandOnTokensThatAreNotKnownYet) {
  const RandomModel random(ConfigOf(kQwen3), kQwen3.dtype, 7);
  const Loaded loaded = Load(random.config(), random.weights());
  ASSERT_EQ(loaded.model->max_launched(), 2);
  const auto in_step = Generate(loaded, 8, false);
  EXPECT_EQ(Generate(loaded, 8, true), in_step);
}

TEST(StepTest, WhatMakesItFasterChangesNoBit) {
  const RandomModel random(ConfigOf(kQwen3), kQwen3.dtype, 8);
  const std::vector<int32_t> ids = RandomIds(68, random.config().vocab_size, 9);
  const Loaded plain = Load(random.config(), random.weights(), {.graphs = false, .overlap = false});
  const std::vector<float> expected = RunAtOnce(*plain.model, ids);
  EXPECT_EQ(RunAlone(*plain.model, ids, 61, 1), expected);
  EXPECT_EQ(plain.ops->device().run_counts().recorded, 0);
  for (const CudaOptions& options : {CudaOptions{.graphs = true, .overlap = false},
                                     CudaOptions{.graphs = false, .overlap = true},
                                     CudaOptions{.graphs = true, .overlap = true}}) {
    const Loaded loaded = Load(random.config(), random.weights(), options);
    EXPECT_EQ(RunAlone(*loaded.model, ids, 61, 1), expected)
        << "graphs " << options.graphs << ", overlap " << options.overlap;
  }
}

// Heads of 256 columns fit the tensor cores' kernel where a block may have 144 KiB; elsewhere they
// are computed without.
TEST(StepTest, EveryKindOfGpuComputesTheModel) {
  for (const int64_t head_dim : {64, 256}) {
    ModelConfig config = ConfigOf(kQwen3);
    config.head_dim = head_dim;
    const RandomModel random(config, DType::kBF16, 8);
    const std::vector<int32_t> ids = RandomIds(20, config.vocab_size, 9);
    const std::vector<double> expected = ReferenceLogits(config, random.weights(), ids);
    for (const int capability : {80, 86, 90, 100, 120}) {
      SCOPED_TRACE(testing::Message() << "heads of " << head_dim << " on " << capability);
      simt::emulated::Configure({.compute_capability = capability});
      const Loaded loaded = Load(config, random.weights());
      EXPECT_LT(RelativeError(RunAlone(*loaded.model, ids, 18, 1), expected), 6 * 0x1p-9);
    }
  }
  simt::emulated::Configure({});
}

// Steps that overlap take their waiting with them: one for a batch's results, none within it.
TEST(StepTest, StepsAllocateNothingAndWaitOnceForTheirResults) {
  const RandomModel random(ConfigOf(kQwen3), kQwen3.dtype, 10);
  const Loaded loaded = Load(random.config(), random.weights());
  Generate(loaded, 6, true);
  const auto before = simt::emulated::ReadCounts();
  const auto bytes = loaded.ops->device().AllocatedBytes();
  Generate(loaded, 6, true);
  const auto after = simt::emulated::ReadCounts();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(loaded.ops->device().AllocatedBytes(), bytes);
  EXPECT_LE(after.synchronizations - before.synchronizations, 6u);
  EXPECT_EQ(after.graph_launches - before.graph_launches, 6u);
}

// The block tables of up to six sequences, and the tokens of all of them.
ChunkedSequence SequenceAt(int32_t i, int64_t position, int64_t tokens, int64_t vocab) {
  return {
      RandomIds(position + tokens, vocab, 30), {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3}, position};
}

// Prompts, then batches as a server makes them: some sequences decode, greedily or not, some with
// drafts.
void Serve(const Loaded& loaded, uint64_t seed, std::vector<int32_t>* tokens) {
  const int64_t vocab = loaded.model->vocab_size();
  for (int32_t i = 0; i < 6; ++i) {
    for (const int64_t position : {0, 105}) {
      Batch prompt;
      AddChunk(SequenceAt(i, position, 105, vocab), 105, &prompt);
      prompt.logits_rows.clear();
      prompt.host_rows.clear();
      ASSERT_THAT(loaded.model->Forward(prompt), IsOk());
    }
  }
  const SamplingParams kinds[] = {
      {.temperature = 0.0f}, {.seed = 5}, {.temperature = 0.8f, .top_p = 0.9f, .seed = 6}};
  const TokenHistory history;
  std::mt19937_64 random(seed);
  for (int step = 0; step < 40; ++step) {
    Batch batch;
    const auto sequences = static_cast<int32_t>(1 + random() % 6);
    const size_t most_kinds = 1 + random() % 3;
    for (int32_t i = 0; i < sequences; ++i) {
      const auto drafted = static_cast<int64_t>(random() % 3 == 0 ? random() % 5 : 0);
      const auto position = static_cast<int64_t>(random() % 200);
      const int64_t first_row = batch.rows();
      AddChunk(SequenceAt(i, position, drafted + 1, vocab), drafted + 1, &batch);
      for (int64_t row = first_row; row < batch.rows(); ++row) {
        batch.jobs.push_back({.row = static_cast<int32_t>(row),
                              .params = &kinds[random() % most_kinds],
                              .history = &history,
                              .key = {.position = static_cast<uint64_t>(position + row)},
                              .score = {}});
      }
    }
    batch.host_rows.clear();
    const auto result = loaded.model->Forward(batch);
    ASSERT_THAT(result, IsOk());
    for (const auto& token : result->tokens) {
      ASSERT_THAT(token, IsOk());
      tokens->push_back(token->id);
    }
  }
}

TEST(RecordedTest, ServingRecordsNothingAfterAStart) {
  const RandomModel random(ConfigOf(kQwen3), kQwen3.dtype, 15);
  const Loaded loaded = Load(random.config(), random.weights());
  const RunCounts start = loaded.model->run_counts();
  EXPECT_EQ(start.ahead, loaded.ops->common_steps());
  EXPECT_GT(start.ahead, 30);
  EXPECT_EQ(start.recorded, 0);
  std::vector<int32_t> tokens;
  Serve(loaded, 16, &tokens);
  const RunCounts served = loaded.model->run_counts();
  EXPECT_EQ(served.recorded, 0);
  EXPECT_EQ(served.direct, start.direct);
  EXPECT_EQ(served.replayed - start.replayed, 40);
  EXPECT_THAT(loaded.ops->Report(), ::testing::HasSubstr("recorded ahead in"));
}

TEST(RecordedTest, TokensAreTheSameWhateverIsRecorded) {
  const RandomModel random(ConfigOf(kQwen3), kQwen3.dtype, 17);
  std::vector<int32_t> expected;
  Serve(Load(random.config(), random.weights(), {.graphs = false}), 18, &expected);
  // Fewer than there are shapes, in two ways; and none but those that come.
  for (const CudaOptions& options : {CudaOptions{.max_graphs = 3}, CudaOptions{.max_graphs = 1},
                                     CudaOptions{.record_ahead_ms = 0}}) {
    const Loaded loaded = Load(random.config(), random.weights(), options);
    std::vector<int32_t> tokens;
    Serve(loaded, 18, &tokens);
    EXPECT_EQ(tokens, expected) << options.max_graphs;
    const RunCounts counts = loaded.model->run_counts();
    EXPECT_GT(counts.recorded, 5);
    EXPECT_EQ(counts.dropped > 0, options.max_graphs < 10);
  }
}

TEST(LoadTest, MemoryIsWhatWasForetold) {
  for (const Case& c : {kQwen3, Case{"gpt2", DType::kF32}}) {
    const RandomModel random(ConfigOf(c), c.dtype, 11);
    const Loaded loaded = Load(random.config(), random.weights());
    const auto bytes = loaded.ops->device().AllocatedBytes();
    size_t taken = 0;
    for (const size_t part : bytes) taken += part;
    EXPECT_EQ(taken - bytes[static_cast<int>(MemoryPurpose::kWeights)] -
                  bytes[static_cast<int>(MemoryPurpose::kKvCache)],
              TransformerLM::WorkspaceBytes(random.config(), kLimits, c.dtype, *loaded.ops));
  }
}

TEST(LoadTest, MatricesOfDifferentTypesMeetInFloat32) {
  // Embeddings and a head of their own in float32 upon a model in bfloat16, its matrices in either
  // order.
  for (const char* name : {"qwen3_untied", "gpt2_exact_gelu"}) {
    const ModelConfig config = ConfigOf({name, DType::kBF16, true});
    const RandomModel half(config, DType::kBF16, 12), single(config, DType::kF32, 13);
    ModelWeights weights = half.weights();
    weights.token_embedding = single.weights().token_embedding;
    weights.lm_head = single.weights().lm_head;
    const Loaded loaded = Load(config, weights);
    ASSERT_NE(loaded.model, nullptr);
    const std::vector<int32_t> ids = RandomIds(30, config.vocab_size, 14);
    EXPECT_LT(RelativeError(RunAtOnce(*loaded.model, ids), ReferenceLogits(config, weights, ids)),
              6 * 0x1p-23)
        << name;
  }
}

}  // namespace
}  // namespace tlm
