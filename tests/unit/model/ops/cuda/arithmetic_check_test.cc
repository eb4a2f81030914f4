// What a device is asked before a model is served, and what follows when it answers otherwise.
#include "model/ops/cuda/arithmetic_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "model/ops/cuda/cuda_ops.h"
#include "model/ops/cuda/kernels/attention/attention.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using simt::MmaUnit;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A model whose attention is on the tensor cores too.
ArithmeticQuestion QuestionOf(DType activations, int64_t head_dim = 64, bool fp8_cache = false) {
  return {.activations = activations, .head_dim = head_dim, .fp8_cache = fp8_cache};
}

// Of a device with `options`, as far as there is a choice.
ArithmeticCheck CheckOf(const simt::emulated::Options& options,
                        const ArithmeticQuestion& question) {
  ConfigureDevice(options);
  const std::unique_ptr<CudaDevice> device = CudaDevice::Create({}).value();
  if (question.head_dim > 0) {
    EXPECT_EQ(LoadAttention(question.activations, question.head_dim, question.fp8_cache, true),
              cudaSuccess);
  }
  const size_t allocations = DeviceAllocations();
  ArithmeticCheck check = CheckArithmetic(*device, question).value();
  EXPECT_EQ(DeviceAllocations(), allocations);
  return check;
}

class ArithmeticCheckTest : public ::testing::Test {
 protected:
  void TearDown() override { ConfigureDevice({}); }
};

TEST_F(ArithmeticCheckTest, HoldsOnThisDeviceForEveryModel) {
  std::set<std::string> probes;
  int questions = 0;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t head_dim : {64, 80, 96, 128, 256}) {
      for (const bool fp8 : {false, true}) {
        if (dtype == DType::kF16 && head_dim != 128) continue;
        const ArithmeticQuestion question = QuestionOf(dtype, head_dim, fp8);
        const ArithmeticCheck check = CheckOf({}, question);
        EXPECT_EQ(check.fault, "") << DTypeName(dtype) << " " << head_dim << " " << fp8;
        EXPECT_FALSE(check.unknown);
        EXPECT_EQ(check.probe.size(), 16u);
        probes.insert(check.probe);
        ++questions;
      }
    }
  }
  // Attention is part of the digest.
  EXPECT_EQ(std::ssize(probes), questions);
  const ArithmeticQuestion question = QuestionOf(DType::kBF16);
  EXPECT_EQ(CheckOf({.seed = 2}, question).probe, CheckOf({}, question).probe);
}

TEST_F(ArithmeticCheckTest, NothingIsAskedForModelsWithoutTensorCores) {
  ConfigureDevice({});
  const std::unique_ptr<CudaDevice> device = CudaDevice::Create({}).value();
  const DeviceWatch watch;
  const ArithmeticCheck check = CheckArithmetic(*device, {.activations = DType::kF32}).value();
  EXPECT_EQ(check.fault, "");
  EXPECT_EQ(check.probe, "");
  EXPECT_FALSE(check.unknown);
  watch.ExpectNoKernels();
}

TEST_F(ArithmeticCheckTest, TakesFewLaunchesAndLittleMemory) {
  if (RunsOnGpu()) GTEST_SKIP() << "it is not counted there";
  for (const auto& [head_dim, kilobytes] : {std::pair(64, 320), {128, 520}, {256, 980}}) {
    const DeviceWatch watch;
    CheckOf({}, QuestionOf(DType::kBF16, head_dim));
    EXPECT_LE(watch.kernels(), 65u);
    // Memory for just that is enough.
    constexpr size_t kAll = size_t{10} << 20;
    const auto bytes = static_cast<size_t>(kilobytes) * 1000;
    ConfigureDevice({.memory_bytes = kAll});
    const std::unique_ptr<CudaDevice> device = CudaDevice::Create({}).value();
    ConfigureDevice({.memory_bytes = kAll - device->FreeBytes().value() + bytes});
    EXPECT_THAT(CheckArithmetic(*device, QuestionOf(DType::kBF16, head_dim)), IsOk());
  }
}

TEST_F(ArithmeticCheckTest, BothKnownKindsOfTensorCoresHold) {
  if (RunsOnGpu()) GTEST_SKIP() << "it has one kind";
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const ArithmeticCheck hopper = CheckOf({.mma = simt::kHopperMma}, QuestionOf(dtype));
    const ArithmeticCheck ampere = CheckOf({.compute_capability = 80}, QuestionOf(dtype));
    for (const ArithmeticCheck& check : {hopper, ampere}) {
      EXPECT_EQ(check.fault, "");
      EXPECT_FALSE(check.unknown);
    }
    EXPECT_NE(hopper.probe, ampere.probe);
  }
}

TEST_F(ArithmeticCheckTest, OtherKindsWithTheSamePropertiesHold) {
  if (RunsOnGpu()) GTEST_SKIP() << "it has one kind";
  std::set<std::string> probes = {
      CheckOf({}, QuestionOf(DType::kF16)).probe,
      CheckOf({.mma = simt::kAmpereMma}, QuestionOf(DType::kF16)).probe};
  for (const MmaUnit unit :
       {MmaUnit{26, 16}, MmaUnit{25, 8}, MmaUnit{24, 16}, MmaUnit{23, 8}, MmaUnit{23, 16}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const ArithmeticCheck check = CheckOf({.mma = unit}, QuestionOf(dtype));
      EXPECT_EQ(check.fault, "") << unit.fraction_bits << " " << unit.products;
      EXPECT_TRUE(check.unknown) << unit.fraction_bits << " " << unit.products;
      if (dtype == DType::kBF16) continue;
      EXPECT_TRUE(probes.insert(check.probe).second);
    }
  }
}

// Tiles differ in how many zeros follow a sum, and each addition of zeros rounds it again.
TEST_F(ArithmeticCheckTest, SumsThatLoseBitsAreFoundOut) {
  if (RunsOnGpu()) GTEST_SKIP() << "it has one kind";
  const ArithmeticCheck check = CheckOf({.mma = MmaUnit{22, 16}}, QuestionOf(DType::kBF16));
  EXPECT_THAT(check.fault, HasSubstr("tiles of"));
  EXPECT_TRUE(check.unknown);
}

// In bfloat16 a zero's exponent is too small to matter.
TEST_F(ArithmeticCheckTest, ZerosThatMoveOtherTermsAreFoundOut) {
  if (RunsOnGpu()) GTEST_SKIP() << "its zeros are as they are";
  for (MmaUnit unit : {simt::kHopperMma, simt::kAmpereMma, MmaUnit{26, 16}}) {
    unit.zeros_align = true;
    EXPECT_EQ(CheckOf({.mma = unit}, QuestionOf(DType::kBF16)).fault, "");
    const ArithmeticCheck check = CheckOf({.mma = unit}, QuestionOf(DType::kF16));
    EXPECT_THAT(check.fault, HasSubstr("zero times 8 beside a small product"));
    // In both of attention's kinds of units.
    EXPECT_THAT(check.fault, HasSubstr("outputs of tokens that come alone differ"));
    EXPECT_THAT(check.fault, HasSubstr("attention of peaked scores"));
  }
  // Through a cache in 8 bits too.
  EXPECT_THAT(CheckOf({.mma = MmaUnit{25, 16, true}}, QuestionOf(DType::kF16, 128, true)).fault,
              HasSubstr("attention of peaked scores"));
}

TEST_F(ArithmeticCheckTest, NeighboursThatMoveOtherTermsAreFoundOut) {
  if (RunsOnGpu()) GTEST_SKIP() << "its columns are as they are";
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const ArithmeticCheck check =
        CheckOf({.mma = MmaUnit{.fraction_bits = 25, .products = 16, .columns_align = true}},
                QuestionOf(dtype));
    EXPECT_THAT(check.fault, HasSubstr("differ with their place in a tile"));
  }
}

// Of the instructions of `question`, each of so many in turn has one bit of one sum flipped.
struct Flips {
  int tiles = 0, attention = 0;
};
Flips FlipSome(const ArithmeticQuestion& question, int bit, uint64_t times) {
  const DeviceWatch watch;
  CheckOf({}, question);
  const uint64_t all = watch.mma();
  Flips flips;
  for (uint64_t i = 0; i < times; ++i) {
    const ArithmeticCheck check =
        CheckOf({.flipped_mma = 1 + all * i / times, .flipped_bit = bit}, question);
    flips.tiles += check.fault.starts_with("tiles of");
    flips.attention += check.fault.starts_with("attention of");
  }
  return flips;
}

TEST_F(ArithmeticCheckTest, OneBitInOneTileIsFoundOut) {
  if (RunsOnGpu()) GTEST_SKIP() << "its bits are as they are";
  const Flips flips = FlipSome({.activations = DType::kBF16}, /*bit=*/0, 40);
  EXPECT_GT(flips.tiles, 5);
}

// A narrow unit that differs from a wide one, or a cut item from a whole one.
TEST_F(ArithmeticCheckTest, OneSumOfAttentionIsFoundOut) {
  if (RunsOnGpu()) GTEST_SKIP() << "its bits are as they are";
  // The exponent's last bit: half or twice.
  const Flips flips = FlipSome(QuestionOf(DType::kF16), /*bit=*/23, 12);
  EXPECT_GT(flips.attention, 4);
}

// Whose kernel errs, or does nothing.
TEST_F(ArithmeticCheckTest, EveryTileIsFoundOut) {
  if (RunsOnGpu()) GTEST_SKIP() << "its tiles are as they are";
  for (int tile = 0; tile < kMmaTileCount; ++tile) {
    const bool tiled = tile == kTiledMmaTile;
    const std::string kernel = tiled ? "GemmTiled<tlm::simt::" : "GemmSkinny<tlm::simt::";
    const std::string end = tiled ? ">" : ", " + std::to_string(tile) + ">";
    for (const DType type : {DType::kBF16, DType::kF16}) {
      const std::string name = kernel + (type == DType::kBF16 ? "Bf16" : "F16") + end;
      const ArithmeticQuestion question{.activations = type};
      EXPECT_NE(CheckOf({.flipped_kernel = name}, question).fault, "") << name;
      EXPECT_NE(CheckOf({.skipped_kernel = name}, question).fault, "") << name;
    }
  }
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
    const std::string& fault = ops->device().info().invariance_fault;
    const auto names_it =
        HasSubstr("results may depend on the rest of the batch (zero times 8 beside");
    if (holds) {
      EXPECT_EQ(fault, "") << DTypeName(dtype);
      EXPECT_THAT(ops->Report(), Not(names_it));
    } else {
      EXPECT_THAT(fault, StartsWith("zero times 8 beside"));
      EXPECT_THAT(ops->Report(), names_it);
    }
    ops->Release();
  }
}

TEST_F(ArithmeticCheckTest, AnUnknownTensorCoreIsReported) {
  if (RunsOnGpu()) GTEST_SKIP() << "it has one kind";
  const auto names_it = HasSubstr("an unknown tensor core: batch invariance checked by properties");
  for (const bool known : {true, false}) {
    ConfigureDevice({.mma = MmaUnit{known ? 25 : 26, 16}});
    const std::unique_ptr<CudaOps> ops = CudaOps::Create({}, nullptr).value();
    ASSERT_THAT(ops->Reserve(kLimits, kShape, DType::kBF16), IsOk());
    EXPECT_EQ(ops->device().info().invariance_fault, "");
    EXPECT_EQ(::testing::Matches(names_it)(ops->Report()), !known);
  }
}

TEST_F(ArithmeticCheckTest, TheSameQuestionIsAskedOnce) {
  if (RunsOnGpu()) GTEST_SKIP() << "kernels are not counted there";
  ConfigureDevice({});
  const std::unique_ptr<CudaOps> ops = CudaOps::Create({}, nullptr).value();
  const auto kernels_of = [&ops](const ModelShape& shape) {
    const DeviceWatch watch;
    EXPECT_THAT(ops->Reserve(kLimits, shape, DType::kBF16), IsOk());
    ops->Release();
    return watch.kernels();
  };
  ModelShape fp8 = kShape;
  fp8.fp8_cache = true;
  EXPECT_GT(kernels_of(kShape), 0u);
  EXPECT_EQ(kernels_of(kShape), 0u);
  EXPECT_GT(kernels_of(fp8), 0u);
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
    EXPECT_THAT(ops->Reserve(kLimits, kShape, DType::kBF16), IsOk());
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
