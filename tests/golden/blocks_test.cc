// Compares models whose matrices are in blocks, or are quantised while they are loaded, with a
// float64 transformer that has the values of the blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/ops/cpu/cpu_ops.h"
#include "model/transformer_lm/transformer_lm.h"
#include "tests/support/block_model.h"
#include "tests/support/chunked_sequence.h"
#include "tests/support/reference_model.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr int64_t kTokens = 48;
constexpr BatchLimits kLimits = {
    .max_tokens = kTokens, .max_sequences = 1, .max_logits_rows = kTokens, .max_context = 256};
constexpr KvPlan kKv = {.num_blocks = 12};
// Relative L2 of the logits: activations are rounded to 8 bits before each product, or not at all.
constexpr double kRounded = 2e-2;
constexpr double kExact = 1e-5;

void ExpectReferenceLogits(const BlockModel& blocks) {
  const ModelConfig& config = blocks.config();
  const std::vector<int32_t> ids = RandomIds(kTokens, config.vocab_size, 2);
  const std::vector<double> expected = ReferenceLogits(config, blocks.dequantised(), ids);
  for (const Isa isa : AvailableIsas()) {
    SCOPED_TRACE(IsaName(isa));
    const auto ops = CpuOps::Create(2, isa);
    ASSERT_THAT(ops, IsOk());
    const auto error = [&](WeightFormat format) {
      const auto model = TransformerLM::Load(config, blocks.weights(), **ops, kLimits, kKv, format);
      EXPECT_THAT(model, IsOk());
      return model.ok() ? RelativeError(RunAlone(**model, ids, 29), expected) : INFINITY;
    };
    const double rounded = error(WeightFormat::kAsGiven);
    EXPECT_LT(rounded, kRounded);
    EXPECT_GT(rounded, kExact) << "activations have 8 bits";
    EXPECT_LT(error(WeightFormat::kFloat32), kExact);
  }
}

class BlocksTest : public ::testing::TestWithParam<DType> {};

TEST_P(BlocksTest, LogitsAreThoseOfTheDequantisedWeights) {
  // Q8_0 is used where the blocks do not divide a matrix.
  ExpectReferenceLogits(BlockModel(BlockConfig("qwen3"), {GetParam(), DType::kQ8_0}, 1));
}

std::string NameOf(const testing::TestParamInfo<DType>& info) { return DTypeName(info.param); }
INSTANTIATE_TEST_SUITE_P(Gguf, BlocksTest, ::testing::ValuesIn(GgufBlockTypes()), NameOf);
INSTANTIATE_TEST_SUITE_P(Floats, BlocksTest, ::testing::ValuesIn(Float8BlockTypes()), NameOf);
INSTANTIATE_TEST_SUITE_P(Own, BlocksTest, ::testing::ValuesIn(OwnBlockTypes()), NameOf);

TEST(MixedBlocksTest, StacksHavePartsOfSeveralTypes) {
  ExpectReferenceLogits(BlockModel(BlockConfig("qwen3"), GgufBlockTypes(), 3));
  ExpectReferenceLogits(BlockModel(BlockConfig("gpt2"), GgufBlockTypes(), 4));
}

TEST(MixedBlocksTest, InputsHaveAnOrderOfTheirOwn) {
  ExpectReferenceLogits(BlockModel(BlockConfig("llama"), OwnBlockTypes(), 5, /*reordered=*/true));
}

TEST(MixedBlocksTest, FloatsStandBesideBlocks) {
  // The output projections, of 192 inputs, and the second matrices are F32.
  ExpectReferenceLogits(BlockModel(BlockConfig("qwen2"), {DType::kQ4K}, 6));
}

}  // namespace
}  // namespace tlm
