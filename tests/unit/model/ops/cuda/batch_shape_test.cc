#include "model/ops/cuda/batch/batch_shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace tlm {
namespace {

constexpr BatchLimits kLimits = {
    .max_tokens = 2048, .max_sequences = 300, .max_logits_rows = 400, .max_context = 5000};

// `sequences` sequences of so many tokens, every last one with logits and a job.
Batch BatchWith(int64_t sequences, int64_t tokens_each, int64_t max_blocks = 3) {
  Batch batch;
  batch.sequences = sequences;
  batch.max_blocks = max_blocks;
  const auto tokens = static_cast<size_t>(sequences * tokens_each);
  batch.token_ids.resize(tokens);
  batch.positions.resize(tokens);
  batch.sequence_of.resize(tokens);
  batch.block_tables.resize(sequences * max_blocks);
  batch.logits_rows.resize(sequences);
  batch.jobs.resize(sequences);
  return batch;
}

TEST(BatchShapeTest, PaddingRisesWithTheRowsAndStaysSmall) {
  std::set<int64_t> counts;
  for (int64_t rows = 1; rows <= kMaxPaddedRows; ++rows) {
    const int64_t padded = PaddedRowCount(rows);
    EXPECT_GE(padded, rows);
    EXPECT_GE(padded, PaddedRowCount(rows - 1));
    EXPECT_EQ(PaddedRowCount(padded), padded);
    // At the most twice the few, 7 more, or a fourth more of the many.
    EXPECT_LE(padded, rows <= 16 ? 2 * rows : rows + std::max<int64_t>(7, (rows + 3) / 4)) << rows;
    counts.insert(padded);
  }
  EXPECT_LE(counts.size(), 24u);
  EXPECT_EQ(PaddedRowCount(0), 0);
  EXPECT_EQ(PaddedRowCount(kMaxPaddedRows + 1), kMaxPaddedRows + 1);
}

TEST(BatchShapeTest, DecodingBatchesOfOneBucketShareAKey) {
  const BatchShape a = ShapeOf(BatchWith(17, 1), kLimits);
  const BatchShape b = ShapeOf(BatchWith(24, 1, 7), kLimits);
  EXPECT_EQ(a.padded.tokens, 24);
  EXPECT_EQ(a.padded.rows, 24);
  EXPECT_EQ(a.jobs, 24);
  EXPECT_EQ(a.key % 2, 1u);
  EXPECT_EQ(a.key, b.key);
}

TEST(BatchShapeTest, EqualKeysMeanEqualLaunches) {
  using Launches = std::tuple<int64_t, int64_t, int64_t>;
  std::map<uint64_t, Launches> seen;
  for (int64_t sequences = 1; sequences <= 300; sequences += 3) {
    for (const int64_t blocks : {1, 9, 40, 79}) {
      for (const bool logits : {false, true}) {
        for (const bool jobs : {false, true}) {
          Batch batch = BatchWith(sequences, 1, blocks);
          if (!logits) batch.logits_rows.clear();
          if (!logits || !jobs) batch.jobs.clear();
          const BatchShape shape = ShapeOf(batch, kLimits);
          ASSERT_NE(shape.key, 0u);
          EXPECT_LT(shape.key, uint64_t{1} << 48);  // what stands above is the caller's
          const Launches launches = {shape.padded.tokens, shape.padded.rows, shape.jobs};
          EXPECT_EQ(seen.emplace(shape.key, launches).first->second, launches);
          EXPECT_GE(shape.padded.rows, batch.rows());
          EXPECT_LE(shape.padded.rows, PaddedRowCount(kLimits.max_logits_rows));
          EXPECT_GE(shape.jobs, static_cast<int64_t>(batch.jobs.size()));
          EXPECT_LE(shape.jobs, kLimits.max_sequences);
        }
      }
    }
  }
  std::set<Launches> different;
  for (const auto& [key, launches] : seen) different.insert(launches);
  EXPECT_EQ(different.size(), seen.size());
}

TEST(BatchShapeTest, DraftsShareTheKeysOfDecoding) {
  // Four sequences with three tokens of a draft each, and one without.
  Batch drafts = BatchWith(5, 1);
  drafts.token_ids.resize(17);
  drafts.logits_rows.resize(17);
  drafts.jobs.resize(17);
  EXPECT_EQ(ShapeOf(drafts, kLimits).key, ShapeOf(BatchWith(20, 1), kLimits).key);
  EXPECT_EQ(ShapeOf(drafts, kLimits).padded.rows, 24);
  // Beside a short prompt, and beside one that is most of the batch.
  drafts.token_ids.resize(34);
  EXPECT_NE(ShapeOf(drafts, kLimits).key, 0u);
  drafts.token_ids.resize(35);
  EXPECT_EQ(ShapeOf(drafts, kLimits).key, 0u);
  // As many jobs as there may be in all.
  BatchLimits few = kLimits;
  few.max_sequences = 5;
  few.max_draft_rows = 12;
  drafts.token_ids.resize(17);
  EXPECT_EQ(ShapeOf(drafts, few).jobs, 17);
  EXPECT_NE(ShapeOf(drafts, few).key, 0u);
  few.max_draft_rows = 11;
  EXPECT_EQ(ShapeOf(drafts, few).key, 0u);
}

TEST(BatchShapeTest, CommonShapesAreThoseOfDecodingAndDrafts) {
  BatchLimits limits = kLimits;
  limits.max_sequences = 40;
  limits.max_draft_rows = 90;
  const std::vector<BatchShape> shapes = CommonShapes(limits);
  std::set<uint64_t> keys;
  for (const BatchShape& shape : shapes) keys.insert(shape.key);
  EXPECT_EQ(keys.size(), shapes.size());
  for (int64_t sequences = 1; sequences <= 40; ++sequences) {
    for (int64_t drafted = 0; drafted <= 90; drafted += 9) {
      Batch batch = BatchWith(sequences, 1);
      const auto tokens = static_cast<size_t>(sequences + drafted);
      batch.token_ids.resize(tokens);
      batch.logits_rows.resize(tokens);
      batch.jobs.resize(tokens);
      EXPECT_TRUE(keys.contains(ShapeOf(batch, limits).key)) << sequences << ", " << drafted;
    }
  }
  EXPECT_EQ(shapes.front().padded.tokens, 1);
  EXPECT_EQ(shapes.back().padded.tokens, 160);
  limits.max_tokens = 20;
  EXPECT_EQ(CommonShapes(limits).back().padded.tokens, 24);
}

TEST(BatchShapeTest, OtherBatchesAreTakenAsTheyAre) {
  const Batch prefill = BatchWith(3, 7);
  const BatchShape shape = ShapeOf(prefill, kLimits);
  EXPECT_EQ(shape.key, 0u);
  EXPECT_EQ(shape.padded.tokens, 21);
  EXPECT_EQ(shape.padded.rows, 3);
  EXPECT_EQ(shape.jobs, 3);
  // More jobs than tokens: outputs that begin at one prompt's end.
  Batch branching = BatchWith(1, 1);
  branching.jobs.resize(5);
  EXPECT_EQ(ShapeOf(branching, kLimits).key, 0u);
  EXPECT_EQ(ShapeOf(branching, kLimits).jobs, 5);
  Batch repeated = BatchWith(2, 1);
  repeated.logits_rows.resize(3);
  EXPECT_EQ(ShapeOf(repeated, kLimits).key, 0u);
}

}  // namespace
}  // namespace tlm
