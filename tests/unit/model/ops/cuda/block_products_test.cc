// Matrices in blocks on the device: their values, rounded to bfloat16, are all that products and
// embeddings know of them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cuda/cuda_ops.h"
#include "model/tensor/blocks.h"
#include "model/tensor/quantise.h"
#include "tests/support/block_model.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/cuda/gemm_fixture.h"

namespace tlm {
namespace {

std::vector<DType> AllTypes() {
  std::vector<DType> types = GgufBlockTypes();
  for (const DType type : OwnBlockTypes()) types.push_back(type);
  for (const DType type : Float8BlockTypes()) types.push_back(type);
  return types;
}

// A number of inputs that blocks of `type` divide: more than a cell, and where it can be, no whole
// number of spans.
int64_t InputsFor(DType type) {
  const auto elements = static_cast<int64_t>(BlockOf(type).elements);
  return elements == 32 ? 288 : elements == 64 ? 320 : elements == 128 ? 384 : 512;
}

// A host matrix in blocks, and what it means.
class Blocks {
 public:
  Blocks(DType type, int64_t n, int64_t k, uint64_t seed, bool reordered = false,
         bool short_scales = false)
      : view_{type, Shape{n, k}} {
    std::mt19937_64 random(seed);
    const auto count = static_cast<size_t>(n * k) / BlockOf(type).elements;
    bytes_ = RandomBlocks(type, count, 0.1f, random);
    if (short_scales) ShortenScales(type, random);
    view_.data = bytes_.data();
    std::vector<float> stored(n * k);
    Dequantise(type, bytes_.data(), count, stored.data());
    order_.resize(k);
    std::iota(order_.begin(), order_.end(), 0);
    if (reordered) {
      std::shuffle(order_.begin(), order_.end(), random);
      view_.input_order = order_.data();
    }
    values_.resize(stored.size());
    for (size_t i = 0; i < stored.size(); ++i) {
      const size_t input = i % static_cast<size_t>(k);
      values_[i - input + static_cast<size_t>(order_[input])] = stored[i];
    }
  }

  const TensorView& view() const { return view_; }
  const std::vector<float>& values() const { return values_; }

 private:
  // Scales of at most 11 significant bits, and zeros as files with such scales have them.
  void ShortenScales(DType type, std::mt19937_64& random) {
    for (size_t at = 0; at < bytes_.size(); at += BlockOf(type).bytes) {
      float scale = 0.0f;
      std::memcpy(&scale, &bytes_[at], sizeof(scale));
      scale = F16ToFloat(FloatToF16(scale));
      std::memcpy(&bytes_[at], &scale, sizeof(scale));
      bytes_[at + kOwnZeroAt] =
          FormatOf(type).bits == 8 ? std::byte{128} : static_cast<std::byte>(random() % 16);
    }
  }

  TensorView view_;
  std::vector<std::byte> bytes_;
  std::vector<int32_t> order_;
  std::vector<float> values_;
};

class BlockProductsTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }
  // Panels for matrices of so many elements.
  void Open(int64_t matrix_elements = 1 << 16) {
    ops_ = nullptr;
    ConfigureDevice({});
    ops_ = CudaOps::Create({}, nullptr).value();
    const ModelShape shape{.vocab_size = 64,
                           .num_heads = 2,
                           .num_kv_heads = 1,
                           .head_dim = 64,
                           .gated_outputs = 64,
                           .inputs = 512,
                           .matrix_elements = matrix_elements,
                           .has_blocks = true};
    const BatchLimits limits{
        .max_tokens = 8, .max_sequences = 1, .max_logits_rows = 1, .max_context = 64};
    ASSERT_THAT(ops_->Reserve(limits, shape, DType::kBF16), IsOk());
  }
  std::unique_ptr<Matrix> Pack(std::span<const TensorView> parts, MatrixUse use = MatrixUse::kPlain,
                               WeightFormat format = WeightFormat::kAsGiven) {
    auto packed = ops_->PackMatrix(parts, MatrixOrder::kOutputsFirst, use, format);
    EXPECT_THAT(packed, IsOk());
    return *std::move(packed);
  }
  // The values as bfloat16.
  std::unique_ptr<Matrix> PackRounded(const std::vector<float>& values, int64_t k,
                                      MatrixUse use = MatrixUse::kPlain) {
    std::vector<uint16_t> rounded;
    for (const float value : values) rounded.push_back(FloatToBf16(value));
    const TensorView view{DType::kBF16, Shape{static_cast<int64_t>(values.size()) / k, k},
                          rounded.data()};
    return Pack({&view, 1}, use);
  }
  Numbers Multiply(const Numbers& x, const Matrix& w, const float* bias, DType out_dtype) {
    const DeviceRows in(ops_->device(), x, 8, x.cols + 24);
    const Numbers blank{x.rows, w.n(), out_dtype, std::vector<float>(x.rows * w.n())};
    DeviceRows out(ops_->device(), blank, 16, w.n() + 24);
    EXPECT_THAT(ops_->MatMul(in.rows(), w, {.bias = bias}, out.rows()), IsOk());
    return out.Read();
  }
  Numbers MultiplyGated(const Numbers& x, const Matrix& w, const float* bias) {
    const DeviceRows in(ops_->device(), x, 8, x.cols + 24);
    const Numbers blank{x.rows, w.n() / 2, x.dtype, std::vector<float>(x.rows * w.n() / 2)};
    DeviceRows out(ops_->device(), blank, 16, w.n() / 2 + 24);
    EXPECT_THAT(ops_->MatMulGated(in.rows(), w, bias, out.rows()), IsOk());
    return out.Read();
  }
  // Rows 3, 49, 0, 31 and 32 of a table of 50, those of `positions` 0 to 4 added.
  Numbers Embed(const Matrix& table, const Matrix* positions) {
    Batch batch;
    batch.sequences = 1;
    batch.max_blocks = 1;
    batch.block_tables = {0};
    batch.token_ids = {3, 49, 0, 31, 32};
    for (int32_t i = 0; i < 5; ++i) {
      batch.positions.push_back(i);
      batch.sequence_of.push_back(0);
    }
    const auto on_device = ops_->BeginBatch(batch);
    EXPECT_THAT(on_device, IsOk());
    const int64_t tokens = on_device->layout.tokens;
    const Numbers blank{tokens, table.k(), DType::kF32, std::vector<float>(tokens * table.k())};
    DeviceRows out(ops_->device(), blank, 8, table.k() + 16);
    EXPECT_THAT(ops_->Embed(table, positions, *on_device, out.rows()), IsOk());
    const Numbers read = out.Read();
    EXPECT_THAT(ops_->EndBatch({}), IsOk());
    EXPECT_THAT(ops_->AwaitBatch(), IsOk());
    return read;
  }
  Buffer Bias(int64_t n) {
    const std::vector<float> bias = RandomNumbers(1, n, DType::kF32, 77).values;
    const TensorView view{DType::kF32, Shape{n}, bias.data()};
    return ops_->PackVector({&view, 1}).value();
  }
  // Parts in blocks one above the other, and their values as bfloat16.
  struct Packed {
    std::unique_ptr<Matrix> blocks, rounded;
  };
  Packed PackBoth(const std::vector<const Blocks*>& parts, MatrixUse use = MatrixUse::kPlain) {
    std::vector<TensorView> views;
    std::vector<float> values;
    for (const Blocks* const part : parts) {
      views.push_back(part->view());
      values.insert(values.end(), part->values().begin(), part->values().end());
    }
    EXPECT_TRUE(ops_->TakesBlocks(views, use));
    return {Pack(views, use), PackRounded(values, views[0].shape[1], use)};
  }
  void ExpectSameProducts(const std::vector<const Blocks*>& parts,
                          const std::vector<int64_t>& row_counts = {1, 9, 65}) {
    const Packed packed = PackBoth(parts);
    ExpectSameProducts(*packed.blocks, *packed.rounded, row_counts);
  }
  void ExpectSameGated(const Blocks& gate, const Blocks& up,
                       const std::vector<int64_t>& row_counts = {1, 17, 66}) {
    const Packed packed = PackBoth({&gate, &up}, MatrixUse::kGated);
    ExpectSameGated(*packed.blocks, *packed.rounded, row_counts);
  }
  void ExpectSameProducts(const Matrix& actual, const Matrix& expected,
                          const std::vector<int64_t>& row_counts = {1, 9, 65}) {
    const Buffer bias = Bias(actual.n());
    for (const int64_t m : row_counts) {
      SCOPED_TRACE(testing::Message() << "m " << m);
      const Numbers x = RandomNumbers(m, actual.k(), DType::kBF16, 5);
      ExpectSameBits(Multiply(x, actual, nullptr, DType::kF32),
                     Multiply(x, expected, nullptr, DType::kF32));
      ExpectSameBits(Multiply(x, actual, bias.as<float>(), DType::kBF16),
                     Multiply(x, expected, bias.as<float>(), DType::kBF16));
    }
  }
  void ExpectSameGated(const Matrix& actual, const Matrix& expected,
                       const std::vector<int64_t>& row_counts = {1, 17, 66}) {
    const Buffer bias = Bias(actual.n());
    for (const int64_t m : row_counts) {
      SCOPED_TRACE(testing::Message() << "m " << m);
      const Numbers x = RandomNumbers(m, actual.k(), DType::kBF16, 6);
      for (const float* const b : {static_cast<const float*>(nullptr), bias.as<const float>()}) {
        ExpectSameBits(MultiplyGated(x, actual, b), MultiplyGated(x, expected, b));
      }
    }
  }

  std::unique_ptr<CudaOps> ops_;
};

TEST_F(BlockProductsTest, EveryTypeHasTheProductsOfItsRoundedValues) {
  for (const DType type : AllTypes()) {
    SCOPED_TRACE(DTypeName(type));
    const Blocks blocks(type, 40, InputsFor(type), 1);
    const auto packed = Pack({&blocks.view(), 1});
    EXPECT_EQ(packed->dtype(), DType::kI8);
    EXPECT_EQ(packed->BytesByType(), (std::map<DType, uint64_t>{{type, packed->bytes()}}));
    EXPECT_LE(packed->bytes(), ops_->BlockMatrixBytes(type, 40, packed->k()));
    ExpectSameProducts(*packed, *PackRounded(blocks.values(), packed->k()));
  }
}

TEST_F(BlockProductsTest, RowCountsDoNotMatter) {
  for (const DType type : {DType::kQ4K, DType::kI4G128}) {
    SCOPED_TRACE(DTypeName(type));
    const Blocks blocks(type, 96, InputsFor(type), 2);
    ExpectSameProducts({&blocks}, {1, 2, 7, 8, 9, 16, 17, 31, 33, 63, 64, 65, 128, 129});
  }
}

// Scales of float32 that came from 16 bits have conversions of their own.
TEST_F(BlockProductsTest, ShortScalesHaveTheProductsOfTheirRoundedValues) {
  for (const DType type : OwnBlockTypes()) {
    SCOPED_TRACE(DTypeName(type));
    const Blocks blocks(type, 40, InputsFor(type), 37, /*reordered=*/false, /*short_scales=*/true);
    ExpectSameProducts({&blocks});
  }
}

// Few rows are multiplied with the blocks as they are: there is no panel.
TEST_F(BlockProductsTest, FewRowsNeedNoPanel) {
  Open(/*matrix_elements=*/0);
  for (const DType type : AllTypes()) {
    SCOPED_TRACE(DTypeName(type));
    const int64_t k = InputsFor(type);
    // More strips than blocks at work, the last one narrow.
    const Blocks blocks(type, 296, k, 31);
    ExpectSameProducts({&blocks}, {1, 8, 9, 16, 17, 32});
    ExpectSameGated(Blocks(type, 52, k, 32), Blocks(type, 52, k, 33), {1, 11, 32});
  }
  // A row of one span, and stacks of several types.
  const Blocks narrow(DType::kQ4_0, 48, 64, 34);
  ExpectSameProducts({&narrow}, {1, 32});
  const Blocks q(DType::kQ4K, 48, 512, 35), v(DType::kQ6K, 24, 512, 36);
  ExpectSameProducts({&q, &v}, {1, 20});
}

TEST_F(BlockProductsTest, GatedMatricesInterleaveTheirHalves) {
  for (const DType type : {DType::kQ4_0, DType::kQ6K, DType::kI8G32}) {
    for (const int64_t half : {64, 36}) {
      SCOPED_TRACE(testing::Message() << DTypeName(type) << " half " << half);
      ExpectSameGated(Blocks(type, half, InputsFor(type), 3),
                      Blocks(type, half, InputsFor(type), 4));
    }
  }
}

TEST_F(BlockProductsTest, StacksMayHaveSeveralTypesAndOrders) {
  // Rows of the second and third begin within a strip.
  const Blocks q(DType::kQ4K, 40, 512, 5), k(DType::kQ6K, 24, 512, 6);
  const Blocks v(DType::kI4G64, 24, 512, 7, /*reordered=*/true);
  const Packed packed = PackBoth({&q, &k, &v});
  EXPECT_EQ(packed.blocks->BytesByType().size(), 3u);
  ExpectSameProducts(*packed.blocks, *packed.rounded);
}

TEST_F(BlockProductsTest, InputsMayHaveAnOrder) {
  for (const DType type : OwnBlockTypes()) {
    SCOPED_TRACE(DTypeName(type));
    const Blocks blocks(type, 40, InputsFor(type), 8, /*reordered=*/true);
    const auto packed = Pack({&blocks.view(), 1});
    EXPECT_LE(packed->bytes(), ops_->BlockMatrixBytes(type, 40, packed->k()));
    ExpectSameProducts(*packed, *PackRounded(blocks.values(), packed->k()));
  }
}

TEST_F(BlockProductsTest, MatricesMayTakeSeveralPanels) {
  Open(/*matrix_elements=*/160 * 288);
  // Whole panels, a last one that is smaller; and outputs that tensor cores do not take, although
  // they would take those of a panel.
  for (const int64_t n : {416, 296, 293}) {
    SCOPED_TRACE(testing::Message() << "n " << n);
    const Blocks blocks(DType::kQ8_0, n, 288, 9);
    ExpectSameProducts({&blocks});
  }
  ExpectSameGated(Blocks(DType::kQ4_1, 148, 288, 10), Blocks(DType::kQ4_1, 148, 288, 11));
}

TEST_F(BlockProductsTest, FloatsAreQuantisedAsOnTheHost) {
  struct Case {
    WeightFormat format;
    DType type;
    int64_t k;
  };
  // Rows that are no whole number of blocks, and inputs that tensor cores do not take.
  for (const Case c : {Case{WeightFormat::kInt8, DType::kI8G256, 328},
                       Case{WeightFormat::kInt4G128, DType::kI4G128, 136},
                       Case{WeightFormat::kInt4G32, DType::kI4G32, 75}}) {
    SCOPED_TRACE(WeightFormatName(c.format));
    const Numbers w = RandomNumbers(40, c.k, DType::kF32, 12);
    const auto elements = static_cast<int64_t>(BlockOf(c.type).elements);
    std::vector<float> values;
    for (int64_t row = 0; row < w.rows; ++row) {
      for (int64_t first = 0; first < c.k; first += elements) {
        const int64_t count = std::min(elements, c.k - first);
        BlockValues block;
        ASSERT_TRUE(QuantiseBlock(c.type, &w.values[row * c.k + first], count, nullptr, &block));
        for (int64_t i = 0; i < count; ++i) {
          values.push_back(static_cast<float>(block.q[i] - block.zero) * block.scale);
        }
      }
    }
    const TensorView view{DType::kF32, Shape{40, c.k}, w.values.data()};
    for (const MatrixUse use : {MatrixUse::kPlain, MatrixUse::kGated}) {
      const auto packed = Pack({&view, 1}, use, c.format);
      EXPECT_EQ(packed->BytesByType().begin()->first, c.type);
      const auto expected = PackRounded(values, c.k, use);
      if (use == MatrixUse::kGated) {
        ExpectSameGated(*packed, *expected);
      } else {
        ExpectSameProducts(*packed, *expected);
      }
    }
  }
}

TEST_F(BlockProductsTest, ProductsWaitForTheirWeights) {
  // Two matrices take turns in the panel, by kernels that may overlap.
  const Blocks first(DType::kQ4K, 256, 256, 13);
  const Blocks second(DType::kQ5K, 64, 256, 14);
  const auto a = Pack({&first.view(), 1});
  const auto b = Pack({&second.view(), 1});
  const auto rounded_a = PackRounded(first.values(), 256);
  const auto rounded_b = PackRounded(second.values(), 256);
  for (const int64_t m : {1, 9, 66}) {
    SCOPED_TRACE(testing::Message() << "m " << m);
    const auto chain = [&](const Matrix& w, const Matrix& v) {
      const DeviceRows in(ops_->device(), RandomNumbers(m, 256, DType::kBF16, 15), 0, 256);
      const DeviceRows between(ops_->device(), RandomNumbers(m, 256, DType::kBF16, 16), 0, 256);
      DeviceRows out(ops_->device(), RandomNumbers(m, 64, DType::kBF16, 17), 0, 64);
      EXPECT_THAT(ops_->MatMul(in.rows(), w, {}, between.rows()), IsOk());
      EXPECT_THAT(ops_->MatMul(between.rows(), v, {}, out.rows()), IsOk());
      return out.Read();
    };
    const DeviceWatch watch;
    ExpectSameBits(chain(*a, *b), chain(*rounded_a, *rounded_b));
    watch.ExpectOverlap();
  }
}

TEST_F(BlockProductsTest, TakesStacksInBlocksAlone) {
  const Blocks q4(DType::kQ4_0, 32, 256, 18);
  const Blocks q5(DType::kQ5_0, 32, 256, 19);
  const Blocks own(DType::kI4G32, 32, 256, 20);
  const Blocks reordered(DType::kI4G32, 32, 256, 21, /*reordered=*/true);
  const std::vector<float> values(32 * 256);
  const TensorView floats{DType::kF32, Shape{32, 256}, values.data()};
  const auto takes = [this](const TensorView& a, const TensorView& b, MatrixUse use) {
    const TensorView parts[] = {a, b};
    return ops_->TakesBlocks(parts, use);
  };
  EXPECT_TRUE(takes(q4.view(), q5.view(), MatrixUse::kPlain));
  EXPECT_FALSE(takes(q4.view(), q5.view(), MatrixUse::kGated));
  EXPECT_TRUE(takes(own.view(), reordered.view(), MatrixUse::kPlain));
  EXPECT_FALSE(takes(own.view(), reordered.view(), MatrixUse::kGated));
  EXPECT_FALSE(takes(q4.view(), floats, MatrixUse::kPlain));
}

TEST_F(BlockProductsTest, ScalesThatOverflowAreRefused) {
  Blocks blocks(DType::kI8G32, 32, 256, 22);
  std::vector<std::byte> bytes(blocks.view().as<std::byte>(),
                               blocks.view().as<std::byte>() + blocks.view().bytes());
  const float scale = 1e37f;
  std::memcpy(bytes.data() + 5 * BlockOf(DType::kI8G32).bytes, &scale, sizeof(scale));
  const TensorView view{DType::kI8G32, Shape{32, 256}, bytes.data()};
  EXPECT_THAT(ops_->PackMatrix({&view, 1}), IsInvalidArgument("not finite"));
  std::vector<float> values(32 * 256, 1.0f);
  values[300] = std::numeric_limits<float>::infinity();
  const TensorView floats{DType::kF32, Shape{32, 256}, values.data()};
  EXPECT_THAT(ops_->PackMatrix({&floats, 1}, MatrixOrder::kOutputsFirst, MatrixUse::kPlain,
                               WeightFormat::kInt8),
              IsInvalidArgument("element 300", "inf"));
}

TEST_F(BlockProductsTest, RowsTooLongToBeStagedAreRefused) {
  const int64_t k = int64_t{1} << 18;
  const std::vector<float> values(k);
  const TensorView view{DType::kF32, Shape{1, k}, values.data()};
  EXPECT_THAT(ops_->PackMatrix({&view, 1}, MatrixOrder::kOutputsFirst, MatrixUse::kPlain,
                               WeightFormat::kInt8),
              IsInvalidArgument("the limit is"));
}

TEST_F(BlockProductsTest, EmbeddingsOfEveryTypeAreRoundedValues) {
  for (const DType type : AllTypes()) {
    SCOPED_TRACE(DTypeName(type));
    const Blocks blocks(type, 50, InputsFor(type), 38);
    ExpectSameBits(Embed(*Pack({&blocks.view(), 1}), nullptr),
                   Embed(*PackRounded(blocks.values(), InputsFor(type)), nullptr));
  }
}

// Rows of tables in blocks, of floats, and of both.
TEST_F(BlockProductsTest, EmbeddingsAreRoundedValues) {
  constexpr int64_t kDim = 288;
  const Blocks tokens(DType::kQ5_1, 50, kDim, 23);
  const Blocks own(DType::kI4G32, 50, kDim, 24, /*reordered=*/true);
  const auto rounded_tokens = PackRounded(tokens.values(), kDim);
  const auto rounded_own = PackRounded(own.values(), kDim);
  const auto in_blocks = Pack({&tokens.view(), 1});
  const auto own_in_blocks = Pack({&own.view(), 1});
  ExpectSameBits(Embed(*in_blocks, nullptr), Embed(*rounded_tokens, nullptr));
  ExpectSameBits(Embed(*own_in_blocks, nullptr), Embed(*rounded_own, nullptr));
  const Numbers both = Embed(*rounded_tokens, rounded_own.get());
  ExpectSameBits(Embed(*in_blocks, rounded_own.get()), both);
  ExpectSameBits(Embed(*rounded_tokens, own_in_blocks.get()), both);
  ExpectSameBits(Embed(*in_blocks, own_in_blocks.get()), both);
}

}  // namespace
}  // namespace tlm
