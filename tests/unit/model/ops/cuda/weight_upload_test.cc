#include "model/ops/cuda/weights/weight_upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cuda/device/upload_pipeline.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using simt::emulated::Progress;

class WeightUploadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ConfigureDevice({});
    allocations_ = DeviceAllocations();
    device_ = CudaDevice::Create({}).value();
  }
  void TearDown() override {
    device_ = nullptr;
    EXPECT_EQ(DeviceAllocations(), allocations_);
  }

  Buffer Memory(size_t bytes) { return device_->Allocate(bytes, MemoryPurpose::kWeights).value(); }
  template <typename T>
  std::vector<T> Read(const Buffer& buffer) {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    EXPECT_THAT(device_->CopyToHost(values.data(), buffer.data(), buffer.bytes()), IsOk());
    return values;
  }

  std::unique_ptr<CudaDevice> device_;

 private:
  size_t allocations_ = 0;
};

std::vector<uint16_t> RandomBits(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> bits(count);
  // Exponents below all ones: finite in bfloat16.
  for (uint16_t& value : bits) value = static_cast<uint16_t>(random()) & 0xbfff;
  return bits;
}

TensorView Bf16(const std::vector<uint16_t>& bits, int64_t rows, int64_t cols) {
  return {DType::kBF16, Shape{rows, cols}, bits.data()};
}

TEST_F(WeightUploadTest, BringsManyPiecesToTheirPlaces) {
  // 3 x 3.5 MiB in pieces of the least size, and the sources gone when the call returns.
  constexpr int64_t kRows = 1800;
  constexpr int64_t kCols = 1000;
  for (const Progress progress : {Progress::kLazy, Progress::kEager, Progress::kRandom}) {
    ConfigureDevice({.progress = progress});
    WeightUpload upload(*device_, 3);
    std::vector<Buffer> buffers;
    std::vector<std::vector<uint16_t>> expected;
    for (uint32_t i = 0; i < 3; ++i) {
      std::vector<uint16_t> bits = RandomBits(kRows * kCols, i);
      expected.push_back(bits);
      buffers.push_back(Memory(kRows * kCols * sizeof(uint16_t)));
      const TensorView views[] = {Bf16(bits, kRows, kCols)};
      ASSERT_THAT(upload.Matrix(views, MatrixOrder::kOutputsFirst,
                                {.data = buffers.back().data(),
                                 .dtype = DType::kBF16,
                                 .rows = kRows,
                                 .row_stride = kCols,
                                 .output_of_row = {}}),
                  IsOk());
      bits.assign(bits.size(), 0xffff);
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(Read<uint16_t>(buffers[i]) == expected[i]);
    EXPECT_THAT(upload.Finish(), IsOk());
  }
}

TEST_F(WeightUploadTest, StacksTransposesInterleavesAndPads) {
  // Two parts [k, n_i] become rows of 8 elements in an order of the caller's, one row of zeros.
  constexpr int64_t kInputs = 5;
  std::vector<float> gate(kInputs * 3);
  std::vector<float> up(kInputs * 3);
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = static_cast<float>(i);
    up[i] = 100.0f + static_cast<float>(i);
  }
  const TensorView views[] = {{DType::kF32, Shape{kInputs, 3}, gate.data()},
                              {DType::kF32, Shape{kInputs, 3}, up.data()}};
  const Buffer buffer = Memory(7 * 8 * sizeof(float));
  WeightUpload upload(*device_, 2);
  ASSERT_THAT(upload.Matrix(views, MatrixOrder::kInputsFirst,
                            {.data = buffer.data(),
                             .dtype = DType::kF32,
                             .rows = 7,
                             .row_stride = 8,
                             .output_of_row = [](int64_t row) -> int64_t {
                               return row == 6 ? -1 : row / 2 + (row % 2) * 3;
                             }}),
              IsOk());
  const std::vector<float> stored = Read<float>(buffer);
  for (size_t row = 0; row < 7; ++row) {
    for (size_t i = 0; i < 8; ++i) {
      const std::vector<float>& part = row % 2 == 0 ? gate : up;
      const float expected = row == 6 || i >= kInputs ? 0.0f : part[i * 3 + row / 2];
      EXPECT_EQ(stored[row * 8 + i], expected) << row << ", " << i;
    }
  }
}

TEST_F(WeightUploadTest, FillsRowsPastTheLastOutputWithZeros) {
  const std::vector<uint16_t> bits = RandomBits(6, 1);
  const TensorView views[] = {Bf16(bits, 2, 3)};
  const Buffer buffer = Memory(4 * 3 * sizeof(uint16_t));
  WeightUpload upload(*device_, 1);
  ASSERT_THAT(upload.Matrix(views, MatrixOrder::kOutputsFirst,
                            {.data = buffer.data(),
                             .dtype = DType::kBF16,
                             .rows = 4,
                             .row_stride = 3,
                             .output_of_row = {}}),
              IsOk());
  std::vector<uint16_t> expected = bits;
  expected.resize(12, 0);
  EXPECT_EQ(Read<uint16_t>(buffer), expected);
}

TEST_F(WeightUploadTest, LaysVectorsEndToEndAsFloats) {
  const std::vector<float> first = {1.0f, 2.0f};
  const std::vector<double> second = {0.1, -4.0, 5.0};
  const std::vector<uint16_t> third = {0x3f80};
  const TensorView views[] = {{DType::kF32, Shape{2}, first.data()},
                              {DType::kF64, Shape{3}, second.data()},
                              {DType::kBF16, Shape{1}, third.data()}};
  const Buffer buffer = Memory(6 * sizeof(float));
  WeightUpload upload(*device_, 1);
  ASSERT_THAT(upload.Vector(views, buffer.as<float>()), IsOk());
  EXPECT_THAT(Read<float>(buffer), ::testing::ElementsAre(1.0f, 2.0f, 0.1f, -4.0f, 5.0f, 1.0f));
}

TEST_F(WeightUploadTest, NamesValuesThatAreNotFiniteAndGoesOn) {
  constexpr int64_t kRows = 2000;
  constexpr int64_t kCols = 500;
  std::vector<uint16_t> bits = RandomBits(kRows * kCols, 1);
  const Buffer buffer = Memory(bits.size() * sizeof(uint16_t));
  const UploadTarget target{.data = buffer.data(),
                            .dtype = DType::kBF16,
                            .rows = kRows,
                            .row_stride = kCols,
                            .output_of_row = {}};
  WeightUpload upload(*device_, 2);
  bits[900'123] = 0x7fc0;
  bits[500'001] = 0xff80;  // the first of the two
  const TensorView views[] = {Bf16(bits, kRows, kCols)};
  EXPECT_THAT(upload.Matrix(views, MatrixOrder::kOutputsFirst, target),
              IsInvalidArgument("part 0 BF16 [2000, 500]", "element 500001 is -inf"));
  bits[500'001] = bits[900'123] = 1;
  EXPECT_THAT(upload.Matrix(views, MatrixOrder::kOutputsFirst, target), IsOk());
  EXPECT_TRUE(Read<uint16_t>(buffer) == bits);

  const std::vector<float> vector = {0.0f, std::nanf("")};
  const TensorView vectors[] = {{DType::kF32, Shape{1}, vector.data()},
                                {DType::kF32, Shape{1}, vector.data() + 1}};
  EXPECT_THAT(upload.Vector(vectors, buffer.as<float>()),
              IsInvalidArgument("part 1", "element 0 is nan"));
}

TEST_F(WeightUploadTest, HoldsPageLockedMemoryUntilItIsFinished) {
  const size_t own = device_->pinned_bytes();
  const std::vector<uint16_t> bits = RandomBits(6, 1);
  const TensorView views[] = {Bf16(bits, 2, 3)};
  const Buffer buffer = Memory(6 * sizeof(uint16_t));
  const UploadTarget target{.data = buffer.data(),
                            .dtype = DType::kBF16,
                            .rows = 2,
                            .row_stride = 3,
                            .output_of_row = {}};
  WeightUpload upload(*device_, 2);
  EXPECT_EQ(device_->pinned_bytes(), own);
  for (int round = 0; round < 2; ++round) {
    ASSERT_THAT(upload.Matrix(views, MatrixOrder::kOutputsFirst, target), IsOk());
    EXPECT_EQ(device_->pinned_bytes(),
              own + 2 * WeightUpload::kSlotsPerThread * WeightUpload::kSlotBytes);
    ASSERT_THAT(upload.Finish(), IsOk());
    EXPECT_EQ(device_->pinned_bytes(), own);
  }
  if (!FailDeviceAllocationAfter(0)) return;
  EXPECT_THAT(upload.Matrix(views, MatrixOrder::kOutputsFirst, target),
              IsResourceExhausted("pinned"));
}

TEST_F(WeightUploadTest, RefusesRowsThatNoSlotHolds) {
  const TensorView views[] = {{DType::kF32, Shape{1, 3 << 20}, nullptr}};
  WeightUpload upload(*device_, 1);
  EXPECT_THAT(upload.Matrix(views, MatrixOrder::kOutputsFirst,
                            {.data = nullptr,
                             .dtype = DType::kF32,
                             .rows = 1,
                             .row_stride = 3 << 20,
                             .output_of_row = {}}),
              IsInvalidArgument("12582912 bytes", "limit is 4194304"));
}

TEST_F(WeightUploadTest, PipelineStopsAtTheFirstErrorOfAPiece) {
  constexpr size_t kSlot = 64;
  const auto pipeline = UploadPipeline::Create(*device_, 2, 4, kSlot).value();
  const Buffer buffer = Memory(100 * kSlot);
  const auto place = [&](int64_t piece) -> UploadPiece {
    return {.to = buffer.as<char>() + piece * static_cast<int64_t>(kSlot), .bytes = kSlot};
  };
  std::atomic<int> filling{0};
  std::atomic<int64_t> last{-1};
  const auto fill = [&](int64_t piece, void* slot) -> absl::Status {
    ++filling;
    int64_t seen = last.load();
    while (seen < piece && !last.compare_exchange_weak(seen, piece)) {
    }
    std::memset(slot, static_cast<int>(piece), kSlot);
    --filling;
    return piece == 40 || piece == 41 ? Internal("piece {}", piece) : absl::OkStatus();
  };
  EXPECT_THAT(pipeline->Run(100, place, fill), IsInternal("piece 40"));
  EXPECT_EQ(filling.load(), 0);
  EXPECT_LE(last.load(), 40 + 2);
  // What came before has arrived, and the pipeline is as good as new.
  EXPECT_THAT(device_->Synchronize(), IsOk());
  EXPECT_EQ(Read<char>(buffer)[39 * kSlot], 39);
  EXPECT_THAT(pipeline->Run(30, place, fill), IsOk());
  EXPECT_THAT(pipeline->Run(0, place, fill), IsOk());
  EXPECT_EQ(Read<char>(buffer)[29 * kSlot + 5], 29);
}

TEST_F(WeightUploadTest, PipelineStopsAtAFaultOfTheDevice) {
  constexpr size_t kSlot = 64;
  const auto pipeline = UploadPipeline::Create(*device_, 2, 4, kSlot).value();
  const Buffer buffer = Memory(20 * kSlot);
  std::atomic<int> filling{0};
  const auto place = [&](int64_t piece) -> UploadPiece {
    if (piece == 5) device_->Check(cudaErrorIllegalAddress, "some copy").IgnoreError();
    return {.to = buffer.as<char>() + piece * static_cast<int64_t>(kSlot), .bytes = kSlot};
  };
  const auto fill = [&](int64_t, void* slot) {
    ++filling;
    std::memset(slot, 1, kSlot);
    --filling;
    return absl::OkStatus();
  };
  EXPECT_THAT(pipeline->Run(20, place, fill), IsInternal("some copy"));
  EXPECT_EQ(filling.load(), 0);
  EXPECT_EQ(pipeline->Run(1, place, fill), device_->fault());
}

}  // namespace
}  // namespace tlm
