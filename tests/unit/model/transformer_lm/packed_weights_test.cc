#include "model/transformer_lm/packed_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "model/base/float16.h"
#include "model/ops/cpu/cpu_matrix.h"
#include "model/ops/cpu/cpu_ops.h"
#include "model/ops/forwarding_ops.h"
#include "model/tensor/blocks.h"
#include "model/weights/name_map.h"
#include "tests/support/block_model.h"
#include "tests/support/random_model.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

// The processor's operations; says what it takes, and remembers what it was given.
class RecordingOps : public ForwardingOps {
 public:
  RecordingOps(Ops& ops, bool takes_blocks, bool takes_float_rows = true)
      : ForwardingOps(ops), takes_blocks_(takes_blocks), takes_float_rows_(takes_float_rows) {}
  bool TakesBlocks(std::span<const TensorView>, MatrixUse) const override { return takes_blocks_; }
  bool TakesFloatRows() const override { return takes_float_rows_; }
  bool TakesWeights(WeightFormat format) const override {
    return takes_blocks_ || format == WeightFormat::kAsGiven;
  }
  // Stores the elements of types in blocks as zeros.
  absl::StatusOr<std::unique_ptr<Matrix>> PackMatrix(std::span<const TensorView> parts,
                                                     MatrixOrder order = MatrixOrder::kOutputsFirst,
                                                     MatrixUse use = MatrixUse::kPlain,
                                                     WeightFormat format = WeightFormat::kAsGiven,
                                                     std::span<const float> = {}) override {
    formats.insert(format);
    std::vector<TensorView> floats;
    for (const TensorView& part : parts) {
      given.push_back(part);
      if (IsBlockQuantised(part.dtype)) {
        zeros_.emplace_back(static_cast<size_t>(part.elements()), 0.0f);
        floats.push_back({DType::kF32, part.shape, zeros_.back().data()});
      } else {
        floats.push_back(part);
      }
    }
    return ForwardingOps::PackMatrix(floats, order, use);
  }

  std::vector<TensorView> given;  // parts of all calls; of those in float32 the data are gone
  std::set<WeightFormat> formats;

 private:
  const bool takes_blocks_;
  const bool takes_float_rows_;
  std::vector<std::vector<float>> zeros_;
};

absl::StatusOr<PackedWeights> Pack(const ModelConfig& config, const ModelWeights& weights,
                                   WeightFormat format, Ops& ops) {
  return PackWeights(config, weights, PlanPacking(config, weights, format, ops), ops);
}

class PackedWeightsTest : public ::testing::Test {
 protected:
  static std::set<DType> TypesIn(const std::vector<TensorView>& parts) {
    std::set<DType> types;
    for (const TensorView& part : parts) types.insert(part.dtype);
    return types;
  }

  std::unique_ptr<CpuOps> cpu_ = *CpuOps::Create(2, Isa::kPortable);
};

TEST_F(PackedWeightsTest, PassesBlocksOnWhereTheyAreTaken) {
  const BlockModel model(BlockConfig("qwen3"), GgufBlockTypes(), 1);
  RecordingOps ops(*cpu_, /*takes_blocks=*/true);
  ASSERT_THAT(Pack(model.config(), model.weights(), WeightFormat::kAsGiven, ops), IsOk());
  const std::vector<DType> types = GgufBlockTypes();
  EXPECT_EQ(TypesIn(ops.given), std::set<DType>(types.begin(), types.end()));
  EXPECT_EQ(PlanPacking(model.config(), model.weights(), WeightFormat::kAsGiven, ops).matrix_type,
            DType::kI8);
}

// Row by row equal to the blocks' values, whatever their type and the order of their inputs.
TEST_F(PackedWeightsTest, DequantisesWhatIsNotTaken) {
  const BlockModel model(BlockConfig("qwen3"), OwnBlockTypes(), 2, /*reordered=*/true);
  RecordingOps without(*cpu_, /*takes_blocks=*/false);
  RecordingOps with(*cpu_, /*takes_blocks=*/true);
  struct Case {
    RecordingOps& ops;
    WeightFormat format;
  };
  for (const Case& c :
       {Case{without, WeightFormat::kAsGiven}, Case{without, WeightFormat::kFloat32},
        Case{with, WeightFormat::kFloat32}}) {
    c.ops.given.clear();
    const auto packed = Pack(model.config(), model.weights(), c.format, c.ops);
    ASSERT_THAT(packed, IsOk());
    EXPECT_EQ(TypesIn(c.ops.given), std::set<DType>{DType::kF32});
    EXPECT_EQ(c.ops.formats, std::set<WeightFormat>{WeightFormat::kAsGiven});
    EXPECT_EQ(PlanPacking(model.config(), model.weights(), c.format, c.ops).matrix_type,
              DType::kF32);
    const LayerWeights& layer = model.dequantised().layers[1];
    const auto& down = static_cast<const CpuMatrix&>(*packed->layers[1].down.matrix);
    std::vector<float> row(down.k());
    for (int64_t output = 0; output < down.n(); ++output) {
      down.CopyRow(output, row.data());
      ASSERT_TRUE(std::equal(row.begin(), row.end(), layer.down.as<float>() + output * down.k()));
    }
  }
}

// Of floats of 8 bits: to BF16, but with float32 asked for to their values.
TEST_F(PackedWeightsTest, DequantisesFloatsOf8BitsToBf16) {
  const BlockModel model(BlockConfig("qwen3"), Float8BlockTypes(), 2);
  for (const WeightFormat format : {WeightFormat::kAsGiven, WeightFormat::kFloat32}) {
    RecordingOps ops(*cpu_, /*takes_blocks=*/false);
    const auto packed = Pack(model.config(), model.weights(), format, ops);
    ASSERT_THAT(packed, IsOk());
    const bool exact = format == WeightFormat::kFloat32;
    const DType type = exact ? DType::kF32 : DType::kBF16;
    EXPECT_EQ(TypesIn(ops.given), std::set<DType>{type});
    EXPECT_EQ(PlanPacking(model.config(), model.weights(), format, ops).matrix_type, type);
    const LayerWeights& layer = model.dequantised().layers[1];
    const auto& down = static_cast<const CpuMatrix&>(*packed->layers[1].down.matrix);
    std::vector<float> row(down.k());
    for (int64_t output = 0; output < down.n(); ++output) {
      down.CopyRow(output, row.data());
      for (int64_t i = 0; i < down.k(); ++i) {
        const float value = layer.down.as<float>()[output * down.k() + i];
        ASSERT_EQ(row[i], exact ? value : Bf16ToFloat(FloatToBf16(value)));
      }
    }
  }
}

TEST_F(PackedWeightsTest, Float32WidensEveryMatrix) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const RandomModel model(SmallConfig("gpt2"), dtype, 3);
    const auto packed = Pack(model.config(), model.weights(), WeightFormat::kFloat32, *cpu_);
    ASSERT_THAT(packed, IsOk());
    for (const PackedLayer& layer : packed->layers) {
      for (const PackedLinear* const linear :
           {&layer.qkv, &layer.attention, &layer.up, &layer.down}) {
        EXPECT_EQ(linear->matrix->dtype(), DType::kF32);
      }
    }
    EXPECT_EQ(packed->token_embedding->dtype(), DType::kF32);
  }
}

TEST_F(PackedWeightsTest, FloatsBesideBlocksKeepTheirTypeWhereFloatRowsAreTaken) {
  const BlockModel blocks(BlockConfig("qwen3"), {DType::kQ4K}, 4);
  const RandomModel halves(BlockConfig("qwen3"), DType::kF16, 4);
  ModelWeights weights = blocks.weights();
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    weights.layers[i].o = halves.weights().layers[i].o;
    weights.layers[i].down = halves.weights().layers[i].down;
  }
  RecordingOps taking(*cpu_, /*takes_blocks=*/true);
  ASSERT_THAT(Pack(blocks.config(), weights, WeightFormat::kAsGiven, taking), IsOk());
  EXPECT_EQ(TypesIn(taking.given), (std::set<DType>{DType::kQ4K, DType::kF16}));
}

// Where activations have 16 bits beside matrices in blocks.
class RoundingOps : public RecordingOps {
 public:
  explicit RoundingOps(Ops& ops)
      : RecordingOps(ops, /*takes_blocks=*/true, /*takes_float_rows=*/false) {}
  DType ActivationType(DType weights) const override {
    return weights == DType::kI8 ? DType::kBF16 : weights;
  }
};

TEST_F(PackedWeightsTest, FloatsBesideBlocksAreRoundedToActivationsOf16Bits) {
  // Matrices of 192 and of 288 inputs are F32.
  const BlockModel blocks(BlockConfig("qwen3"), {DType::kQ4K}, 4);
  RoundingOps ops(*cpu_);
  ASSERT_THAT(Pack(blocks.config(), blocks.weights(), WeightFormat::kAsGiven, ops), IsOk());
  EXPECT_EQ(TypesIn(ops.given), (std::set<DType>{DType::kQ4K, DType::kF32}));
  EXPECT_EQ(ops.formats, std::set<WeightFormat>{WeightFormat::kBFloat16});
  const auto bytes = [&](const Ops& on) {
    return PlanPacking(blocks.config(), blocks.weights(), WeightFormat::kAsGiven, on).device;
  };
  const RecordingOps taking(*cpu_, /*takes_blocks=*/true);
  const int64_t floats = 256 * (192 + 288) * blocks.config().num_layers;
  EXPECT_EQ(bytes(taking) - bytes(ops), static_cast<uint64_t>(2 * floats));
  // A model of floats alone is what it was.
  const RandomModel model(SmallConfig("gpt2"), DType::kBF16, 5);
  ops.formats.clear();
  ASSERT_THAT(Pack(model.config(), model.weights(), WeightFormat::kAsGiven, ops), IsOk());
  EXPECT_EQ(ops.formats, std::set<WeightFormat>{WeightFormat::kAsGiven});
}

TEST_F(PackedWeightsTest, QuantisesMatricesButNotPositions) {
  const RandomModel model(SmallConfig("gpt2"), DType::kF16, 5);
  RecordingOps ops(*cpu_, /*takes_blocks=*/true);
  const auto packed = Pack(model.config(), model.weights(), WeightFormat::kInt4G64, ops);
  ASSERT_THAT(packed, IsOk());
  EXPECT_EQ(ops.formats, (std::set<WeightFormat>{WeightFormat::kAsGiven, WeightFormat::kInt4G64}));
  EXPECT_EQ(packed->position_embedding->dtype(), DType::kF16);
  RecordingOps without(*cpu_, /*takes_blocks=*/false);
  EXPECT_THAT(Pack(model.config(), model.weights(), WeightFormat::kInt4G64, without),
              IsUnimplemented("int4:64 weights on backend"));
}

TEST_F(PackedWeightsTest, NamesTheTensorWithAValueThatIsNotFinite) {
  const BlockModel model(BlockConfig("llama"), {DType::kQ8_0}, 6);
  const TensorView& up = model.weights().layers[1].up;
  std::vector<std::byte> bytes(up.as<std::byte>(), up.as<std::byte>() + up.bytes());
  const size_t block = 1001;
  bytes[block * 34] = std::byte{0x00};  // its scale: infinity
  bytes[block * 34 + 1] = std::byte{0x7c};
  ModelWeights weights = model.weights();
  weights.layers[1].up.data = bytes.data();
  EXPECT_THAT(Pack(model.config(), weights, WeightFormat::kAsGiven, *cpu_),
              IsInvalidArgument("layers.1.mlp.up_proj.weight", "element 32032 is"));
}

// What is allocated is what the plan says, up to padding.
TEST_F(PackedWeightsTest, PlansItsMemory) {
  struct Case {
    ModelConfig config;
    const ModelWeights& weights;
    WeightFormat format;
    uint64_t host;
  };
  const BlockModel blocks(BlockConfig("qwen3"), GgufBlockTypes(), 7);
  const BlockModel alike(BlockConfig("qwen3"), {DType::kQ4_1}, 7);
  const RandomModel floats(BlockConfig("gpt2"), DType::kBF16, 7);
  const uint64_t widest = 256 * 2 * 288 * sizeof(float);  // gate and up
  for (const Case& c : {Case{alike.config(), alike.weights(), WeightFormat::kAsGiven, 0},
                        // The halves of the gated matrices differ.
                        Case{blocks.config(), blocks.weights(), WeightFormat::kAsGiven, widest},
                        Case{blocks.config(), blocks.weights(), WeightFormat::kFloat32, widest},
                        Case{floats.config(), floats.weights(), WeightFormat::kAsGiven, 0},
                        Case{floats.config(), floats.weights(), WeightFormat::kFloat32, 0},
                        Case{floats.config(), floats.weights(), WeightFormat::kInt8, 0},
                        Case{floats.config(), floats.weights(), WeightFormat::kInt4G32, 0}}) {
    SCOPED_TRACE(WeightFormatName(c.format));
    const PackingPlan planned = PlanPacking(c.config, c.weights, c.format, *cpu_);
    const auto packed = Pack(c.config, c.weights, c.format, *cpu_);
    ASSERT_THAT(packed, IsOk());
    uint64_t bytes = 0;
    for (const auto& [dtype, part] : BytesByType(*packed)) bytes += part;
    EXPECT_GT(planned.device, bytes * 9 / 10);
    EXPECT_LT(planned.device, bytes * 12 / 10);
    EXPECT_EQ(planned.host, c.host);
  }
}

}  // namespace
}  // namespace tlm
