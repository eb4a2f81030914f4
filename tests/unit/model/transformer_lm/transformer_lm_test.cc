// The whole model against the double-precision reference, and against itself in other batches.
#include "model/transformer_lm/transformer_lm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "model/ops/cpu/cpu_ops.h"
#include "model/sampling/sampler.h"
#include "tests/support/chunked_sequence.h"
#include "tests/support/random_model.h"
#include "tests/support/reference_model.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr BatchLimits kLimits = {
    .max_tokens = 300, .max_sequences = 8, .max_logits_rows = 300, .max_context = 256};
constexpr KvPlan kKv = {.num_blocks = 24};

struct Case {
  const char* config;
  DType dtype;
  DType kv_dtype = DType::kF32;
};

class TransformerLMTest : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<CpuOps> MakeOps(int threads = 2, Isa isa = AvailableIsas().back()) {
    auto ops = CpuOps::Create(threads, isa);
    EXPECT_THAT(ops, IsOk());
    return *std::move(ops);
  }
  std::unique_ptr<TransformerLM> Load(const RandomModel& random, Ops& ops) {
    auto model = TransformerLM::Load(random.config(), random.weights(), ops, kLimits,
                                     {.num_blocks = 24, .dtype = GetParam().kv_dtype});
    EXPECT_THAT(model, IsOk());
    return *std::move(model);
  }
};

double Spread(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return *high - *low;
}

TEST_P(TransformerLMTest, LogitsAreThoseOfTheDoublePrecisionReference) {
  const RandomModel random(SmallConfig(GetParam().config), GetParam().dtype, 1);
  const std::vector<int32_t> ids = RandomIds(150, random.config().vocab_size, 2);
  const std::vector<double> expected = ReferenceLogits(random.config(), random.weights(), ids);
  for (const Isa isa : AvailableIsas()) {
    SCOPED_TRACE(IsaName(isa));
    const auto ops = MakeOps(2, isa);
    const auto model = Load(random, *ops);
    const std::vector<float> actual = RunAlone(*model, ids, 150);
    ASSERT_EQ(actual.size(), expected.size());
    double worst = 0.0;
    for (size_t i = 0; i < actual.size(); ++i) {
      worst = std::max(worst, std::abs(actual[i] - expected[i]));
    }
    const DType activations = ops->ActivationType(GetParam().dtype);
    if (activations == DType::kF32 && GetParam().kv_dtype == DType::kF32) {
      EXPECT_LT(worst, 2e-6 * Spread(expected));
    } else {
      // What lies between operations, or keys and values alone, is rounded to 8 (bfloat16) or 11
      // bits.
      const bool bf16 = activations == DType::kBF16 || GetParam().kv_dtype == DType::kBF16;
      const bool fp8 = GetParam().kv_dtype == DType::kF8E4M3;  // 4 bits
      EXPECT_LT(RelativeError(actual, expected), fp8 ? 1e-1 : bf16 ? 1e-2 : 1e-3);
    }
  }
}

TEST_P(TransformerLMTest, LogitsDoNotDependOnChunksBatchMatesOrThreads) {
  const RandomModel random(SmallConfig(GetParam().config), GetParam().dtype, 3);
  const auto ops = MakeOps(1);
  const auto model = Load(random, *ops);
  const std::vector<int32_t> ids = RandomIds(200, random.config().vocab_size, 4);
  const std::vector<float> alone = RunAlone(*model, ids, 200);
  for (const int64_t chunk : {1, 7, 63, 64, 65, 199}) {
    EXPECT_EQ(RunAlone(*model, ids, chunk), alone) << "chunks of " << chunk;
  }

  const auto other_ops = MakeOps(2);
  const auto other = Load(random, *other_ops);
  ChunkedSequence sequence{ids, {3, 20, 1, 9}, 0};
  ChunkedSequence mate{RandomIds(250, random.config().vocab_size, 5), {4, 5, 6, 7}, 0};
  std::mt19937_64 schedule(6);
  std::vector<float> together;
  while (sequence.done < 200) {
    const int64_t count = std::min<int64_t>(200 - sequence.done, 1 + schedule() % 40);
    const int64_t mates = std::min<int64_t>(250 - mate.done, schedule() % 30);
    Batch batch;
    const bool mate_first = schedule() % 2 == 0;
    if (mates > 0 && mate_first) AddChunk(mate, mates, &batch);
    const size_t first_row = batch.logits_rows.size();
    AddChunk(sequence, count, &batch);
    if (mates > 0 && !mate_first) AddChunk(mate, mates, &batch);
    const auto result = other->Forward(batch);
    ASSERT_THAT(result, IsOk());
    const auto begin = result->logits.begin() + first_row * other->vocab_size();
    together.insert(together.end(), begin, begin + count * other->vocab_size());
    sequence.done += count;
    mate.done += mates;
  }
  EXPECT_EQ(together, alone);
}

// Every configuration with float32 weights; each of the other types with layouts of either order
// and with keys and values rounded.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* name : SmallConfigNames()) cases.push_back({name, DType::kF32});
  for (const char* name : {"cs336", "qwen3", "gpt2", "qwen2", "lm_gpt2_layout"}) {
    cases.push_back({name, DType::kBF16});
  }
  for (const char* name : {"llama", "mistral", "gpt2_exact_gelu", "lm_layer_norm_outside"}) {
    cases.push_back({name, DType::kF16});
  }
  cases.push_back({"llama", DType::kF16, DType::kF16});
  cases.push_back({"qwen3", DType::kBF16, DType::kBF16});
  cases.push_back({"mistral", DType::kBF16, DType::kBF16});
  cases.push_back({"qwen3", DType::kBF16, DType::kF8E4M3});
  cases.push_back({"gpt2", DType::kF32, DType::kF8E4M3});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, TransformerLMTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return fmt::format("{}_{}_kv_{}", info.param.config,
                                              DTypeName(info.param.dtype),
                                              DTypeName(info.param.kv_dtype));
                         });

// A model on a processor backend of its own.
struct LoadedModel {
  explicit LoadedModel(const RandomModel& random, int threads = 1)
      : ops(CpuOps::Create(threads).value()),
        model(TransformerLM::Load(random.config(), random.weights(), *ops, kLimits, kKv).value()) {}

  std::unique_ptr<CpuOps> ops;
  std::unique_ptr<TransformerLM> model;
};

TEST(TransformerLMKvTest, ACopiedBlockContinuesLikeItsOriginal) {
  const RandomModel random(SmallConfig("qwen3"), DType::kF32, 8);
  const LoadedModel loaded(random);
  ChunkedSequence original{RandomIds(101, random.config().vocab_size, 9), {7, 2}, 0};
  Batch prompt;
  AddChunk(original, 100, &prompt);
  ASSERT_THAT(loaded.model->Forward(prompt), IsOk());
  ASSERT_THAT(loaded.model->CopyKvBlock(2, 23), IsOk());
  ASSERT_THAT(loaded.model->CopyKvBlock(23, 23), IsOk());

  // Shares the first block; each writes its next token into its own second one.
  original.done = 100;
  ChunkedSequence branch = original;
  branch.blocks = {7, 23};
  std::vector<std::vector<float>> logits;
  for (const ChunkedSequence& sequence : {original, branch}) {
    Batch next;
    AddChunk(sequence, 1, &next);
    const auto result = loaded.model->Forward(next);
    ASSERT_THAT(result, IsOk());
    logits.emplace_back(result->logits.begin(), result->logits.end());
  }
  EXPECT_EQ(logits[0], logits[1]);
}

// Tokens are Sampler's, whatever else the batch asks for; rows that are not asked for are not
// given.
TEST(TransformerLMSampleTest, SamplesAndGivesTheRowsAskedFor) {
  const RandomModel random(SmallConfig("qwen3"), DType::kF32, 15);
  const auto vocab = static_cast<size_t>(random.config().vocab_size);
  const LoadedModel loaded(random, 2);
  const std::vector<int32_t> ids = RandomIds(40, random.config().vocab_size, 16);
  const std::vector<float> logits = RunAlone(*loaded.model, ids, 40);

  const SamplingParams params[] = {{.temperature = 0.0f}, {.top_k = 5, .seed = 3}, {.seed = 4}};
  const TokenHistory history;
  Batch batch;
  AddChunk({ids, {1, 2}, 0}, 40, &batch);
  batch.host_rows = {3, 39};
  for (const int32_t row : {39, 7, 39}) {
    const SamplingParams& sampled = params[batch.jobs.size()];
    batch.jobs.push_back({.row = row,
                          .params = &sampled,
                          .history = &history,
                          .key = {.output_index = 2, .position = 40},
                          .score = {.logprob = true, .top = 2}});
  }
  const auto result = loaded.model->Forward(batch);
  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(result->logits.size(), 2 * vocab);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(std::equal(result->logits.begin() + i * vocab,
                           result->logits.begin() + (i + 1) * vocab,
                           logits.begin() + batch.host_rows[i] * vocab));
  }
  Sampler sampler;
  ASSERT_EQ(result->tokens.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const SamplingJob& job = batch.jobs[i];
    const auto expected = sampler.Sample({logits.data() + job.row * vocab, vocab}, *job.params,
                                         history, job.key, job.score);
    ASSERT_THAT(result->tokens[i], IsOk());
    EXPECT_EQ(result->tokens[i]->id, expected->id);
    EXPECT_EQ(result->tokens[i]->score->logprob, expected->score->logprob);
    EXPECT_EQ(result->tokens[i]->top.size(), 2u);
  }
}

TEST(TransformerLMLoadTest, NamesTheTensorThatIsNotFinite) {
  RandomModel random(SmallConfig("llama"), DType::kF32, 10);
  ModelWeights weights = random.weights();
  std::vector<float> poisoned(weights.layers[1].up.as<float>(),
                              weights.layers[1].up.as<float>() + weights.layers[1].up.elements());
  poisoned[17] = std::nanf("");
  weights.layers[1].up.data = poisoned.data();
  auto ops = CpuOps::Create(1);
  ASSERT_THAT(ops, IsOk());
  EXPECT_THAT(TransformerLM::Load(random.config(), weights, **ops, kLimits, kKv),
              IsInvalidArgument("model.layers.1.mlp.up_proj.weight"));
}

// Finite, but the scales of its blocks would overflow in products.
TEST(TransformerLMLoadTest, NamesTheTensorWhoseValuesAreTooLargeForBlocks) {
  RandomModel random(SmallConfig("llama"), DType::kF32, 10);
  ModelWeights weights = random.weights();
  std::vector<float> poisoned(weights.layers[1].up.as<float>(),
                              weights.layers[1].up.as<float>() + weights.layers[1].up.elements());
  poisoned[3] = 1e30f;
  poisoned[17] = -3e38f;
  weights.layers[1].up.data = poisoned.data();
  auto ops = CpuOps::Create(1);
  ASSERT_THAT(ops, IsOk());
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4G64}) {
    EXPECT_THAT(TransformerLM::Load(random.config(), weights, **ops, kLimits, kKv, format),
                IsInvalidArgument("'model.layers.1.mlp.up_proj.weight': element 17 is -3",
                                  "must be below 1e+36"));
  }
}

TEST(TransformerLMLoadTest, TakesAllMemoryAtOnceAndGivesItBack) {
  for (const char* name : {"qwen3", "gpt2", "lm_every_position"}) {
    const RandomModel random(SmallConfig(name), DType::kBF16, 11);
    auto ops = CpuOps::Create(2);
    ASSERT_THAT(ops, IsOk());
    {
      const auto model =
          TransformerLM::Load(random.config(), random.weights(), **ops, kLimits, kKv);
      ASSERT_THAT(model, IsOk());
      const auto before = (*ops)->device().AllocatedBytes();
      size_t taken = 0;
      for (const size_t bytes : before) taken += bytes;
      EXPECT_EQ(taken - before[static_cast<int>(MemoryPurpose::kWeights)] -
                    before[static_cast<int>(MemoryPurpose::kKvCache)],
                TransformerLM::WorkspaceBytes(random.config(), kLimits, DType::kBF16, **ops));
      EXPECT_EQ(before[static_cast<int>(MemoryPurpose::kKvCache)],
                (*model)->kv_shape().bytes_per_block() * kKv.num_blocks);
      RunAlone(**model, RandomIds(250, random.config().vocab_size, 12), 250);
      EXPECT_EQ((*ops)->device().AllocatedBytes(), before);
    }
    for (const size_t bytes : (*ops)->device().AllocatedBytes()) EXPECT_EQ(bytes, 0u);
  }
}

// Matrices fill whole panels of 16 outputs and whole steps of 32 inputs in their own type (both
// halves of a gated one for themselves), vectors are float32.
TEST(TransformerLMLoadTest, CountsEveryParameterAsWeights) {
  for (const char* name : {"cs336", "qwen2", "gpt2", "lm_layer_norm_with_qk_norm"}) {
    const RandomModel random(SmallConfig(name), DType::kBF16, 14);
    const ModelConfig& config = random.config();
    const LoadedModel loaded(random);
    const auto matrix = [](int64_t n, int64_t k) {
      return (n + 15) / 16 * 16 * ((k + 31) / 32 * 32) * 2;
    };
    const int64_t d = config.d_model;
    const int64_t qkv = config.q_size() + 2 * config.kv_size();
    const int64_t gates = config.gated_ffn() ? 2 : 1;
    const int64_t up = gates * config.d_ff;
    const int64_t norm = (config.norm_kind == NormKind::kLayer ? 2 : 1) * d;
    const int64_t vectors =
        2 * norm + (config.qk_norm ? 2 * config.head_dim : 0) + (config.biases.qkv ? qkv : 0) +
        (config.biases.attention_output ? d : 0) + (config.biases.ffn ? up + d : 0);
    const int64_t layer = matrix(qkv, d) + matrix(d, config.q_size()) +
                          gates * matrix(config.d_ff, d) + matrix(d, config.d_ff) + 4 * vectors;
    const int64_t expected = (config.tie_word_embeddings ? 1 : 2) * matrix(config.vocab_size, d) +
                             (config.learned_positions ? matrix(config.context_length, d) : 0) +
                             config.num_layers * layer + 4 * norm;
    EXPECT_EQ(loaded.ops->device().AllocatedBytes()[static_cast<int>(MemoryPurpose::kWeights)],
              static_cast<size_t>(expected))
        << name;
  }
}

TEST(TransformerLMLoadTest, RefusesMoreContextThanTheModelHas) {
  const RandomModel random(SmallConfig("llama"), DType::kF32, 13);
  auto ops = CpuOps::Create(1);
  ASSERT_THAT(ops, IsOk());
  BatchLimits limits = kLimits;
  limits.max_context = 257;
  EXPECT_THAT(TransformerLM::Load(random.config(), random.weights(), **ops, limits, kKv),
              IsInvalidArgument("257"));
}

}  // namespace
}  // namespace tlm
