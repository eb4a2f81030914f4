// Which kernels a model brings to the device.
#include "model/ops/cuda/cuda_ops.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "model/tensor/blocks.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr BatchLimits kLimits{
    .max_tokens = 16, .max_sequences = 2, .max_logits_rows = 2, .max_context = 64};

class CudaOpsLoadingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ConfigureDevice({});
    ops_ = CudaOps::Create({}, nullptr).value();
  }
  // Packs a matrix of zeros, n outputs of 64 inputs.
  void Pack(int64_t n, DType dtype, WeightFormat format = WeightFormat::kAsGiven) {
    const std::vector<float> zeros(static_cast<size_t>(n) * 64);
    const TensorView view{dtype, Shape{n, 64}, zeros.data()};
    EXPECT_THAT(ops_->PackMatrix({&view, 1}, MatrixOrder::kOutputsFirst, MatrixUse::kPlain, format),
                IsOk());
  }
  void Reserve(DType activations, int64_t head_dim, bool fp8 = false) {
    const ModelShape shape{.vocab_size = 32,
                           .num_heads = 2,
                           .num_kv_heads = 1,
                           .head_dim = head_dim,
                           .fp8_cache = fp8};
    EXPECT_THAT(ops_->Reserve(kLimits, shape, activations), IsOk());
  }

  std::unique_ptr<CudaOps> ops_;
};

// Of one type: norms 4, attention and what prepares it 1 each, embedding 1, sampling 3.
constexpr uint64_t kSteps = 4 + 2 + 1 + 3;
// Products on the tensor cores, one for each tile; others.
constexpr uint64_t kMma = 9;
constexpr uint64_t kSimt = 2;
// What fills and compares where the arithmetic is checked.
constexpr uint64_t kCheck = 2;

TEST_F(CudaOpsLoadingTest, OpeningADeviceLoadsNothing) {
  const DeviceWatch watch;
  ops_ = CudaOps::Create({}, nullptr).value();
  EXPECT_EQ(watch.loaded_kernels(), 0u);
}

TEST_F(CudaOpsLoadingTest, AModelLoadsTheKernelsOfItsTypeAndHeads) {
  const DeviceWatch watch;
  for (int layer = 0; layer < 2; ++layer) Pack(48, DType::kBF16);
  EXPECT_EQ(watch.loaded_kernels(), kMma);
  Reserve(DType::kBF16, 64);
  EXPECT_EQ(watch.loaded_kernels(), kMma + kSteps + kCheck);
  // Another width: attention. Another cache: what prepares it, too.
  ops_->Release();
  Reserve(DType::kBF16, 80);
  EXPECT_EQ(watch.loaded_kernels(), kMma + kSteps + kCheck + 1);
  ops_->Release();
  Reserve(DType::kBF16, 80, /*fp8=*/true);
  EXPECT_EQ(watch.loaded_kernels(), kMma + kSteps + kCheck + 3);
}

TEST_F(CudaOpsLoadingTest, AModelInFloat32LoadsNoneForTensorCores) {
  const DeviceWatch watch;
  Pack(48, DType::kF32);
  Reserve(DType::kF32, 64);
  EXPECT_EQ(watch.loaded_kernels(), kSimt + kSteps);
}

TEST_F(CudaOpsLoadingTest, MatricesThatTensorCoresDoNotTakeLoadTheOthersToo) {
  const DeviceWatch watch;
  Pack(48, DType::kF16);
  Pack(47, DType::kF16);
  EXPECT_EQ(watch.loaded_kernels(), kMma + kSimt);
}

TEST_F(CudaOpsLoadingTest, BlocksLoadTheKernelsOfTheirFormats) {
  const DeviceWatch watch;
  for (int layer = 0; layer < 2; ++layer) Pack(48, DType::kF32, WeightFormat::kInt8);
  // For 8, 16 and 32 rows; dequantised; and rows of an embedding.
  EXPECT_EQ(watch.loaded_kernels(), kMma + 3 + 2);
  Pack(48, DType::kF32, WeightFormat::kInt4G32);
  EXPECT_EQ(watch.loaded_kernels(), kMma + 3 + 2 + 3 + 1);
}

}  // namespace
}  // namespace tlm
