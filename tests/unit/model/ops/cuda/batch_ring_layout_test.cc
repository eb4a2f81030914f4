#include "model/ops/cuda/batch/batch_ring_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RingShape SmallShape() {
  return {.max_tokens = 100,
          .max_rows = 10,
          .max_sequences = 8,
          .max_blocks = 5,
          .max_jobs = 8,
          .max_host_rows = 3,
          .vocab_size = 11,
          .attention_bytes = 1000,
          .job_bytes = 500,
          .result_bytes = 70};
}

std::vector<size_t> InOrder(const UploadPlaces& places) {
  return {places.token_ids,   places.positions, places.table_of,
          places.logits_rows, places.attention, places.jobs};
}

TEST(BatchRingLayoutTest, PartsAreAlignedAndApart) {
  const UploadPlaces places = PlacesOf({.tokens = 17, .rows = 3}, 1000);
  const std::vector<size_t> bytes = {68, 68, 68, 12, 1000};
  const std::vector<size_t> begins = InOrder(places);
  for (size_t part = 0; part < begins.size(); ++part) {
    EXPECT_EQ(begins[part] % 64, 0u);
    if (part == 0) continue;
    EXPECT_GE(begins[part], begins[part - 1] + bytes[part - 1]);
    EXPECT_LT(begins[part], begins[part - 1] + bytes[part - 1] + 64) << "packed";
  }
  EXPECT_EQ(places.BlockTables(0), places.jobs);
  EXPECT_EQ(places.BlockTables(65), places.jobs + 128);
}

TEST(BatchRingLayoutTest, TheLargestBatchFits) {
  const RingShape shape = SmallShape();
  const RingLayout layout(shape);
  const UploadPlaces places = PlacesOf({.tokens = 100, .rows = 10}, 1000);
  EXPECT_EQ(layout.upload_bytes(), places.BlockTables(500) + 3 * 64) << "40 entries";
  EXPECT_GE(layout.job_results_offset(), 32u);
  EXPECT_GE(layout.download_bytes(), layout.job_results_offset() + 70);
  EXPECT_EQ(layout.slot_bytes(), layout.upload_bytes() + layout.download_bytes());
  EXPECT_EQ(layout.bytes(), 2 * layout.slot_bytes());
}

TEST(BatchRingLayoutTest, SizesBeyondMeasureAskForMoreThanThereIs) {
  constexpr size_t kMax = std::numeric_limits<size_t>::max();
  RingShape shape = SmallShape();
  shape.max_sequences = std::numeric_limits<int64_t>::max() / 2;
  shape.max_blocks = 1 << 20;
  EXPECT_EQ(RingLayout(shape).bytes(), kMax);
  // More block tables than an entry's number tells apart.
  shape.max_sequences = 1 << 12;
  shape.max_blocks = 1 << 18;
  EXPECT_LT(RingLayout(shape).bytes(), kMax);
  shape.max_blocks = 1 << 19;
  EXPECT_EQ(RingLayout(shape).bytes(), kMax);
}

TEST(BatchRingLayoutTest, PadsABatch) {
  Batch batch;
  batch.token_ids = {7, PendingToken(2)};
  batch.positions = {0, 70};
  batch.sequence_of = {0, 1};
  batch.block_tables = {3, 0, 4, 5};
  batch.sequences = 2;
  batch.max_blocks = 2;
  batch.logits_rows = {1};
  const PaddedShape padded{.tokens = 4, .rows = 2};
  const UploadPlaces places = PlacesOf(padded, 100);
  std::vector<int32_t> memory(256, 99);
  const size_t bytes =
      WritePadded(batch, padded, places, 12, std::as_writable_bytes(std::span(memory)));
  const auto at = [&](size_t place, size_t count) {
    const auto begin = memory.begin() + static_cast<ptrdiff_t>(place / sizeof(int32_t));
    return std::vector<int32_t>(begin, begin + static_cast<ptrdiff_t>(count));
  };
  EXPECT_THAT(at(places.token_ids, 5), ElementsAre(7, -3, 0, 0, 99));
  EXPECT_THAT(at(places.positions, 5), ElementsAre(0, 70, -1, -1, 99));
  EXPECT_THAT(at(places.logits_rows, 3), ElementsAre(1, 0, 99));
  const size_t tables = places.BlockTables(12);
  EXPECT_THAT(at(tables, 5), ElementsAre(3, 0, 4, 5, 99));
  const auto first = static_cast<int32_t>(tables / sizeof(int32_t));
  EXPECT_THAT(at(places.table_of, 5), ElementsAre(first, first + 2, first, first, 99));
  EXPECT_EQ(bytes, tables + 16);
}

TEST(BatchRingLayoutTest, FindsRunsOfRows) {
  EXPECT_THAT(RunsOfRows({}), IsEmpty());
  const std::vector<int32_t> rows = {0, 1, 2, 5, 7, 8};
  EXPECT_THAT(RunsOfRows(rows), ElementsAre(RowRun{0, 3}, RowRun{5, 1}, RowRun{7, 2}));
}

}  // namespace
}  // namespace tlm
