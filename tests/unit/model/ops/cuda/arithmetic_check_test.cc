// What a device is asked when it is opened, and what follows when it answers otherwise.
#include "model/ops/cuda/arithmetic_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "model/ops/cuda/cuda_ops.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using simt::MmaUnit;
using ::testing::HasSubstr;
using ::testing::Not;

// Of a device with `options`, as far as there is a choice.
ArithmeticCheck CheckOf(const simt::emulated::Options& options) {
  ConfigureDevice(options);
  const std::unique_ptr<CudaDevice> device = CudaDevice::Create({}).value();
  EXPECT_THAT(Gemm(*device, device->properties(), nullptr).PrepareKernels(), IsOk());
  ConfigureDevice(options);  // counts mma from here
  const size_t allocations = DeviceAllocations();
  ArithmeticCheck check = CheckArithmetic(*device).value();
  EXPECT_EQ(DeviceAllocations(), allocations);
  return check;
}

class ArithmeticCheckTest : public ::testing::Test {
 protected:
  void TearDown() override { ConfigureDevice({}); }
};

TEST_F(ArithmeticCheckTest, HoldsOnThisDevice) {
  const ArithmeticCheck check = CheckOf({});
  EXPECT_EQ(check.bf16, "");
  EXPECT_EQ(check.f16, "");
  EXPECT_EQ(check.probe.size(), 16u);
  EXPECT_EQ(CheckOf({.seed = 2}).probe, check.probe);
}

TEST_F(ArithmeticCheckTest, BothKnownKindsOfTensorCoresHold) {
  if (RunsOnGpu()) GTEST_SKIP() << "it has one kind";
  const ArithmeticCheck hopper = CheckOf({.mma = simt::kHopperMma});
  const ArithmeticCheck ampere = CheckOf({.compute_capability = 80});
  EXPECT_EQ(ampere.bf16, "");
  EXPECT_EQ(ampere.f16, "");
  EXPECT_NE(hopper.probe, ampere.probe);
}

TEST_F(ArithmeticCheckTest, OtherKindsAreFoundOut) {
  if (RunsOnGpu()) GTEST_SKIP() << "it has one kind";
  for (const MmaUnit unit :
       {MmaUnit{25, 8}, MmaUnit{24, 16}, MmaUnit{23, 8}, MmaUnit{23, 16}, MmaUnit{22, 16}}) {
    const ArithmeticCheck check = CheckOf({.mma = unit});
    EXPECT_NE(check.bf16, "") << unit.fraction_bits << " " << unit.products;
    EXPECT_NE(check.f16, "") << unit.fraction_bits << " " << unit.products;
  }
}

// In bfloat16 a zero's exponent is too small to matter.
TEST_F(ArithmeticCheckTest, ZerosThatMoveOtherTermsAreFoundOut) {
  if (RunsOnGpu()) GTEST_SKIP() << "its zeros are as they are";
  for (MmaUnit unit : {simt::kHopperMma, simt::kAmpereMma}) {
    unit.zeros_align = true;
    const ArithmeticCheck check = CheckOf({.mma = unit});
    EXPECT_EQ(check.bf16, "");
    EXPECT_THAT(check.f16, HasSubstr("zero times 8 beside a small product"));
  }
}

TEST_F(ArithmeticCheckTest, OneBitInOneTileIsFoundOut) {
  if (RunsOnGpu()) GTEST_SKIP() << "its bits are as they are";
  const ArithmeticCheck right = CheckOf({});
  int sums = 0;
  int tiles = 0;
  for (uint64_t mma = 1; mma < 1500; mma += 50) {
    const ArithmeticCheck check = CheckOf({.flipped_mma = mma});
    EXPECT_EQ(check.f16, "") << mma;
    if (check.bf16.empty()) continue;
    if (check.bf16.starts_with("tiles of")) {
      ++tiles;
    } else {
      ++sums;
      EXPECT_NE(check.probe, right.probe) << mma;
    }
  }
  EXPECT_GT(sums + tiles, 10);
  EXPECT_GT(tiles, 5);
}

// A model's shape, small.
constexpr BatchLimits kLimits{
    .max_tokens = 16, .max_sequences = 2, .max_logits_rows = 2, .max_context = 64};
constexpr ModelShape kShape{.vocab_size = 32, .num_heads = 2, .num_kv_heads = 1, .head_dim = 64};

TEST_F(ArithmeticCheckTest, OnlyModelsOfTheTypeThatDiffersLoseTheGuarantee) {
  if (RunsOnGpu()) GTEST_SKIP() << "its zeros are as they are";
  ConfigureDevice({.mma = MmaUnit{25, 16, true}});
  const std::unique_ptr<CudaOps> ops = CudaOps::Create({}, nullptr).value();
  for (const auto& [dtype, holds] : {std::pair{DType::kBF16, true}, std::pair{DType::kF16, false},
                                     std::pair{DType::kF32, true}}) {
    ASSERT_THAT(ops->Reserve(kLimits, kShape, dtype), IsOk());
    EXPECT_EQ(ops->device().info().batch_invariant, holds) << DTypeName(dtype);
    const auto names_it =
        HasSubstr("results may depend on the rest of the batch (zero times 8 beside");
    if (holds) {
      EXPECT_THAT(ops->Report(), Not(names_it));
    } else {
      EXPECT_THAT(ops->Report(), names_it);
    }
    ops->Release();
  }
}

// Replicas with and without a library, or with another version of it, resume each other's streams.
TEST_F(ArithmeticCheckTest, TheLibrarysVersionIsNoPartOfTheArithmetic) {
  ConfigureDevice({});
  struct Versioned : GemmLibrary {
    std::string version() const override { return "library 7"; }
    absl::StatusOr<int> Prepare(const LibraryGemm&, const GemmProbe&) override { return -1; }
    absl::Status Run(int, const void*, int64_t, int64_t, const void*, void*, int64_t,
                     cudaStream_t) override {
      return absl::UnimplementedError("");
    }
  };
  const auto identity = [](CudaOps::MakeLibrary* make) {
    const std::unique_ptr<CudaOps> ops = CudaOps::Create({}, make).value();
    const DeviceInfo& info = ops->device().info();
    EXPECT_NE(info.arithmetic_probe, "");
    return info.arithmetic + " " + info.arithmetic_probe;
  };
  const std::string with =
      identity([](CudaDevice&) -> absl::StatusOr<std::unique_ptr<GemmLibrary>> {
        return std::make_unique<Versioned>();
      });
  EXPECT_EQ(with, identity(nullptr));
  EXPECT_THAT(with, Not(HasSubstr("library")));
}

}  // namespace
}  // namespace tlm
