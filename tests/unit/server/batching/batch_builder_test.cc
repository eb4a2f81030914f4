#include "server/batching/batch_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BatchBuilderTest, LaysChunksEndToEnd) {
  BlockPool pool(10);
  Sequence decoding(GenerateRequest({10, 11, 12}, 5), 0);
  ASSERT_TRUE(decoding.Grow(pool, 4));  // block 0
  decoding.MarkComputed(3);
  ASSERT_FALSE(decoding.Append(13, 1000).has_value());
  Sequence prefilling(GenerateRequest(Prompt(200), 5), 1);
  ASSERT_TRUE(prefilling.Grow(pool, 200));  // blocks 1 to 4
  prefilling.MarkComputed(100);
  Sequence forward(ForwardRequest({20, 21, 22, 23, 24}, {1, 3, 4}, UnreadStream(3)), 2);
  ASSERT_TRUE(forward.Grow(pool, 5));  // block 5
  forward.MarkComputed(1);

  StepPlan plan;
  plan.chunks = {{&decoding, 3, 1, 1}, {&prefilling, 100, 2, 0}, {&forward, 1, 3, 2}};
  Batch batch;
  BuildBatch(plan, &batch);
  const std::vector<int32_t> prompt = Prompt(200);
  EXPECT_THAT(batch.token_ids, ElementsAre(13, prompt[100], prompt[101], 21, 22, 23));
  EXPECT_THAT(batch.positions, ElementsAre(3, 100, 101, 1, 2, 3));
  EXPECT_THAT(batch.sequence_of, ElementsAre(0, 1, 1, 2, 2, 2));
  EXPECT_THAT(batch.logits_rows, ElementsAre(0, 3, 5));
  EXPECT_EQ(batch.sequences, 3);
  EXPECT_EQ(batch.max_blocks, 4);
  EXPECT_THAT(batch.block_tables, ElementsAre(0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0));
}

TEST(BatchBuilderTest, AGenerateChunkThatReachesTheEndWantsItsLastRow) {
  BlockPool pool(1);
  Sequence sequence(GenerateRequest({10, 11, 12}, 5), 0);
  ASSERT_TRUE(sequence.Grow(pool, 3));
  StepPlan plan;
  plan.chunks = {{&sequence, 0, 3, 1}};
  Batch batch;
  BuildBatch(plan, &batch);
  EXPECT_THAT(batch.logits_rows, ElementsAre(2));
}

TEST(BatchBuilderTest, ReplacesWhatWasThere) {
  BlockPool pool(1);
  Sequence sequence(GenerateRequest({10, 11, 12}, 5), 0);
  ASSERT_TRUE(sequence.Grow(pool, 3));
  StepPlan plan;
  plan.chunks = {{&sequence, 0, 3, 1}};
  Batch batch;
  BuildBatch(plan, &batch);
  plan.chunks = {{&sequence, 0, 1, 0}};
  BuildBatch(plan, &batch);
  EXPECT_THAT(batch.token_ids, ElementsAre(10));
  EXPECT_THAT(batch.logits_rows, IsEmpty());
  EXPECT_THAT(batch.block_tables, ElementsAre(0));
  EXPECT_EQ(batch.sequences, 1);
}

}  // namespace
}  // namespace tlm
