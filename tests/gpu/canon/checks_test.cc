// The checks of mma_canon on the emulated device: they pass where all is well, and find what is
// wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "model/base/float16.h"
#include "model/ops/cuda/cuda_ops.h"
#include "model/ops/cuda/gemm/gemm.h"
#include "tests/gpu/canon/block_check.h"
#include "tests/gpu/canon/mma_check.h"
#include "tests/gpu/canon/product_check.h"
#include "tests/support/simt/emulator.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr int64_t kRowCounts[] = {1, 2, 9, 65, 70};

class CanonTest : public testing::Test {
 protected:
  CanonTest() {
    simt::emulated::Configure({});
    auto device = CudaDevice::Create({});
    EXPECT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  std::unique_ptr<CudaDevice> device_;
};

// Computes with own kernels.
class FakeLibrary : public GemmLibrary {
 public:
  FakeLibrary(CudaDevice& device, bool honest)
      : gemm_(device, device.properties(), nullptr), honest_(honest) {}

  std::string version() const override { return "fake"; }
  absl::StatusOr<int> Prepare(const LibraryGemm& gemm, const GemmProbe&) override {
    gemm_spec_ = gemm;
    return 0;
  }
  // A dishonest one leaves the last row out.
  absl::Status Run(int, const void* x, int64_t x_stride, int64_t m, const void* w, void* out,
                   int64_t out_stride, cudaStream_t) override {
    const MatrixLayout layout(gemm_spec_.n, gemm_spec_.k, gemm_spec_.dtype, MatrixUse::kPlain);
    const CudaMatrix matrix(layout,
                            Buffer(const_cast<void*>(w), layout.bytes(), [](void*, size_t) {}));
    const int64_t rows = honest_ ? m : m - 1;
    return gemm_.Run({const_cast<void*>(x), rows, gemm_spec_.k, x_stride, gemm_spec_.dtype}, matrix,
                     {}, {out, rows, gemm_spec_.n, out_stride, gemm_spec_.out_dtype});
  }

 private:
  Gemm gemm_;
  const bool honest_;
  LibraryGemm gemm_spec_;
};

TEST_F(CanonTest, TheEmulatedUnitIsItsModel) {
  const auto checks = CheckMma(*device_, 2);
  ASSERT_TRUE(checks.ok()) << checks.status();
  for (const MmaCheck& check : *checks) {
    EXPECT_EQ(check.elements, 256);
    EXPECT_EQ(check.differences, 0) << check.name << ": " << check.first;
  }
}

TEST_F(CanonTest, ZeroProductsHaveNoSayInTheEmulatedUnit) {
  const auto checks = CheckZeros(RunOn(*device_), UnitOf(*device_), 2);
  ASSERT_TRUE(checks.ok()) << checks.status();
  ASSERT_FALSE(checks->empty());
  for (const ZeroCheck& check : *checks) {
    EXPECT_EQ(check.elements, 256);
    EXPECT_TRUE(check.holds()) << check.name << ": " << check.first;
  }
}

// A unit that aligns sums to the exponents of all products, those of zeros included: a zero has the
// least exponent of its type.
absl::StatusOr<std::vector<float>> RunWithZeros(const MmaTiles& tiles, DType dtype) {
  const bool bf16 = dtype == DType::kBF16;
  const int least = bf16 ? -126 : -14;
  const auto value = [bf16](uint16_t bits) { return bf16 ? Bf16ToFloat(bits) : F16ToFloat(bits); };
  const auto exponent = [least](float v) {
    return v == 0.0f ? least : std::max(least, std::ilogb(v));
  };
  std::vector<float> sums(tiles.c.size());
  for (size_t at = 0; at < sums.size(); ++at) {
    const size_t tile = at / 128, row = at % 128 / 8, column = at % 8;
    const float c = tiles.c[at];
    int most = c == 0.0f ? least : std::max(-126, std::ilogb(c));
    double terms[17] = {c};
    for (size_t k = 0; k < 16; ++k) {
      const float a = value(tiles.a[tile * 256 + row * 16 + k]);
      const float b = value(tiles.b[tile * 128 + column * 16 + k]);
      most = std::max(most, exponent(a) + exponent(b));
      terms[k + 1] = double{a} * double{b};
    }
    double sum = 0;
    for (const double term : terms) {
      sum += std::ldexp(std::trunc(std::ldexp(term, 25 - most)), most - 25);
    }
    sums[at] = static_cast<float>(sum);
  }
  return sums;
}

TEST(ZeroCheckTest, FindsAUnitInWhichZerosHaveASay) {
  const auto checks = CheckZeros(RunWithZeros, simt::kHopperMma, 8);
  ASSERT_TRUE(checks.ok()) << checks.status();
  for (const ZeroCheck& check : *checks) {
    // Zeros of bfloat16 have an exponent of -126: only the largest partners lift it to where sums
    // are, or sums are as small as that.
    const bool shows = check.dtype == DType::kF16 || check.name.starts_with("partners as large") ||
                       check.name.starts_with("the smallest");
    EXPECT_EQ(check.partner_differences > 0, shows) << check.name;
    EXPECT_EQ(check.first.empty(), check.holds());
  }
}

TEST_F(CanonTest, OwnKernelsHaveTheSameBitsInEveryBatch) {
  for (const ProductShape& shape :
       {ProductShape{.name = "plain", .n = 72, .k = 136},
        ProductShape{.name = "half", .n = 64, .k = 64, .dtype = DType::kF16},
        ProductShape{.name = "gated", .n = 80, .k = 64, .gated = true},
        ProductShape{.name = "logits", .n = 96, .k = 64, .logits = true}}) {
    const auto check = CheckProduct(*device_, nullptr, shape, kRowCounts);
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_FALSE(check->library);
    EXPECT_EQ(check->runs, 30);
    EXPECT_EQ(check->different_runs, 0) << shape.name << ": " << check->first;
    EXPECT_EQ(check->model_differences, 0) << shape.name;
    EXPECT_EQ(check->model_elements, shape.gated ? 0 : 96) << shape.name;
  }
}

TEST_F(CanonTest, FindsALibraryWithOtherBits) {
  const ProductShape shape{.name = "plain", .n = 72, .k = 64};
  for (const bool honest : {true, false}) {
    FakeLibrary library(*device_, honest);
    const auto check = CheckProduct(*device_, &library, shape, kRowCounts);
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_TRUE(check->library);
    EXPECT_EQ(check->different_runs == 0, honest);
    EXPECT_EQ(check->first.substr(0, 7), honest ? "" : "65 rows");
  }
}

TEST(BlockCheckTest, BlocksHaveTheBitsOfTheirElements) {
  constexpr int64_t kCounts[] = {1, 32, 33, 70};
  simt::emulated::Configure({});
  for (const BlockShape& shape :
       {BlockShape{.name = "plain", .n = 72, .k = 256, .type = DType::kI8G256},
        BlockShape{.name = "gated", .n = 96, .k = 128, .type = DType::kI4G32, .gated = true},
        BlockShape{.name = "floats", .n = 40, .k = 128, .type = DType::kF8G128}}) {
    const auto ops = CudaOps::Create({}, nullptr);
    ASSERT_TRUE(ops.ok()) << ops.status();
    const auto check = CheckBlocks(**ops, shape, kCounts);
    ASSERT_TRUE(check.ok()) << check.status();
    EXPECT_EQ(check->runs, 4);
    EXPECT_EQ(check->different_runs, 0) << shape.name << ": " << check->first;
  }
}

TEST(BlockCheckTest, FindsOneOtherElement) {
  constexpr int64_t kCounts[] = {1, 9};
  simt::emulated::Configure({});
  const auto ops = CudaOps::Create({}, nullptr);
  ASSERT_TRUE(ops.ok()) << ops.status();
  std::vector<uint16_t> values(64 * 64, FloatToBf16(0.5f));
  const TensorView view{DType::kBF16, Shape{64, 64}, values.data()};
  const auto one = (*ops)->PackMatrix({&view, 1});
  ASSERT_THAT(one, IsOk());
  ASSERT_THAT((*ops)->device().Synchronize(), IsOk());
  values[7 * 64 + 3] = FloatToBf16(8.0f);
  const auto other = (*ops)->PackMatrix({&view, 1});
  ASSERT_THAT(other, IsOk());
  const auto check = CompareProducts(**ops, **one, **other, false, kCounts);
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(check->different_runs, 2);
  EXPECT_EQ(check->different_elements, 10);
  EXPECT_TRUE(check->first.starts_with("1 rows, row 0, output 7: ")) << check->first;
}

}  // namespace
}  // namespace tlm
