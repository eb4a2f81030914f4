#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/ops/ops.h"
#include "server/batching/scheduler.h"
#include "tests/unit/server/batching/requests.h"
#include "tests/unit/server/batching/scheduler_bench.h"

namespace tlm {
namespace {

constexpr int64_t kLongest = 6 * kBlockTokens;

// Random work of several tenants on a pool that holds little more than the longest sequence, with
// and without a prefix cache, with slow readers, cancelled requests and plans made one step ahead.
class SchedulerPropertyTest : public ::testing::TestWithParam<int> {
 protected:
  // A request and how many rows its sequence is to have.
  struct Work {
    Request request;
    int64_t rows = 0;
    int64_t branch_rows = 0;  // of each further output
  };

  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(uint32_t n) { return random_() % n == 0; }
  SchedulerLimits AnyLimits() {
    SchedulerLimits limits;
    limits.max_batch_tokens = Between(1, 200);
    limits.max_prefill_tokens = Between(1, 200);
    limits.max_running_requests = Between(1, 12);
    limits.max_logits_rows = Between(1, 20);
    limits.short_prompt_tokens = OneIn(2) ? 0 : Between(1, 100);
    return limits;
  }
  // Prompts begin alike.
  std::vector<int32_t> RandomPrompt(int64_t tokens) {
    return Prompt(tokens, static_cast<uint32_t>(Between(0, 2)));
  }
  std::shared_ptr<TokenStream> RandomStream() {
    return UnreadStream(OneIn(2) ? TokenStream::kUnbounded : Between(1, 30));
  }

  Work RandomForward() {
    const int64_t prompt = Between(1, kLongest);
    std::vector<int64_t> positions;
    const int64_t first = OneIn(2) ? 0 : Between(0, prompt - 1);
    for (int64_t i = first; i < prompt; ++i) {
      if (OneIn(2) || i == prompt - 1) positions.push_back(i);
    }
    const int64_t rows = static_cast<int64_t>(positions.size());
    return {ForwardRequest(RandomPrompt(prompt), positions, RandomStream()), rows};
  }

  Work RandomScore() {
    const int64_t prompt = Between(1, kLongest - 1);
    std::vector<int64_t> lengths;
    int64_t rows = 1;  // for the first tokens of all
    for (int64_t i = Between(1, 5); i > 0; --i) {
      lengths.push_back(OneIn(3) ? 1 : Between(1, kLongest - prompt));
      rows += lengths.back() - 1;
    }
    return {ScoreRequestFor(RandomPrompt(prompt), lengths), rows};
  }

  Work RandomGenerate() {
    const int64_t prompt = OneIn(3) ? kBlockTokens * Between(1, 5) : Between(1, kLongest - 1);
    const int64_t generated = Between(1, kLongest - prompt);
    Work work{GenerateRequest(RandomPrompt(prompt), generated, RandomStream()), generated,
              generated - 1};
    if (OneIn(2)) return work;
    for (int64_t i = Between(0, 5); i > 0; --i) {
      work.request.branch_streams.push_back(RandomStream());
    }
    work.request.generate()->score_prompt = OneIn(2);
    if (work.request.generate()->score_prompt) work.rows += prompt - 1;
    return work;
  }

  void AddOne() {
    Work work = OneIn(4) ? RandomForward() : OneIn(4) ? RandomScore() : RandomGenerate();
    work.request.priority = static_cast<int32_t>(Between(0, 2));
    work.request.tenant = std::string(1, static_cast<char>('a' + Between(0, 2)));
    work.request.cache.bypass = OneIn(8);
    if (OneIn(3)) {
      work.request.deadline = absl::UnixEpoch() + absl::Seconds(Between(1, 10));
    }
    Sequence* const added = bench_.Add(std::move(work.request));
    followed_[added].rows_left = work.rows;
    followed_[added].branch_rows = work.branch_rows;
  }

  void CancelOne() {
    auto cancelled = followed_.begin();
    std::advance(cancelled, Between(0, static_cast<int64_t>(followed_.size()) - 1));
    bench_.End(*cancelled->first);
    followed_.erase(cancelled);
  }

  // The oldest of the highest priority that runs and is not parked, if it is a decode.
  Sequence* SeniorDecode() const {
    const auto rank = [](const Sequence* sequence) {
      return std::pair(-sequence->request().priority, sequence->number());
    };
    Sequence* senior = nullptr;
    for (const auto& [sequence, followed] : followed_) {
      if (sequence->state() == SequenceState::kWaiting) continue;
      const bool wants_room = sequence->remaining() > 0 && sequence->RowsWanted(1) > 0;
      if (wants_room && sequence->Room() <= 0) continue;
      if (senior == nullptr || rank(sequence) < rank(senior)) senior = sequence;
    }
    const bool decodes = senior != nullptr && senior->state() == SequenceState::kDecoding;
    return decodes ? senior : nullptr;
  }

  StepPlan MakePlan() {
    Sequence* const senior = SeniorDecode();
    StepPlan plan = bench_.scheduler.Plan(OneIn(2) ? kLongest : Between(0, 50));
    const auto among = [&](const Sequence* sequence) {
      return std::any_of(plan.chunks.begin(), plan.chunks.end(),
                         [&](const Chunk& chunk) { return chunk.sequence == sequence; });
    };
    // It yields to nothing but others of at least its priority, which then run.
    const bool others_run = std::ranges::any_of(followed_, [&](const auto& entry) {
      const Sequence& other = *entry.first;
      return senior != nullptr && &other != senior &&
             other.request().priority >= senior->request().priority &&
             other.state() != SequenceState::kWaiting;
    });
    EXPECT_TRUE(senior == nullptr || among(senior) || others_run)
        << "the most senior one is held up";
    return plan;
  }

  void CheckPlan(const StepPlan& plan) {
    int64_t decodes = 0, prefill_tokens = 0, long_prompt_tokens = 0, rows = 0;
    std::set<Sequence*> seen;
    for (const Chunk& chunk : plan.chunks) {
      ASSERT_TRUE(followed_.contains(chunk.sequence));
      ASSERT_TRUE(seen.insert(chunk.sequence).second);
      ASSERT_NO_FATAL_FAILURE(CheckChunk(chunk));
      (chunk.decode ? decodes : prefill_tokens) += chunk.num_tokens;
      if (chunk.long_prompt) long_prompt_tokens += chunk.num_tokens;
      rows += chunk.num_rows;
    }
    ASSERT_EQ(decodes, plan.decodes);
    ASSERT_EQ(prefill_tokens, plan.prefill_tokens);
    ASSERT_EQ(rows, plan.rows);
    ASSERT_LE(decodes + prefill_tokens, limits_.max_batch_tokens);
    ASSERT_LE(prefill_tokens, limits_.max_prefill_tokens);
    ASSERT_EQ(long_prompt_tokens, plan.long_prompt_tokens);
    ASSERT_LE(long_prompt_tokens, plan.max_long_prompt_tokens);
    ASSERT_LE(rows, limits_.max_logits_rows);
    ASSERT_LE(bench_.scheduler.running(), limits_.max_running_requests);
  }

  // Goes on where it stopped, or where it was preempted and begins anew: behind what is cached.
  void CheckChunk(const Chunk& chunk) {
    const Sequence& sequence = *chunk.sequence;
    Followed& followed = followed_[chunk.sequence];
    const bool anew =
        !followed.computed.has_value() || followed.preemptions != sequence.preemptions();
    if (anew) {
      ASSERT_EQ(chunk.first_position % kBlockTokens, 0);
      if (bench_.cache == nullptr || sequence.request().cache.bypass) {
        ASSERT_EQ(chunk.first_position, 0);
      }
    } else if (sequence.request().score() != nullptr) {
      ASSERT_TRUE(chunk.first_position == followed.computed ||
                  chunk.first_position == sequence.prompt_tokens());
    } else {
      ASSERT_EQ(chunk.first_position, followed.computed);
    }
    ASSERT_EQ(chunk.first_position, sequence.computed());
    ASSERT_GE(chunk.num_tokens, 1);
    ASSERT_LE(chunk.num_tokens, sequence.remaining());
    ASSERT_LE(chunk.num_rows, sequence.Room());
    ASSERT_EQ(chunk.num_rows, sequence.RowsWanted(chunk.num_tokens));
    const int64_t end = chunk.first_position + chunk.num_tokens;
    ASSERT_GE(static_cast<int64_t>(sequence.blocks().size()) * kBlockTokens, end);
    ASSERT_TRUE(chunk.num_tokens == 1 || !chunk.decode);
  }

  void Launch(const StepPlan& plan) {
    bench_.Launch(plan);
    for (const Chunk& chunk : plan.chunks) {
      Followed& followed = followed_[chunk.sequence];
      followed.computed = chunk.first_position + chunk.num_tokens;
      followed.preemptions = chunk.sequence->preemptions();
      followed.rows_left -= chunk.num_rows;
    }
  }

  void TakeResults(const StepPlan& plan) {
    const std::vector<Sequence*> all_ended = bench_.TakeResults(plan);
    for (Sequence* const branch : bench_.TakeNewBranches()) {
      Followed& followed = followed_[branch];
      if (branch->computed() > 0) followed.computed = branch->computed();
      const auto parent = std::find_if(followed_.begin(), followed_.end(), [&](const auto& entry) {
        return entry.first->number() == branch->request_number();
      });
      followed.rows_left = parent->second.branch_rows;
    }
    for (Sequence* const ended : all_ended) {
      EXPECT_EQ(followed_[ended].rows_left, 0);  // none was skipped or computed twice
      followed_.erase(ended);
    }
  }

  // Every block counts its users, and no sequence is going to write a block that another one uses.
  void CheckBlocks() {
    std::map<BlockId, int64_t> users;
    for (const auto& [sequence, followed] : followed_) {
      for (const BlockId block : sequence->blocks()) ++users[block];
    }
    ASSERT_EQ(static_cast<int64_t>(users.size()), bench_.pool.used_blocks());
    for (const auto& [block, count] : users) ASSERT_EQ(count, bench_.pool.users(block));
    for (const auto& [sequence, followed] : followed_) {
      const auto blocks = sequence->blocks();
      const size_t next = static_cast<size_t>(sequence->computed() / kBlockTokens);
      for (size_t i = next; i < blocks.size(); ++i) ASSERT_EQ(users[blocks[i]], 1);
    }
    ASSERT_EQ(static_cast<int64_t>(followed_.size()),
              bench_.scheduler.running() + bench_.scheduler.waiting());
    ASSERT_LE(bench_.scheduler.parked(), bench_.scheduler.running());
  }

  // One step; the next one is planned while it computes, or afterwards.
  void Step() {
    StepPlan plan = std::exchange(ahead_, {});
    if (plan.chunks.empty()) {
      plan = MakePlan();
    } else {
      bench_.scheduler.TopUp(plan);
    }
    ASSERT_NO_FATAL_FAILURE(CheckPlan(plan));
    Launch(plan);
    if (OneIn(4)) Disturb();
    if (plans_ahead_) ahead_ = MakePlan();
    if (OneIn(4)) Disturb();
    TakeResults(plan);
    ASSERT_NO_FATAL_FAILURE(CheckBlocks());
    // Readers take at random, and all of them when nothing else could go on.
    for (const auto& [sequence, followed] : followed_) {
      if (plan.chunks.empty() || OneIn(4)) sequence->stream().Take();
    }
  }

  void Disturb() {
    if (arrivals_left_ > 0 && OneIn(2)) {
      AddOne();
      --arrivals_left_;
    } else if (!followed_.empty() && OneIn(20)) {
      CancelOne();
    }
  }

  // Not by address: the same seed is to give the same run.
  struct ByNumber {
    bool operator()(const Sequence* a, const Sequence* b) const {
      return a->number() < b->number();
    }
  };
  struct Followed {
    int64_t rows_left = 0;
    int64_t branch_rows = 0;
    std::optional<int64_t> computed;  // in the present run
    int64_t preemptions = 0;
  };

  std::mt19937 random_{static_cast<uint32_t>(GetParam())};
  const bool plans_ahead_ = GetParam() % 2 == 0;
  const SchedulerLimits limits_ = AnyLimits();
  SchedulerBench bench_{limits_, Between(6, 12), /*with_cache=*/GetParam() % 4 < 2};
  std::map<Sequence*, Followed, ByNumber> followed_;  // all that have not ended
  StepPlan ahead_;
  int64_t arrivals_left_ = 20;
};

TEST_P(SchedulerPropertyTest, EverySequenceEndsWithinAllLimits) {
  for (int i = 0; i < 20; ++i) AddOne();
  for (int64_t steps = 0; !followed_.empty() || arrivals_left_ > 0; ++steps) {
    ASSERT_LT(steps, 200000) << "no end in sight";
    ASSERT_NO_FATAL_FAILURE(Step());
  }
  EXPECT_EQ(bench_.pool.used_blocks(), 0);
  EXPECT_EQ(bench_.scheduler.running() + bench_.scheduler.waiting(), 0);
  EXPECT_EQ(bench_.scheduler.parked(), 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SchedulerPropertyTest, ::testing::Range(0, 100));

}  // namespace
}  // namespace tlm
