#include "server/batching/batch_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Batch Build(std::vector<Chunk> chunks) {
  StepPlan plan;
  plan.chunks = std::move(chunks);
  Batch batch;
  BuildBatch(plan, &batch);
  return batch;
}

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

  Batch batch = Build({{&decoding, 3, 1, 1}, {&prefilling, 100, 2, 0}, {&forward, 1, 3, 2}});
  const std::vector<int32_t> prompt = Prompt(200);
  EXPECT_THAT(batch.token_ids, ElementsAre(13, prompt[100], prompt[101], 21, 22, 23));
  EXPECT_THAT(batch.positions, ElementsAre(3, 100, 101, 1, 2, 3));
  EXPECT_THAT(batch.sequence_of, ElementsAre(0, 1, 1, 2, 2, 2));
  EXPECT_THAT(batch.logits_rows, ElementsAre(0, 3, 5));
  ASSERT_EQ(batch.jobs.size(), 1);
  EXPECT_EQ(batch.jobs[0].row, 0);
  EXPECT_THAT(batch.host_rows, ElementsAre(1, 2));
  EXPECT_EQ(batch.sequences, 3);
  EXPECT_EQ(batch.max_blocks, 4);
  EXPECT_THAT(batch.block_tables, ElementsAre(0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0));
}

TEST(BatchBuilderTest, ADrawHasAllThatItsTokenDependsOn) {
  BlockPool pool(1);
  Request request = GenerateRequest({10, 11, 12}, 5);
  request.generate()->output_index = 4;
  request.generate()->sampling.presence_penalty = 1;
  request.generate()->stop.min_new_tokens = 2;
  request.generate()->stop.ending_ids = EndingIds({3}, {9, 3});
  request.generate()->score = {.logprob = true, .top = 7};
  Sequence sequence(std::move(request), 0);
  ASSERT_TRUE(sequence.Grow(pool, 3));
  Batch batch = Build({{&sequence, 0, 3, 1}});
  EXPECT_THAT(batch.logits_rows, ElementsAre(2));
  EXPECT_THAT(batch.host_rows, IsEmpty());
  ASSERT_EQ(batch.jobs.size(), 1);
  const SamplingJob& job = batch.jobs[0];
  EXPECT_EQ(job.params, &sequence.request().generate()->sampling);
  EXPECT_EQ(job.history, &sequence.history());
  EXPECT_EQ(job.key.output_index, 4);
  EXPECT_EQ(job.key.position, 3);
  EXPECT_TRUE(job.score.logprob);
  EXPECT_EQ(job.score.top, 7);
  EXPECT_THAT(job.banned, ElementsAre(3, 9));
}

TEST(BatchBuilderTest, OutputsThatAreStillWantedAreDrawnFromOneRow) {
  BlockPool pool(4);
  Sequence before(GenerateRequest({7}, 5), 0);
  Request request = GenerateRequest({10, 11, 12}, 5);
  request.generate()->output_index = 4;
  request.branch_streams = {UnreadStream(), UnreadStream(), UnreadStream()};
  Sequence parent(std::move(request), 1);
  parent.TakeBranchStream(1);
  ASSERT_TRUE(before.Grow(pool, 1) && parent.Grow(pool, 4));
  Batch batch = Build({{&before, 0, 1, 1}, {&parent, 0, 3, 1}});
  std::vector<int32_t> rows;
  std::vector<uint32_t> outputs;
  for (const SamplingJob& job : batch.jobs) {
    rows.push_back(job.row);
    outputs.push_back(job.key.output_index);
  }
  EXPECT_THAT(rows, ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(outputs, ElementsAre(0, 4, 5, 7));
  // Behind it the parent draws for itself alone, even before its first token is known.
  parent.MarkLaunched(3, 1000);
  batch = Build({{&parent, 3, 1, 1}});
  EXPECT_THAT(batch.token_ids, ElementsAre(PendingToken(1)));
  ASSERT_EQ(batch.jobs.size(), 1);
  EXPECT_EQ(batch.jobs[0].key.output_index, 4);
  EXPECT_EQ(batch.jobs[0].key.position, 4);
}

TEST(BatchBuilderTest, ATokenThatIsNotKnownIsThatOfItsDraw) {
  BlockPool pool(2);
  Sequence other(GenerateRequest({7}, 5), 0);
  Request request = GenerateRequest({10, 11, 12}, 5);
  request.generate()->stop.min_new_tokens = 2;
  request.generate()->stop.ending_ids = EndingIds({3});
  Sequence sequence(std::move(request), 1);
  ASSERT_TRUE(other.Grow(pool, 1) && sequence.Grow(pool, 5));
  Batch batch = Build({{&other, 0, 1, 1}, {&sequence, 0, 3, 1}});
  sequence.MarkLaunched(3, 1000);
  batch = Build({{&sequence, 3, 1, 1}});
  EXPECT_THAT(batch.token_ids, ElementsAre(PendingToken(1)));
  EXPECT_THAT(batch.positions, ElementsAre(3));
  EXPECT_THAT(batch.logits_rows, ElementsAre(0));
  EXPECT_THAT(batch.jobs[0].banned, ElementsAre(3));  // one token is still to come before an end
  sequence.MarkLaunched(1, 1000);
  ASSERT_FALSE(sequence.Append(20, 1000).has_value());
  batch = Build({{&sequence, 4, 1, 1}});
  EXPECT_THAT(batch.token_ids, ElementsAre(PendingToken(0)));
  EXPECT_THAT(batch.jobs[0].banned, IsEmpty());
  EXPECT_EQ(batch.jobs[0].key.position, 5);
}

// As after a preemption: what is known is recomputed with what is on its way.
TEST(BatchBuilderTest, AChunkMayEndWithATokenThatIsNotKnown) {
  BlockPool pool(1);
  Sequence sequence(GenerateRequest({10, 11, 12}, 5), 0);
  ASSERT_TRUE(sequence.Grow(pool, 3));
  Batch batch = Build({{&sequence, 0, 3, 1}});
  sequence.MarkLaunched(3, 1000);
  sequence.ReleaseBlocks(pool);
  ASSERT_TRUE(sequence.Grow(pool, 4));
  batch = Build({{&sequence, 0, 4, 1}});
  EXPECT_THAT(batch.token_ids, ElementsAre(10, 11, 12, PendingToken(0)));
  EXPECT_THAT(batch.logits_rows, ElementsAre(3));
  EXPECT_EQ(batch.jobs[0].key.position, 4);
}

TEST(BatchBuilderTest, PromptScoresGoToTheHostAndTheLastRowIsDrawnFrom) {
  BlockPool pool(1);
  Request request = GenerateRequest({10, 11, 12}, 5);
  request.generate()->score_prompt = true;
  Sequence sequence(std::move(request), 0);
  ASSERT_TRUE(sequence.Grow(pool, 3));
  Batch batch = Build({{&sequence, 0, 3, 3}});
  EXPECT_THAT(batch.logits_rows, ElementsAre(0, 1, 2));
  EXPECT_THAT(batch.host_rows, ElementsAre(0, 1));
  ASSERT_EQ(batch.jobs.size(), 1);
  EXPECT_EQ(batch.jobs[0].row, 2);
}

TEST(BatchBuilderTest, RowsOnTheirWayAreNotAskedForAgain) {
  BlockPool pool(1);
  Sequence forward(ForwardRequest({20, 21, 22, 23, 24}, {1, 3, 4}, UnreadStream()), 0);
  ASSERT_TRUE(forward.Grow(pool, 5));
  forward.MarkLaunched(2, 1000);
  Batch batch = Build({{&forward, 2, 3, 2}});
  EXPECT_THAT(batch.logits_rows, ElementsAre(1, 2));
  EXPECT_THAT(batch.host_rows, ElementsAre(0, 1));
  EXPECT_THAT(batch.jobs, IsEmpty());
}

TEST(BatchBuilderTest, ReplacesWhatWasThere) {
  BlockPool pool(1);
  Sequence sequence(GenerateRequest({10, 11, 12}, 5), 0);
  ASSERT_TRUE(sequence.Grow(pool, 3));
  Batch batch = Build({{&sequence, 0, 3, 1}});
  StepPlan shorter;
  shorter.chunks = {{&sequence, 0, 1, 0}};
  BuildBatch(shorter, &batch);
  EXPECT_THAT(batch.token_ids, ElementsAre(10));
  EXPECT_THAT(batch.logits_rows, IsEmpty());
  EXPECT_THAT(batch.jobs, IsEmpty());
  EXPECT_THAT(batch.block_tables, ElementsAre(0));
  EXPECT_EQ(batch.sequences, 1);
}

}  // namespace
}  // namespace tlm
