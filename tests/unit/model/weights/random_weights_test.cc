#include "model/weights/random_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/base/float16.h"
#include "model/base/message_text.h"
#include "model/weights/name_map.h"

namespace tlm {
namespace {

std::vector<float> Samples(const TruncatedNormal& stream, int64_t first, size_t count) {
  std::vector<float> values(count);
  stream.Fill(first, 1.0f, values);
  return values;
}

double Phi(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

TEST(TruncatedNormalTest, FollowsTheDistribution) {
  constexpr size_t kCount = size_t{1} << 20;
  std::vector<float> values = Samples(TruncatedNormal(7, "w"), 0, kCount);
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    ASSERT_LE(std::abs(value), 3.0f);
    sum += value;
    squares += double{value} * value;
  }
  // Five deviations of the estimates.
  EXPECT_NEAR(sum / kCount, 0.0, 5 / std::sqrt(double{kCount}));
  EXPECT_NEAR(std::sqrt(squares / kCount), TruncatedNormal::kDeviation,
              5 / std::sqrt(2.0 * kCount));
  // Kolmogorov and Smirnov: the chance of a larger distance is below 1e-7.
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double expected = (Phi(values[i]) - Phi(-3)) / (Phi(3) - Phi(-3));
    distance = std::max(distance, std::abs(expected - (static_cast<double>(i) + 0.5) / kCount));
  }
  EXPECT_LT(distance, 3.0 / std::sqrt(double{kCount}));
  EXPECT_LT(values.front(), -2.99f);
  EXPECT_GT(values.back(), 2.99f);
}

TEST(TruncatedNormalTest, NeighboursAreIndependent) {
  constexpr size_t kCount = size_t{1} << 18;
  const std::vector<float> values = Samples(TruncatedNormal(1, "w"), 0, kCount);
  for (const size_t lag : {1, 2, 3, 64, 768}) {
    double product = 0;
    for (size_t i = lag; i < kCount; ++i) product += double{values[i]} * values[i - lag];
    EXPECT_NEAR(product / kCount, 0.0, 5 / std::sqrt(double{kCount})) << lag;
  }
}

TEST(TruncatedNormalTest, ASampleDependsOnSeedNameAndIndexAlone) {
  const TruncatedNormal stream(3, "layers.0.attn.q_proj.weight");
  const std::vector<float> all = Samples(stream, 0, 5000);
  for (const int64_t first : {2, 510, 512, 1026, 4998}) {
    const size_t rest = all.size() - static_cast<size_t>(first);
    for (const size_t count : {size_t{1}, std::min<size_t>(rest, 777), rest}) {
      EXPECT_EQ(Samples(stream, first, count),
                std::vector<float>(all.begin() + first,
                                   all.begin() + first + static_cast<int64_t>(count)))
          << first << " " << count;
    }
  }
  EXPECT_NE(Samples(TruncatedNormal(4, "layers.0.attn.q_proj.weight"), 0, 5000), all);
  EXPECT_NE(Samples(TruncatedNormal(3, "layers.1.attn.q_proj.weight"), 0, 5000), all);
}

// Every build on every machine computes these.
TEST(TruncatedNormalTest, FirstSamplesAreFixed) {
  const std::vector<float> expected = {-0x1.94a804p-1f, -0x1.fba9ap-1f,  -0x1.322f14p-4f,
                                       -0x1.b04bfep+0f, -0x1.058504p-1f, -0x1.930aep+0f,
                                       0x1.9af834p-1f,  0x1.6f7d62p-1f};
  EXPECT_EQ(Samples(TruncatedNormal(0, "w"), 0, expected.size()), expected);
}

TEST(TruncatedNormalTest, ScaleMultiplies) {
  const TruncatedNormal stream(0, "w");
  const std::vector<float> unit = Samples(stream, 0, 100);
  std::vector<float> scaled(100);
  stream.Fill(0, 0.02f, scaled);
  for (size_t i = 0; i < unit.size(); ++i) EXPECT_EQ(scaled[i], 0.02f * unit[i]);
}

using testing::HasSubstr;

ModelConfig Llama() {
  ModelConfig config;
  config.model_type = "llama";
  config.vocab_size = 301;
  config.context_length = 128;
  config.d_model = 96;
  config.num_layers = 2;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.d_ff = 200;
  config.rope_theta = 10000.0;
  return config;
}

ModelConfig Gpt2() {
  ModelConfig config = Llama();
  config.model_type = "gpt2";
  config.naming = TensorNaming::kGpt2;
  config.num_kv_heads = 6;
  config.norm_kind = NormKind::kLayer;
  config.rope_theta.reset();
  config.learned_positions = true;
  config.ffn_kind = FfnKind::kGeluTanh;
  config.biases = {.qkv = true, .attention_output = true, .ffn = true};
  config.tie_word_embeddings = true;
  return config;
}

RandomWeights Make(const ModelConfig& config, DType dtype = DType::kF32, uint64_t seed = 1,
                   int threads = 1) {
  absl::StatusOr<RandomWeights> weights = RandomWeights::Create(config, dtype, seed, threads);
  EXPECT_TRUE(weights.ok()) << weights.status();
  return *std::move(weights);
}

std::vector<float> Values(const TensorView& view) {
  std::vector<float> values(view.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = view.dtype == DType::kF32    ? view.as<float>()[i]
                : view.dtype == DType::kBF16 ? Bf16ToFloat(view.as<uint16_t>()[i])
                                             : F16ToFloat(view.as<uint16_t>()[i]);
  }
  return values;
}

// Mean 0 and deviation `scale` but for the cut-off, within five deviations of the estimates.
void ExpectNormal(const std::vector<float>& values, double scale, const std::string& what) {
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    ASSERT_LE(std::abs(value), static_cast<float>(3 * scale)) << what;
    sum += value;
    squares += double{value} * value;
  }
  const double count = static_cast<double>(values.size());
  const double deviation = scale * TruncatedNormal::kDeviation;
  EXPECT_NEAR(sum / count, 0.0, 5 * deviation / std::sqrt(count)) << what;
  EXPECT_NEAR(std::sqrt(squares / count), deviation, 5 * deviation / std::sqrt(2 * count)) << what;
}

double LinearScale(double inputs, double outputs) { return std::sqrt(2 / (inputs + outputs)); }

TEST(RandomWeightsTest, InitialisesLinearMapsAndEmbeddingsAsTheCourseDoes) {
  const RandomWeights random = Make(Llama());
  const ModelWeights& weights = random.weights();
  ExpectNormal(Values(weights.token_embedding), 1.0, "embedding");
  ExpectNormal(Values(weights.lm_head), LinearScale(96, 301), "head");
  ASSERT_EQ(weights.layers.size(), 2u);
  for (const LayerWeights& layer : weights.layers) {
    ExpectNormal(Values(layer.q), LinearScale(96, 96), "q");
    ExpectNormal(Values(layer.k), LinearScale(96, 32), "k");
    ExpectNormal(Values(layer.v), LinearScale(96, 32), "v");
    ExpectNormal(Values(layer.o), LinearScale(96, 96), "o");
    ExpectNormal(Values(layer.gate), LinearScale(96, 200), "gate");
    ExpectNormal(Values(layer.up), LinearScale(96, 200), "up");
    ExpectNormal(Values(layer.down), LinearScale(200, 96), "down");
    for (const TensorView& gain : {layer.attn_norm, layer.ffn_norm, weights.final_norm}) {
      EXPECT_THAT(Values(gain), testing::Each(1.0f));
    }
    EXPECT_EQ(layer.qkv.data, nullptr);
    EXPECT_EQ(layer.q_bias.data, nullptr);
  }
}

// Columns [begin, end) of a matrix.
std::vector<float> Columns(const TensorView& view, int64_t begin, int64_t end) {
  const std::vector<float> all = Values(view);
  std::vector<float> part;
  for (int64_t row = 0; row < view.shape[0]; ++row) {
    const auto start = all.begin() + row * view.shape[1];
    part.insert(part.end(), start + begin, start + end);
  }
  return part;
}

TEST(RandomWeightsTest, FusedProjectionHasTheVarianceOfEachPart) {
  ModelConfig config = Gpt2();
  config.num_kv_heads = 1;
  const RandomWeights random = Make(config);
  const LayerWeights& layer = random.weights().layers[1];
  ASSERT_EQ(layer.qkv.shape, Shape({96, 96 + 16 + 16}));
  ExpectNormal(Columns(layer.qkv, 0, 96), LinearScale(96, 96), "q");
  ExpectNormal(Columns(layer.qkv, 96, 112), LinearScale(96, 16), "k");
  ExpectNormal(Columns(layer.qkv, 112, 128), LinearScale(96, 16), "v");
}

TEST(RandomWeightsTest, BiasesAreZeroAndPositionsLikeEmbeddings) {
  const RandomWeights random = Make(Gpt2());
  const ModelWeights& weights = random.weights();
  ExpectNormal(Values(weights.position_embedding), 1.0, "positions");
  EXPECT_EQ(weights.lm_head.data, weights.token_embedding.data);
  EXPECT_THAT(Values(weights.final_norm_bias), testing::Each(0.0f));
  const LayerWeights& layer = weights.layers[0];
  for (const TensorView& bias : {layer.attn_norm_bias, layer.qkv_bias, layer.o_bias,
                                 layer.ffn_norm_bias, layer.up_bias, layer.down_bias}) {
    ASSERT_NE(bias.data, nullptr);
    EXPECT_THAT(Values(bias), testing::Each(0.0f));
  }
  EXPECT_EQ(layer.gate.data, nullptr);
}

TEST(RandomWeightsTest, EveryTensorHasItsPlaceAndAlignment) {
  const ModelConfig config = Gpt2();
  RandomWeights random = Make(config, DType::kBF16);
  const RandomWeights moved = std::move(random);
  ModelWeights weights = moved.weights();
  uint64_t bytes = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    const TensorView& view = *PlaceOf(spec, &weights);
    EXPECT_EQ(view.shape, spec.shape) << spec.name;
    EXPECT_EQ(view.dtype, DType::kBF16) << spec.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.data) % 64, 0u) << spec.name;
    bytes += view.bytes();
  }
  EXPECT_GE(RandomWeights::BytesFor(config, DType::kBF16), bytes);
}

TEST(RandomWeightsTest, ThreadsDoNotMatter) {
  ModelConfig config = Llama();
  config.vocab_size = 9001;  // several chunks
  const RandomWeights one = Make(config, DType::kF32, 5, 1);
  const RandomWeights many = Make(config, DType::kF32, 5, 7);
  EXPECT_EQ(Values(one.weights().token_embedding), Values(many.weights().token_embedding));
  EXPECT_EQ(Values(one.weights().lm_head), Values(many.weights().lm_head));
  EXPECT_EQ(Values(one.weights().layers[1].down), Values(many.weights().layers[1].down));
}

TEST(RandomWeightsTest, ATensorDependsOnItsNameAndTheSeedAlone) {
  const RandomWeights untied = Make(Llama());
  ModelConfig other = Llama();
  other.tie_word_embeddings = true;
  other.num_layers = 1;
  const RandomWeights tied = Make(other);
  EXPECT_EQ(Values(untied.weights().layers[0].up), Values(tied.weights().layers[0].up));
  EXPECT_NE(Values(untied.weights().layers[0].up), Values(untied.weights().layers[0].gate));
  EXPECT_NE(Values(untied.weights().layers[0].up), Values(untied.weights().layers[1].up));
  const RandomWeights reseeded = Make(Llama(), DType::kF32, 2);
  EXPECT_NE(Values(untied.weights().layers[0].up), Values(reseeded.weights().layers[0].up));
}

TEST(RandomWeightsTest, OtherTypesRoundTheSameValues) {
  const RandomWeights full = Make(Llama());
  const RandomWeights bf16 = Make(Llama(), DType::kBF16);
  const RandomWeights f16 = Make(Llama(), DType::kF16);
  const std::vector<float> values = Values(full.weights().layers[0].q);
  const std::vector<float> in_bf16 = Values(bf16.weights().layers[0].q);
  const std::vector<float> in_f16 = Values(f16.weights().layers[0].q);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(in_bf16[i], Bf16ToFloat(FloatToBf16(values[i])));
    EXPECT_EQ(in_f16[i], F16ToFloat(FloatToF16(values[i])));
  }
  EXPECT_THAT(Values(f16.weights().final_norm), testing::Each(1.0f));
}

TEST(RandomWeightsTest, RefusesWhatCannotFitBeforeTakingIt) {
  ModelConfig config = Llama();
  config.vocab_size = ConfigLimits::kVocabSize;
  config.d_model = ConfigLimits::kDModel;
  const absl::Status status = RandomWeights::Create(config, DType::kF32, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(HumanBytes(RandomWeights::BytesFor(config, DType::kF32))));
}

TEST(RandomWeightsTest, ReservedOnesAreGeneratedWhenAcquired) {
  const ModelConfig config = Llama();
  const RandomWeights random = Make(config);
  absl::StatusOr<RandomWeights> reserved = RandomWeights::Reserve(config, DType::kF32, 1, 2);
  ASSERT_TRUE(reserved.ok()) << reserved.status();
  const RandomWeights moved = *std::move(reserved);
  const LayerWeights& expected = random.weights().layers[1];
  const LayerWeights& layer = moved.weights().layers[1];
  ASSERT_NE(moved.weights().pager, nullptr);
  EXPECT_EQ(random.weights().pager, nullptr);
  for (int round = 0; round < 2; ++round) {
    const TensorView acquired[] = {layer.gate, layer.up, TensorView()};
    ASSERT_TRUE(moved.weights().pager->Acquire(acquired).ok());
    EXPECT_EQ(Values(layer.gate), Values(expected.gate));
    EXPECT_EQ(Values(layer.up), Values(expected.up));
    EXPECT_THAT(Values(layer.down), testing::Each(0.0f)) << "it was not acquired";
    moved.weights().pager->Release(acquired);
    EXPECT_THAT(Values(layer.gate), testing::Each(0.0f)) << "its memory is gone";
  }
  const uint64_t at_once = moved.ResidentBytes();
  EXPECT_GE(at_once, expected.gate.bytes() + expected.up.bytes());
  EXPECT_LT(at_once, RandomWeights::BytesFor(config, DType::kF32));
}

}  // namespace
}  // namespace tlm
