#include "model/ops/cuda/batch_ring_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
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

TEST(BatchRingLayoutTest, SectionsAreAlignedAndApart) {
  const RingLayout layout(SmallShape());
  size_t end = 0;
  for (int i = 0; i < kRingSections; ++i) {
    const auto section = static_cast<RingSection>(i);
    EXPECT_EQ(layout.offset(section) % 256, 0u);
    EXPECT_GE(layout.offset(section), end);
    end = layout.offset(section) + layout.capacity(section);
  }
  EXPECT_GE(layout.upload_bytes(), end);
  EXPECT_EQ(layout.capacity(RingSection::kTokenIds), 400u);
  EXPECT_EQ(layout.capacity(RingSection::kBlockTables), 160u);
  EXPECT_EQ(layout.results_offset(), layout.upload_bytes());
  EXPECT_GE(layout.job_results_offset(), 32u);
  EXPECT_GE(layout.download_bytes(), layout.job_results_offset() + 70);
  EXPECT_EQ(layout.device_bytes(), layout.upload_bytes() + layout.download_bytes());
  EXPECT_GE(layout.logits_bytes(), 3u * 11 * sizeof(float));
  EXPECT_EQ(layout.host_bytes(), 2 * (layout.device_bytes() + layout.logits_bytes()));
}

TEST(BatchRingLayoutTest, SizesBeyondMeasureAskForMoreThanThereIs) {
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  RingShape shape = SmallShape();
  shape.max_sequences = std::numeric_limits<int64_t>::max() / 2;
  shape.max_blocks = 1 << 20;
  EXPECT_EQ(RingLayout(shape).device_bytes(), kMost);
  EXPECT_EQ(RingLayout(shape).host_bytes(), kMost);
  shape = SmallShape();
  shape.vocab_size = std::numeric_limits<int64_t>::max();
  EXPECT_LT(RingLayout(shape).device_bytes(), kMost);
  EXPECT_EQ(RingLayout(shape).host_bytes(), kMost);
}

TEST(BatchRingLayoutTest, OneCopyCarriesWhatLiesCloseTogether) {
  const RingLayout layout(SmallShape());
  std::array<size_t, kRingSections> used{};
  EXPECT_THAT(layout.Copies(used), IsEmpty());
  used[static_cast<size_t>(RingSection::kPositions)] = 4;
  EXPECT_THAT(layout.Copies(used),
              ElementsAre(RingCopy{layout.offset(RingSection::kPositions), 4}));
  used.fill(1);
  EXPECT_THAT(layout.Copies(used), ElementsAre(RingCopy{0, layout.offset(RingSection::kJobs) + 1}));
}

TEST(BatchRingLayoutTest, LargeUnusedStretchesStayBehind) {
  RingShape shape = SmallShape();
  shape.max_sequences = 256;
  shape.max_blocks = 2048;
  const RingLayout layout(shape);
  std::array<size_t, kRingSections> used{};
  used.fill(8);
  const size_t tables = layout.offset(RingSection::kBlockTables);
  EXPECT_THAT(layout.Copies(used),
              ElementsAre(RingCopy{0, tables + 8}, RingCopy{layout.offset(RingSection::kJobs), 8}));
}

TEST(BatchRingLayoutTest, CopiesCoverEveryUsedByte) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    RingShape shape = SmallShape();
    shape.max_tokens = static_cast<int64_t>(random() % 200'000);
    shape.attention_bytes = random() % 500'000;
    shape.job_bytes = random() % 500'000;
    shape.max_sequences = static_cast<int64_t>(random() % 300);
    shape.max_blocks = static_cast<int64_t>(random() % 1000);
    const RingLayout layout(shape);
    std::array<size_t, kRingSections> used{};
    for (int i = 0; i < kRingSections; ++i) {
      const size_t capacity = layout.capacity(static_cast<RingSection>(i));
      used[static_cast<size_t>(i)] = random() % 3 == 0 ? 0 : random() % (capacity + 1);
    }
    const std::vector<RingCopy> copies = layout.Copies(used);
    for (size_t i = 0; i < used.size(); ++i) {
      const size_t begin = layout.offset(static_cast<RingSection>(i));
      bool covered = used[i] == 0;
      for (const RingCopy& copy : copies) {
        covered |= copy.offset <= begin && begin + used[i] <= copy.offset + copy.bytes;
      }
      EXPECT_TRUE(covered);
    }
    size_t end = 0;
    for (const RingCopy& copy : copies) {
      EXPECT_GE(copy.offset, end);
      end = copy.offset + copy.bytes;
    }
    EXPECT_LE(end, layout.upload_bytes());
  }
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
  std::vector<int32_t> ids(4, 99), positions(5, 99), table_of(4, 99), rows(3, 99), tables(6, 99);
  WritePadded(batch, {.tokens = 4, .rows = 2},
              {.token_ids = ids,
               .positions = positions,
               .table_of = table_of,
               .logits_rows = rows,
               .block_tables = tables});
  EXPECT_THAT(ids, ElementsAre(7, -3, 0, 0));
  EXPECT_THAT(positions, ElementsAre(0, 70, -1, -1, 99));
  EXPECT_THAT(table_of, ElementsAre(0, 2, 0, 0));
  EXPECT_THAT(rows, ElementsAre(1, 0, 99));
  EXPECT_THAT(tables, ElementsAre(3, 0, 4, 5, 99, 99));
}

TEST(BatchRingLayoutTest, FindsRunsOfRows) {
  EXPECT_THAT(RunsOfRows({}), IsEmpty());
  const std::vector<int32_t> rows = {0, 1, 2, 5, 7, 8};
  EXPECT_THAT(RunsOfRows(rows), ElementsAre(RowRun{0, 3}, RowRun{5, 1}, RowRun{7, 2}));
}

}  // namespace
}  // namespace tlm
