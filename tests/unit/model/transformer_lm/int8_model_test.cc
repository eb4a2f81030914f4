// Whole models whose matrices are stored in 8 bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "model/ops/cpu/cpu_matrix.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/forwarding_ops.h"
#include "model/transformer_lm/transformer_lm.h"
#include "model/weights/name_map.h"
#include "tests/support/chunked_sequence.h"
#include "tests/support/random_model.h"
#include "tests/support/reference_model.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr BatchLimits kLimits = {
    .max_tokens = 200, .max_sequences = 8, .max_logits_rows = 200, .max_context = 256};
constexpr KvPlan kKv = {.num_blocks = 24};

std::unique_ptr<CpuOps> MakeOps(int threads, Isa isa) {
  auto ops = CpuOps::Create(threads, isa);
  EXPECT_THAT(ops, IsOk());
  return *std::move(ops);
}

std::unique_ptr<TransformerLM> Load(const RandomModel& random, Ops& ops) {
  auto model = TransformerLM::Load(random.config(), random.weights(), ops, kLimits, kKv,
                                   WeightFormat::kInt8);
  EXPECT_THAT(model, IsOk());
  return *std::move(model);
}

// The weights of a model as its 8-bit matrices hold them, in float32.
class Dequantised {
 public:
  explicit Dequantised(const RandomModel& random) : weights_(random.weights()) {
    const auto replace = [&](TensorView& tensor, TensorRole role) {
      if (tensor.data == nullptr || tensor.shape.rank() != 2) return;
      Replace(tensor, IsInputsFirst(random.config().naming, role) ? MatrixOrder::kInputsFirst
                                                                  : MatrixOrder::kOutputsFirst);
    };
    const bool tied = random.config().tie_word_embeddings;
    replace(weights_.token_embedding, TensorRole::kTokenEmbedding);
    if (tied) {
      weights_.lm_head = weights_.token_embedding;
    } else {
      replace(weights_.lm_head, TensorRole::kLmHead);
    }
    for (LayerWeights& layer : weights_.layers) {
      replace(layer.qkv, TensorRole::kQkv);
      replace(layer.q, TensorRole::kQ);
      replace(layer.k, TensorRole::kK);
      replace(layer.v, TensorRole::kV);
      replace(layer.o, TensorRole::kO);
      replace(layer.gate, TensorRole::kGate);
      replace(layer.up, TensorRole::kUp);
      replace(layer.down, TensorRole::kDown);
    }
  }
  const ModelWeights& weights() const { return weights_; }

 private:
  void Replace(TensorView& tensor, MatrixOrder order) {
    const auto packed =
        ops_->PackMatrix({&tensor, 1}, order, MatrixUse::kPlain, WeightFormat::kInt8);
    ASSERT_THAT(packed, IsOk());
    const auto& matrix = static_cast<const CpuMatrix&>(**packed);
    const int64_t n = matrix.n();
    const int64_t k = matrix.k();
    std::vector<float> row(k);
    auto& values = values_.emplace_back(std::make_unique<std::vector<float>>(n * k));
    for (int64_t output = 0; output < n; ++output) {
      matrix.CopyRow(output, row.data());
      for (int64_t i = 0; i < k; ++i) {
        (*values)[order == MatrixOrder::kOutputsFirst ? output * k + i : i * n + output] = row[i];
      }
    }
    tensor = {DType::kF32, tensor.shape, values->data()};
  }

  std::unique_ptr<CpuOps> ops_ = MakeOps(1, Isa::kPortable);
  ModelWeights weights_;
  std::vector<std::unique_ptr<std::vector<float>>> values_;
};

struct Case {
  const char* config;
  DType dtype;
};

class Int8ModelTest : public ::testing::TestWithParam<Case> {};

// What remains is the rounding of activations to 8 bits before every product: off by at most half
// a scale, with normally distributed values of some 64 inputs about 1 / 150 of their size each
// time, twice or thrice a layer.
TEST_P(Int8ModelTest, LogitsAreThoseOfTheDequantisedWeights) {
  const RandomModel random(SmallConfig(GetParam().config), GetParam().dtype, 1);
  const Dequantised dequantised(random);
  const std::vector<int32_t> ids = RandomIds(120, random.config().vocab_size, 2);
  const std::vector<double> expected = ReferenceLogits(random.config(), dequantised.weights(), ids);
  for (const Isa isa : AvailableIsas()) {
    SCOPED_TRACE(IsaName(isa));
    const auto ops = MakeOps(2, isa);
    const auto model = Load(random, *ops);
    const std::vector<float> actual = RunAlone(*model, ids, 120);
    ASSERT_EQ(actual.size(), expected.size());
    const double error = RelativeError(actual, expected);
    EXPECT_LT(error, 0.02);
    EXPECT_GT(error, 1e-5);  // there is a loss
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Int8ModelTest,
                         ::testing::Values(Case{"qwen3", DType::kBF16}, Case{"cs336", DType::kF32},
                                           Case{"gpt2", DType::kF16}, Case{"llama", DType::kF32}),
                         [](const auto& info) {
                           return fmt::format("{}_{}", info.param.config,
                                              DTypeName(info.param.dtype));
                         });

TEST(Int8ModelLoadTest, CountsElementsWithTheirScalesAndPlansItsMemory) {
  const RandomModel random(SmallConfig("qwen3"), DType::kBF16, 5);
  const ModelConfig& config = random.config();
  const auto ops = MakeOps(2, AvailableIsas().back());
  const auto model = Load(random, *ops);
  // Panels of 16 outputs and steps of 64 inputs, a float32 for every 256 inputs begun.
  const auto matrix = [](int64_t n, int64_t k) {
    return (n + 15) / 16 * 16 * ((k + 63) / 64 * 64 + 4 * ((k + 255) / 256));
  };
  const int64_t d = config.d_model;
  const int64_t layer = matrix(config.q_size() + 2 * config.kv_size(), d) +
                        matrix(d, config.q_size()) + 2 * matrix(config.d_ff, d) +
                        matrix(d, config.d_ff);
  const int64_t expected = (config.tie_word_embeddings ? 1 : 2) * matrix(config.vocab_size, d) +
                           config.num_layers * layer;
  const auto bytes = model->WeightBytes();
  EXPECT_EQ(bytes.at(DType::kI8G256), static_cast<uint64_t>(expected));
  EXPECT_EQ(bytes.size(), 2u);  // and vectors in float32

  const auto allocated = ops->device().AllocatedBytes();
  uint64_t weights = 0;
  for (const auto& [dtype, held] : bytes) weights += held;
  EXPECT_EQ(allocated[static_cast<int>(MemoryPurpose::kWeights)], weights);
  size_t taken = 0;
  for (const size_t part : allocated) taken += part;
  EXPECT_EQ(taken - weights - allocated[static_cast<int>(MemoryPurpose::kKvCache)],
            TransformerLM::WorkspaceBytes(config, kLimits, DType::kI8, *ops));
}

// A backend without such matrices.
class AsGivenOps : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;
  bool TakesWeights(WeightFormat format) const override { return format == WeightFormat::kAsGiven; }
};

TEST(Int8ModelLoadTest, IsRefusedByABackendWithoutIt) {
  const RandomModel random(SmallConfig("llama"), DType::kF32, 6);
  const auto ops = MakeOps(1, AvailableIsas().back());
  AsGivenOps as_given(*ops);
  EXPECT_THAT(TransformerLM::Load(random.config(), random.weights(), as_given, kLimits, kKv,
                                  WeightFormat::kInt8),
              IsUnimplemented("int8 weights on backend cpu"));
}

}  // namespace
}  // namespace tlm
