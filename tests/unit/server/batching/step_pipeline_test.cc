#include "server/batching/step_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/support/scripted_model.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::SizeIs;

constexpr BatchLimits kLimits{
    .max_tokens = 100, .max_sequences = 8, .max_logits_rows = 8, .max_context = 256};

class StepPipelineTest : public ::testing::Test {
 protected:
  // A sequence with blocks for `tokens` more than its prompt.
  std::unique_ptr<Sequence> NewSequence(Request request, int64_t tokens) {
    const int64_t length = static_cast<int64_t>(request.prompt.size());
    auto sequence = std::make_unique<Sequence>(std::move(request), next_number_++);
    EXPECT_TRUE(sequence->Grow(pool_, length + tokens));
    return sequence;
  }
  // All that is left of each.
  static StepPlan PlanOf(const std::vector<Sequence*>& sequences) {
    StepPlan plan;
    for (Sequence* sequence : sequences) {
      const int64_t tokens = sequence->remaining();
      plan.chunks.push_back({sequence, sequence->computed(), tokens, sequence->RowsWanted(tokens)});
    }
    return plan;
  }

  BlockPool pool_{16};
  int64_t next_number_ = 0;
};

TEST_F(StepPipelineTest, LaunchesAsManyAsTheModelTakes) {
  for (const int most : {1, 2, 3}) {
    ScriptedModel model(kLimits, 16, most);
    const auto a = NewSequence(GenerateRequest(Prompt(10), 20), 5);
    const auto b = NewSequence(GenerateRequest(Prompt(10), 20), 5);
    StepPipeline pipeline(model);  // waits for what is launched at its end
    EXPECT_TRUE(pipeline.empty());
    EXPECT_FALSE(pipeline.CanLaunch({}));
    ASSERT_TRUE(pipeline.CanLaunch(PlanOf({a.get()})));
    pipeline.Launch(PlanOf({a.get()}), absl::UnixEpoch());
    EXPECT_FALSE(pipeline.empty());
    EXPECT_EQ(pipeline.CanLaunch(PlanOf({b.get()})), most > 1);
    if (most == 1) continue;
    pipeline.Launch(PlanOf({b.get()}), absl::UnixEpoch());
    EXPECT_FALSE(pipeline.CanLaunch(PlanOf({b.get()})));
  }
}

TEST_F(StepPipelineTest, GivesResultsInTheOrderOfTheLaunches) {
  ScriptedModel model(kLimits, 16, 2);
  StepPipeline pipeline(model);
  const auto generating = NewSequence(GenerateRequest(Prompt(10), 20), 5);
  const auto rows = NewSequence(ForwardRequest(Prompt(10), {2, 9}, UnreadStream()), 0);
  const absl::Time begin = absl::UnixEpoch();
  pipeline.Launch(PlanOf({generating.get(), rows.get()}), begin);
  pipeline.Launch(PlanOf({generating.get()}), begin + absl::Seconds(1));
  EXPECT_TRUE(generating->in_flight());

  StepResults first = pipeline.Wait();
  ASSERT_THAT(first.status(), IsOk());
  EXPECT_EQ(first.begin(), begin);
  EXPECT_THAT(first.plan().chunks, SizeIs(2));
  EXPECT_TRUE(generating->in_flight());
  EXPECT_FALSE(rows->in_flight());
  const std::vector<int32_t> tokens =
      GenerateAlone(GenerateRequest(Prompt(10), 20), kLimits.max_context);
  RowResults row = first.NextRow();
  EXPECT_TRUE(row.logits.empty());
  ASSERT_THAT(row.jobs, SizeIs(1));
  EXPECT_EQ(row.tokens[0]->id, tokens[0]);
  for (const int64_t position : {2, 9}) {
    row = first.NextRow();
    EXPECT_THAT(row.jobs, SizeIs(0));
    EXPECT_EQ(std::vector<float>(row.logits.begin(), row.logits.end()),
              ScriptedModel::LogitsAfter(std::span(rows->tokens()).first(position + 1)));
  }

  StepResults second = pipeline.Wait();
  EXPECT_EQ(second.begin(), begin + absl::Seconds(1));
  EXPECT_EQ(second.NextRow().tokens[0]->id, tokens[1]);
  EXPECT_FALSE(generating->in_flight());
  EXPECT_TRUE(pipeline.empty());
}

TEST_F(StepPipelineTest, DrawsOfSeveralOutputsAreThoseOfOneRow) {
  ScriptedModel model(kLimits, 16);
  StepPipeline pipeline(model);
  const auto parent = NewSequence(ThreeOutputs(10), 5);
  const auto other = NewSequence(GenerateRequest(Prompt(10), 20), 5);
  pipeline.Launch(PlanOf({parent.get(), other.get()}), absl::UnixEpoch());
  StepResults results = pipeline.Wait();
  EXPECT_THAT(results.NextRow().tokens, SizeIs(3));
  EXPECT_THAT(results.NextRow().tokens, SizeIs(1));
}

TEST_F(StepPipelineTest, PenaltiesNeedTheTokenBeforeOnlyWhereTheyDraw) {
  ScriptedModel model(kLimits, 16, 2);
  StepPipeline pipeline(model);
  Request request = GenerateRequest(Prompt(10), 20);
  request.generate()->sampling.presence_penalty = 0.5f;
  const auto penalised = NewSequence(std::move(request), 5);
  StepPlan half = PlanOf({penalised.get()});
  half.chunks[0].num_tokens = 4;
  half.chunks[0].num_rows = 0;
  pipeline.Launch(std::move(half), absl::UnixEpoch());
  ASSERT_TRUE(pipeline.CanLaunch(PlanOf({penalised.get()})));  // its first token
  pipeline.Launch(PlanOf({penalised.get()}), absl::UnixEpoch());
  pipeline.Wait();
  EXPECT_FALSE(pipeline.CanLaunch(PlanOf({penalised.get()})));
  StepResults results = pipeline.Wait();
  ASSERT_FALSE(penalised->Append(results.NextRow().tokens[0]->id, 256).has_value());
  EXPECT_TRUE(pipeline.CanLaunch(PlanOf({penalised.get()})));
}

TEST_F(StepPipelineTest, AFaultHasNoRows) {
  ScriptedModel model(kLimits, 16);
  StepPipeline pipeline(model);
  const auto sequence = NewSequence(GenerateRequest(Prompt(10), 20), 5);
  model.FailOnce(absl::InternalError("lost"));
  pipeline.Launch(PlanOf({sequence.get()}), absl::UnixEpoch());
  EXPECT_EQ(pipeline.Wait().status().code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(sequence->in_flight());
}

TEST_F(StepPipelineTest, WaitsForWhatIsLeftBeforeItGoes) {
  ScriptedModel model(kLimits, 16, 2);
  int waits = 0;
  model.set_on_wait([&] { ++waits; });
  const auto sequence = NewSequence(GenerateRequest(Prompt(10), 20), 5);
  {
    StepPipeline pipeline(model);
    pipeline.Launch(PlanOf({sequence.get()}), absl::UnixEpoch());
    pipeline.Launch(PlanOf({sequence.get()}), absl::UnixEpoch());
    EXPECT_EQ(waits, 0);
  }
  EXPECT_EQ(waits, 2);
}

}  // namespace
}  // namespace tlm
