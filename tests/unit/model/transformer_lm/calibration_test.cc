#include "model/transformer_lm/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "model/ops/cpu/cpu_matrix.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/transformer_lm/transformer_lm.h"
#include "tests/support/chunked_sequence.h"
#include "tests/support/random_model.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr BatchLimits kLimits = {
    .max_tokens = 64, .max_sequences = 1, .max_logits_rows = 1, .max_context = 64};

std::unique_ptr<CpuOps> MakeOps() {
  auto ops = CpuOps::Create(2);
  EXPECT_THAT(ops, IsOk());
  return *std::move(ops);
}

// The inputs of the first layer depend on each token alone: their mean squares by definition.
std::vector<double> FirstInputs(const RandomModel& random, const std::vector<int32_t>& ids) {
  const ModelConfig& config = random.config();
  const auto d = static_cast<size_t>(config.d_model);
  const float* const gain = random.weights().layers[0].attn_norm.as<float>();
  std::vector<double> squares(d);
  for (const int32_t id : ids) {
    const float* const row =
        random.weights().token_embedding.as<float>() + static_cast<size_t>(id) * d;
    double mean = 0;
    for (size_t i = 0; i < d; ++i) mean += double{row[i]} * row[i] / static_cast<double>(d);
    for (size_t i = 0; i < d; ++i) {
      const double value = row[i] * gain[i];
      squares[i] += value * value / (mean + config.norm_eps) / static_cast<double>(ids.size());
    }
  }
  return squares;
}

TEST(CalibrationTest, IsTheMeanSquareOfEveryInput) {
  const RandomModel random(SmallConfig("llama"), DType::kF32, 1);
  const ModelConfig& config = random.config();
  // Windows of 256, the context, the last one of 88.
  const std::vector<int32_t> ids = RandomIds(600, config.vocab_size, 2);
  const auto ops = MakeOps();
  const auto importance = MeasureImportance(config, random.weights(), *ops, ids);
  ASSERT_THAT(importance, IsOk());
  const std::vector<double> expected = FirstInputs(random, ids);
  ASSERT_EQ(importance->layers.size(), static_cast<size_t>(config.num_layers));
  ASSERT_EQ(importance->layers[0].qkv.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(importance->layers[0].qkv[i], expected[i], 1e-4 * expected[i]) << i;
  }
  EXPECT_EQ(importance->head.size(), static_cast<size_t>(config.d_model));
  for (const InputImportance::Layer& layer : importance->layers) {
    EXPECT_EQ(layer.attention.size(), static_cast<size_t>(config.q_size()));
    EXPECT_EQ(layer.up.size(), static_cast<size_t>(config.d_model));
    EXPECT_EQ(layer.down.size(), static_cast<size_t>(config.d_ff));
  }
  // Nothing of the model that was measured stays.
  for (const size_t bytes : ops->device().AllocatedBytes()) EXPECT_EQ(bytes, 0u);
}

TEST(CalibrationTest, EveryFamilyAndType) {
  for (const char* const name : {"qwen3", "gpt2", "cs336"}) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
      const RandomModel random(SmallConfig(name), type, 3);
      const std::vector<int32_t> ids = RandomIds(300, random.config().vocab_size, 4);
      const auto ops = MakeOps();
      const auto importance = MeasureImportance(random.config(), random.weights(), *ops, ids);
      ASSERT_THAT(importance, IsOk()) << name;
      const auto model =
          TransformerLM::Load(random.config(), random.weights(), *ops, kLimits, {.num_blocks = 1},
                              WeightFormat::kInt4G64, &*importance);
      EXPECT_THAT(model, IsOk()) << name;
    }
  }
}

// The error of one input of all outputs.
double ErrorAt(const Matrix& packed, const TensorView& stored, int64_t input) {
  const auto& matrix = static_cast<const CpuMatrix&>(packed);
  std::vector<float> row(matrix.k());
  double error = 0;
  for (int64_t n = 0; n < matrix.n(); ++n) {
    matrix.CopyRow(n, row.data());
    const double difference = double{row[input]} - stored.as<float>()[n * matrix.k() + input];
    error += difference * difference;
  }
  return error;
}

TEST(CalibrationTest, ImportantInputsComeCloser) {
  const RandomModel random(SmallConfig("llama"), DType::kF32, 5);
  const ModelConfig& config = random.config();
  InputImportance importance;
  importance.head.assign(config.d_model, 1.0f);
  importance.layers.resize(config.num_layers);
  for (InputImportance::Layer& layer : importance.layers) {
    layer.qkv.assign(config.d_model, 1.0f);
    layer.attention.assign(config.q_size(), 1.0f);
    layer.up.assign(config.d_model, 1.0f);
    layer.down.assign(config.d_ff, 1.0f);
  }
  constexpr int64_t kInput = 7;
  importance.layers[1].down[kInput] = 1000.0f;
  const auto ops = MakeOps();
  const auto other_ops = MakeOps();
  const auto load = [&](Ops& on, const InputImportance* with) {
    auto model = TransformerLM::Load(config, random.weights(), on, kLimits, {.num_blocks = 1},
                                     WeightFormat::kInt4, with);
    EXPECT_THAT(model, IsOk());
    return *std::move(model);
  };
  const auto plain = load(*ops, nullptr);
  const auto weighted = load(*other_ops, &importance);
  const auto error = [&](const TransformerLM& model, size_t layer) {
    return ErrorAt(*model.weights().layers[layer].down.matrix, random.weights().layers[layer].down,
                   kInput);
  };
  EXPECT_LT(error(*weighted, 1), 0.2 * error(*plain, 1));
  EXPECT_EQ(error(*weighted, 0), error(*plain, 0));
  // Of the default, networks have 4 bits, the rest 8.
  EXPECT_EQ(plain->weights().layers[0].down.matrix->BytesByType().begin()->first, DType::kI4G32);
  EXPECT_EQ(plain->weights().layers[0].qkv.matrix->BytesByType().begin()->first, DType::kI8G256);
  EXPECT_EQ(plain->weights().token_embedding->BytesByType().begin()->first, DType::kI8G256);
}

TEST(CalibrationTest, TextsThatAreRefused) {
  const RandomModel random(SmallConfig("llama"), DType::kF32, 6);
  const auto ops = MakeOps();
  std::vector<int32_t> ids = RandomIds(kMinCalibrationTokens, random.config().vocab_size, 7);
  ids.pop_back();
  EXPECT_THAT(MeasureImportance(random.config(), random.weights(), *ops, ids),
              IsInvalidArgument("has 255 tokens"));
  ids.push_back(static_cast<int32_t>(random.config().vocab_size));
  EXPECT_THAT(MeasureImportance(random.config(), random.weights(), *ops, ids),
              IsInvalidArgument("token 131"));
}

}  // namespace
}  // namespace tlm
