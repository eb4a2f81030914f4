#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "model/ops/ops.h"
#include "server/batching/scheduler.h"
#include "tests/unit/server/batching/requests.h"
#include "tests/unit/server/batching/scheduler_bench.h"

namespace tlm {
namespace {

constexpr int64_t kLongest = 6 * kBlockTokens;

// Random work on a pool that holds little more than the longest sequence.
class SchedulerPropertyTest : public ::testing::TestWithParam<int> {
 protected:
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(uint32_t n) { return random_() % n == 0; }

  Request RandomForward() {
    const int64_t prompt = Between(1, kLongest);
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < prompt; ++i) {
      if (OneIn(2) || i == prompt - 1) positions.push_back(i);
    }
    results_wanted_ += static_cast<int64_t>(positions.size());
    return ForwardRequest(Prompt(prompt), positions, UnreadStream(Between(1, 30)));
  }

  Request RandomGenerate() {
    const int64_t prompt = Between(1, kLongest - 1);
    const int64_t generated = Between(1, kLongest - prompt);
    results_wanted_ += generated;
    return GenerateRequest(Prompt(prompt), generated);
  }

  Request RandomScore() {
    const int64_t prompt = Between(1, kLongest - 1);
    std::vector<int64_t> lengths;
    ++results_wanted_;  // one row for the first tokens of all
    for (int64_t i = Between(1, 5); i > 0; --i) {
      lengths.push_back(OneIn(3) ? 1 : Between(1, kLongest - prompt));
      results_wanted_ += lengths.back() - 1;
    }
    return ScoreRequestFor(Prompt(prompt), lengths);
  }

  Request RandomOutputs() {
    const int64_t prompt = OneIn(3) ? kBlockTokens * Between(1, 5) : Between(1, kLongest - 1);
    const int64_t generated = Between(1, kLongest - prompt);
    Request request = GenerateRequest(Prompt(prompt), generated);
    const int64_t outputs = Between(1, 6);
    for (int64_t i = 1; i < outputs; ++i) request.branch_streams.push_back(UnreadStream());
    request.generate->score_prompt = OneIn(2);
    if (request.generate->score_prompt) results_wanted_ += prompt - 1;
    results_wanted_ += 1 + outputs * (generated - 1);  // the first row is for all
    return request;
  }

  Request RandomRequest() {
    switch (Between(0, 3)) {
      case 0:
        return RandomForward();
      case 1:
        return RandomGenerate();
      case 2:
        return RandomScore();
      default:
        return RandomOutputs();
    }
  }

  void AddOne() {
    Request request = RandomRequest();
    request.priority = static_cast<int32_t>(Between(0, 2));
    const auto stream = request.stream;
    unfinished_.emplace(bench_.Add(std::move(request)), Followed{.stream = stream});
  }

  // Each sequence goes on where it stopped, or from the start when it was preempted.
  void CheckProgress(const StepPlan& plan) {
    std::set<Sequence*> seen;
    for (const Chunk& chunk : plan.chunks) {
      Sequence* const sequence = chunk.sequence;
      ASSERT_TRUE(unfinished_.contains(sequence));
      ASSERT_TRUE(seen.insert(sequence).second);
      Followed& followed = unfinished_[sequence];
      if (sequence->preemptions() != followed.preemptions) followed.computed = 0;
      followed.preemptions = sequence->preemptions();
      ASSERT_GE(chunk.num_tokens, 1);
      ASSERT_EQ(chunk.first_position, followed.computed);
      followed.computed += chunk.num_tokens;
      ASSERT_LE(followed.computed, sequence->target());
      ASSERT_GE(static_cast<int64_t>(sequence->blocks().size()) * kBlockTokens, followed.computed);
      ASSERT_EQ(chunk.num_rows, sequence->RowsWanted(chunk.num_tokens));
      if (sequence->delivers_rows()) {
        ASSERT_LE(chunk.num_rows, sequence->stream().RoomForRows());
      }
    }
  }

  // Only where what is computed of a prompt ends do sequences part: nobody writes a block that
  // another one uses, and every block counts its users.
  void CheckBlocks() {
    std::map<BlockId, int64_t> users;
    for (const auto& [sequence, followed] : unfinished_) {
      for (const BlockId block : sequence->blocks()) ++users[block];
    }
    ASSERT_EQ(static_cast<int64_t>(users.size()), bench_.pool.used_blocks());
    for (const auto& [sequence, followed] : unfinished_) {
      const auto blocks = sequence->blocks();
      const size_t next = static_cast<size_t>(sequence->computed() / kBlockTokens);
      for (size_t i = next; i < blocks.size(); ++i) ASSERT_EQ(users[blocks[i]], 1);
    }
  }

  // A score goes back to the prompt's end for its next continuation; nothing else goes back.
  void CheckResults(const StepPlan& plan) {
    for (const Chunk& chunk : plan.chunks) {
      if (!unfinished_.contains(chunk.sequence)) continue;
      Followed& followed = unfinished_[chunk.sequence];
      if (chunk.sequence->computed() == followed.computed) continue;
      ASSERT_TRUE(chunk.sequence->request().score.has_value());
      ASSERT_EQ(chunk.sequence->computed(), chunk.sequence->prompt_tokens());
      followed.computed = chunk.sequence->computed();
    }
  }

  void CarryOut(const StepPlan& plan) {
    const std::vector<Sequence*> all_ended = bench_.CarryOut(plan);
    for (Sequence* const branch : bench_.TakeNewBranches()) {
      unfinished_[branch] = {.stream = branch->request().stream, .computed = branch->computed()};
    }
    for (Sequence* const ended : all_ended) unfinished_.erase(ended);
  }

  void CheckLimits(const StepPlan& plan) {
    int64_t tokens = 0, prefill_tokens = 0, rows = 0;
    for (const Chunk& chunk : plan.chunks) {
      tokens += chunk.num_tokens;
      rows += chunk.num_rows;
      if (chunk.sequence->state() == SequenceState::kPrefilling) {
        prefill_tokens += chunk.num_tokens;
      }
    }
    ASSERT_LE(tokens, limits_.max_batch_tokens);
    ASSERT_LE(prefill_tokens, limits_.max_prefill_tokens);
    ASSERT_LE(rows, limits_.max_logits_rows);
    ASSERT_LE(bench_.scheduler.running(), limits_.max_running_sequences);
    results_planned_ += rows;
  }

  struct Followed {
    std::shared_ptr<TokenStream> stream;
    int64_t computed = 0;  // in the present run
    int64_t preemptions = 0;
  };

  std::mt19937 random_{static_cast<uint32_t>(GetParam())};
  const SchedulerLimits limits_{.max_batch_tokens = Between(1, 200),
                                .max_prefill_tokens = Between(1, 200),
                                .max_running_sequences = Between(1, 12),
                                .max_logits_rows = Between(1, 20)};
  SchedulerBench bench_{limits_, Between(6, 12)};
  std::map<Sequence*, Followed> unfinished_;
  int64_t results_wanted_ = 0;
  int64_t results_planned_ = 0;
};

TEST_P(SchedulerPropertyTest, EverySequenceEndsWithinAllLimits) {
  for (int i = 0; i < 20; ++i) AddOne();
  int64_t arrivals_left = 20;
  int64_t steps = 0;
  while (!unfinished_.empty() || arrivals_left > 0) {
    ASSERT_LT(++steps, 200000) << "no end in sight";
    if (arrivals_left > 0 && OneIn(8)) {
      AddOne();
      --arrivals_left;
    }
    const StepPlan plan = bench_.scheduler.Plan();
    ASSERT_NO_FATAL_FAILURE(CheckProgress(plan));
    ASSERT_NO_FATAL_FAILURE(CheckLimits(plan));
    CarryOut(plan);
    ASSERT_NO_FATAL_FAILURE(CheckResults(plan));
    ASSERT_NO_FATAL_FAILURE(CheckBlocks());
    ASSERT_LE(bench_.scheduler.running(), limits_.max_running_sequences);
    // Readers take at random, and all of them when nothing else could go on.
    for (const auto& [sequence, followed] : unfinished_) {
      if (plan.chunks.empty() || OneIn(4)) followed.stream->Take();
    }
  }
  EXPECT_EQ(results_planned_, results_wanted_);  // none was computed twice
  EXPECT_EQ(bench_.pool.used_blocks(), 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulerPropertyTest, ::testing::Range(0, 100));

}  // namespace
}  // namespace tlm
