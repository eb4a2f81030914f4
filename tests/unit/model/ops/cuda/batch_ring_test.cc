#include "model/ops/cuda/batch/batch_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/simt/device_under_test.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/cuda/test_kernels.h"

namespace tlm {
namespace {

using simt::emulated::Progress;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kVocab = kStepVocab;

class BatchRingTest : public ::testing::TestWithParam<Progress> {
 protected:
  static constexpr RingShape kShape{.max_tokens = 32,
                                    .max_rows = 32,
                                    .max_sequences = 4,
                                    .max_blocks = 3,
                                    .max_jobs = 2,
                                    .max_host_rows = 4,
                                    .vocab_size = kVocab,
                                    .attention_bytes = 16,
                                    .job_bytes = 64,
                                    .result_bytes = 32};

  void SetUp() override {
    ConfigureDevice({.seed = 3, .progress = GetParam()});
    allocations_ = DeviceAllocations();
    device_ = CudaDevice::Create({}).value();
    ASSERT_EQ(LoadTestKernels(), cudaSuccess);
    ring_ = BatchRing::Create(*device_, kShape).value();
    logits_ = device_->Allocate(32 * kVocab * sizeof(float), MemoryPurpose::kLogits).value();
  }
  void TearDown() override {
    logits_ = Buffer();
    ring_ = nullptr;
    device_ = nullptr;
    EXPECT_EQ(DeviceAllocations(), allocations_);
  }

  static Batch TwoTokens(int32_t first, int32_t second, int32_t position) {
    Batch batch;
    batch.token_ids = {first, second};
    batch.positions = {position, position};
    batch.sequence_of = {0, 1};
    batch.block_tables = {1000, 2000};
    batch.sequences = 2;
    batch.max_blocks = 1;
    batch.logits_rows = {0, 1};
    return batch;
  }

  static constexpr PaddedShape kPadded{.tokens = 32, .rows = 2};

  // Writes the batch, and two jobs, to the begun slot and uploads it.
  absl::Status Upload(const Batch& batch) {
    const UploadPlaces places = PlacesOf(kPadded, kShape.attention_bytes);
    const std::span<std::byte> upload = ring_->host();
    const int32_t jobs[] = {1, 0};
    std::memcpy(upload.data() + places.jobs, jobs, sizeof(jobs));
    return ring_->Upload(WritePadded(batch, kPadded, places, sizeof(jobs), upload));
  }
  absl::Status Launch(const Batch& batch, std::span<const int32_t> host_rows) {
    if (absl::Status status = ring_->Begin(); !status.ok()) return status;
    if (absl::Status status = Upload(batch); !status.ok()) return status;
    const int slot = ring_->slot();
    const UploadPlaces places = PlacesOf(kPadded, kShape.attention_bytes);
    const auto in = [&](size_t place) { return ring_->uploaded<int32_t>(slot, place); };
    const StepArgs args{.token_ids = in(places.token_ids),
                        .positions = in(places.positions),
                        .table_of = in(places.table_of),
                        .block_tables = in(0),
                        .jobs = in(places.jobs),
                        .logits = logits_.as<float>(),
                        .sampled_before = ring_->sampled_tokens(1 - slot),
                        .sampled = ring_->sampled_tokens(slot),
                        .results = static_cast<int32_t*>(ring_->job_results(slot))};
    // Recorded once for each slot: all its batches have the same addresses.
    const absl::Status status = device_->RunCaptured(static_cast<uint64_t>(1 + slot), [&] {
      return device_->Check(LaunchStep(args, device_->compute_stream()), "step");
    });
    if (!status.ok()) return status;
    return ring_->Download(8, logits_.as<float>(), kVocab, host_rows);
  }

  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<BatchRing> ring_;
  Buffer logits_;

 private:
  size_t allocations_ = 0;
};

// A batch is begun again when it failed in between.
TEST_P(BatchRingTest, ASlotIsNotFilledAnewWhileItsUploadIsUnderWay) {
  ASSERT_THAT(ring_->Begin(), IsOk());
  ASSERT_THAT(Upload(TwoTokens(7, 8, 0)), IsOk());
  ASSERT_THAT(ring_->Begin(), IsOk());
  const std::span<std::byte> upload = ring_->host();
  std::memset(upload.data(), 0x55, upload.size());
  int32_t ids[2];
  const UploadPlaces places = PlacesOf(kPadded, kShape.attention_bytes);
  ASSERT_THAT(device_->CopyToHost(ids, ring_->uploaded<int32_t>(ring_->slot(), places.token_ids),
                                  sizeof(ids)),
              IsOk());
  EXPECT_THAT(ids, ElementsAre(7, 8));
}

TEST_P(BatchRingTest, TwoBatchesFlyWithTokensSampledByTheOneBefore) {
  const std::vector<int32_t> none, both = {0, 1};
  for (int slot = 0; slot < BatchRing::kSlots; ++slot) {
    ASSERT_THAT(Launch(TwoTokens(1, 2, 0), both), IsOk());
    ASSERT_THAT(ring_->Await(), IsOk());
  }
  const DeviceWatch watch;
  int32_t first = 10;
  int32_t second = 20;
  ASSERT_THAT(Launch(TwoTokens(first, second, 0), none), IsOk());
  for (int32_t position = 1; position < 7; ++position) {
    // Job 0 is of row 1, so the sequences find their tokens in the other order.
    const std::vector<int32_t> host_rows = {position % 2};
    ASSERT_THAT(Launch(TwoTokens(PendingToken(1), PendingToken(0), position), host_rows), IsOk());
    EXPECT_EQ(ring_->in_flight(), 2);
    first += 1000 + position - 1;
    second += 2000 + position - 1;
    const auto result = ring_->Await();
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->sampled_tokens, ElementsAre(second, first));
    const auto* const scores = reinterpret_cast<const int32_t*>(result->results.data());
    ASSERT_EQ(result->results.size(), 8u);
    EXPECT_EQ(scores[0], -second);
    EXPECT_EQ(scores[1], -first);
    if (position == 1) {
      EXPECT_THAT(result->logits, IsEmpty());
    } else {
      const auto sampled = static_cast<float>((position - 1) % 2 == 0 ? first : second);
      EXPECT_THAT(result->logits, ElementsAre(sampled, sampled + 1, sampled + 2, sampled + 3));
    }
  }
  ASSERT_THAT(ring_->Await(), IsOk());
  EXPECT_EQ(ring_->in_flight(), 0);
  // Nothing is allocated in a step, and the host waits for results alone.
  watch.ExpectCounts({.graph_launches = 7, .allocations = 0, .synchronizations = 7});
}

TEST_P(BatchRingTest, BringsChosenRowsOfStridedLogits) {
  constexpr int64_t kStride = 7;
  std::vector<float> values(4 * kStride);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Buffer wide =
      device_->Allocate(values.size() * sizeof(float), MemoryPurpose::kLogits).value();
  ASSERT_THAT(device_->CopyToDevice(wide.data(), values.data(), wide.bytes()), IsOk());
  ASSERT_THAT(ring_->Begin(), IsOk());
  ASSERT_THAT(ring_->Upload(0), IsOk());
  const std::vector<int32_t> rows = {0, 2, 3};
  ASSERT_THAT(ring_->Download(-1, wide.as<float>(), kStride, rows), IsOk());
  const auto result = ring_->Await();
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->logits, ElementsAre(0, 1, 2, 3, 14, 15, 16, 17, 21, 22, 23, 24));
  EXPECT_THAT(result->sampled_tokens, IsEmpty());
  EXPECT_THAT(result->results, IsEmpty());
}

// Of every batch the logits, while the next one's replace them on the device.
TEST_P(BatchRingTest, LogitsAreThoseOfTheirBatch) {
  const std::vector<int32_t> rows = {0, 1};
  for (int32_t position = 0; position < 8; ++position) {
    ASSERT_THAT(Launch(TwoTokens(100 * position, 7, position), rows), IsOk());
    if (position == 0) continue;
    const auto result = ring_->Await();
    ASSERT_THAT(result, IsOk());
    const float first = static_cast<float>(1000 + 101 * (position - 1));
    const float second = static_cast<float>(2000 + 7 + position - 1);
    EXPECT_THAT(result->logits, ElementsAre(first, first + 1, first + 2, first + 3, second,
                                            second + 1, second + 2, second + 3));
  }
  ASSERT_THAT(ring_->Await(), IsOk());
}

TEST_P(BatchRingTest, TakesMemoryForLogitsWhenTheyAreAskedFor) {
  const size_t pinned = device_->pinned_bytes();
  const std::vector<int32_t> none, one = {1};
  ASSERT_THAT(Launch(TwoTokens(10, 20, 0), none), IsOk());
  ASSERT_THAT(ring_->Await(), IsOk());
  EXPECT_EQ(device_->pinned_bytes(), pinned);
  ASSERT_THAT(Launch(TwoTokens(10, 20, 0), one), IsOk());
  ASSERT_THAT(ring_->Await(), IsOk());
  EXPECT_EQ(device_->pinned_bytes(), pinned + 4 * kVocab * sizeof(float)) << "of all rows";
  // Where there is none to be pinned, other memory does.
  if (!FailDeviceAllocationAfter(0)) return;
  ASSERT_THAT(Launch(TwoTokens(10, 20, 0), one), IsOk());
  EXPECT_THAT(ring_->Await()->logits, ElementsAre(2020, 2021, 2022, 2023));
  EXPECT_EQ(device_->pinned_bytes(), pinned + 4 * kVocab * sizeof(float));
}

TEST_P(BatchRingTest, DropsABatchThatNeverEnded) {
  const std::vector<int32_t> none;
  ASSERT_THAT(Launch(TwoTokens(10, 20, 0), none), IsOk());
  ASSERT_THAT(ring_->Begin(), IsOk());
  ASSERT_THAT(Upload(TwoTokens(1, 2, 5)), IsOk());
  EXPECT_EQ(ring_->in_flight(), 2);
  ASSERT_THAT(Launch(TwoTokens(PendingToken(1), PendingToken(0), 1), none), IsOk());
  EXPECT_EQ(ring_->in_flight(), 2);
  EXPECT_THAT(ring_->Await()->sampled_tokens, ElementsAre(2020, 1010));
  EXPECT_THAT(ring_->Await()->sampled_tokens, ElementsAre(4021, 2011));
}

TEST_P(BatchRingTest, ReturnsTheDevicesFaultWhereverItIs) {
  const std::vector<int32_t> none;
  ASSERT_THAT(Launch(TwoTokens(10, 20, 0), none), IsOk());
  ASSERT_THAT(ring_->Begin(), IsOk());
  const absl::Status fault = device_->Check(cudaErrorIllegalAddress, "some kernel");
  EXPECT_THAT(fault, IsInternal("some kernel"));
  EXPECT_EQ(ring_->Upload(64), fault);
  EXPECT_EQ(ring_->Download(-1, nullptr, kVocab, none), fault);
  EXPECT_EQ(ring_->Await().status(), fault);
  EXPECT_EQ(ring_->Begin(), fault);
  EXPECT_EQ(BatchRing::Create(*device_, kShape).status(), fault);
}

TEST_P(BatchRingTest, TakesTheMemoryItSays) {
  constexpr auto kActivations = static_cast<size_t>(MemoryPurpose::kActivations);
  EXPECT_EQ(device_->AllocatedBytes()[kActivations], BatchRing::DeviceBytes(kShape));
  const size_t pinned = device_->pinned_bytes();
  ring_ = nullptr;
  EXPECT_EQ(device_->AllocatedBytes()[kActivations], 0u);
  EXPECT_EQ(pinned - device_->pinned_bytes(), RingLayout(kShape).bytes());
  for (int call = 0; call < 2; ++call) {
    if (!FailDeviceAllocationAfter(call)) return;
    EXPECT_THAT(BatchRing::Create(*device_, kShape), IsResourceExhausted("bytes of"));
  }
}

INSTANTIATE_TEST_SUITE_P(Progress, BatchRingTest,
                         ::testing::Values(Progress::kLazy, Progress::kEager, Progress::kRandom));

}  // namespace
}  // namespace tlm
