// Outputs that a constraint limits: their ends, and tokens that need no draw.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

constexpr int32_t kEos = ScriptedModel::kVocabSize - 1;

// Masks are always in time, and runs are found before the next step.
LoopSetup Patient() {
  return SetupWith(&EngineOptions::max_mask_wait, absl::Seconds(100))
      .With(&EngineOptions::max_run_wait, 1e9);
}

Request Constrained(std::vector<std::string> choices, std::vector<int32_t> end_ids = {kEos}) {
  Request request = GenerateRequest(Prompt(20), 100);
  request.generate()->sampling.temperature = 1.0f;
  request.generate()->stop.ending_ids = EndingIds(end_ids);
  request.generate()->constraint = ChoicesConstraint(std::move(choices), std::move(end_ids));
  return request;
}

struct Ran {
  std::vector<int32_t> ids;
  StreamEnd end;
  int64_t launches = 0;
};

Ran RunAlone(const Request& request, const LoopSetup& setup = Patient()) {
  LoopBench bench(setup);
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Milliseconds(5)); });
  const auto reader = bench.Submit(request);
  while (bench.ended == 0) {
    if (!bench.Step()) bench.queue->WaitForWork(absl::Milliseconds(1));
  }
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  return {reader->collected().token_ids(), OnlyEnd(*reader), bench.model.launches()};
}

std::string TextOf(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += ScriptedTokens()->Text(id);
  return text;
}

TEST(EngineLoopConstraintsTest, AnEndTokenEndsAWholeText) {
  const Ran ran = RunAlone(Constrained({"knot"}));
  ASSERT_TRUE(ran.end.status.ok()) << ran.end.status;
  EXPECT_EQ(ran.end.reason, FinishReason::kEos);
  EXPECT_EQ(ran.end.matched_token, kEos);
  EXPECT_EQ(TextOf(ran.ids), "knot");
  EXPECT_EQ(ran.ids.back(), kEos);
}

TEST(EngineLoopConstraintsTest, AWholeTextThatNoEndTokenMayFollowIsComplete) {
  Request early = Constrained({"knot"});
  early.generate()->stop.min_new_tokens = 30;
  Request banned = Constrained({"knot"});
  banned.generate()->sampling.banned_token_ids = {kEos};
  for (const Request& request : {Constrained({"knot"}, {}), early, banned}) {
    const Ran ran = RunAlone(request);
    ASSERT_TRUE(ran.end.status.ok()) << ran.end.status;
    EXPECT_EQ(ran.end.reason, FinishReason::kConstraintComplete);
    EXPECT_EQ(TextOf(ran.ids), "knot");
  }
}

TEST(EngineLoopConstraintsTest, WhereNothingMayFollowTheOutputEnds) {
  for (const bool scored : {false, true}) {
    Request request = Constrained({"know", "knot"});
    request.generate()->sampling.banned_token_ids = {'o' - 'a'};
    request.generate()->score.logprob = scored;
    const Ran ran = RunAlone(request);
    ASSERT_TRUE(ran.end.status.ok()) << ran.end.status;
    EXPECT_EQ(ran.end.reason, FinishReason::kConstraint);
    EXPECT_EQ(TextOf(ran.ids), "kn");
  }
}

TEST(EngineLoopConstraintsTest, NoTokenMayFollowAtAll) {
  Request request = Constrained({"know"});
  request.generate()->sampling.allowed_token_ids = {0, 1};
  request.branch_streams = {UnreadStream(), UnreadStream()};
  const auto second = request.branch_streams[0];
  const Ran ran = RunAlone(request);
  EXPECT_EQ(ran.end.reason, FinishReason::kConstraint);
  EXPECT_TRUE(ran.ids.empty());
  EXPECT_EQ(second->Take().end->reason, FinishReason::kConstraint);
}

TEST(EngineLoopConstraintsTest, ForcedRunsAreTheDrawnOnesInFewerSteps) {
  const std::vector<std::string> choices = {"prstuvwxyzqlmnopk", "prstvvvvvvvvvvvvvvva",
                                            "prstvvvvvvvvvvvvvvvlllllllll"};
  Request drawn = Constrained(choices);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    drawn.generate()->sampling.seed = seed;
    drawn.generate()->score.logprob = true;
    const Ran with_draws = RunAlone(drawn);
    Request request = drawn;
    request.generate()->score.logprob = false;
    const Ran forced = RunAlone(request);
    EXPECT_EQ(forced.ids, with_draws.ids);
    EXPECT_EQ(forced.end.reason, with_draws.end.reason);
    EXPECT_EQ(with_draws.launches, static_cast<int64_t>(with_draws.ids.size()));
    EXPECT_EQ(with_draws.end.forced_tokens, 0);
    // Each launch gives a token; behind the last one the end follows, at least.
    EXPECT_EQ(forced.end.forced_tokens, static_cast<int64_t>(forced.ids.size()) - forced.launches);
    EXPECT_GE(forced.end.uncomputed_tokens, 1);
    // The first token, the one behind "rst", and perhaps the end behind the shorter text.
    EXPECT_LE(forced.launches, 4);
    const LoopSetup hasty = Patient()
                                .With(&EngineOptions::max_run_wait, 0)
                                .With(&EngineOptions::max_mask_wait, absl::ZeroDuration());
    EXPECT_EQ(RunAlone(request, hasty).ids, with_draws.ids);
  }
}

TEST(EngineLoopConstraintsTest, RunsStopAtLengthsAndStopTokens) {
  Request request = Constrained({"prstuvwxyzqlmnopk"});
  request.generate()->stop.max_new_tokens = 5;
  Ran ran = RunAlone(request);
  EXPECT_EQ(ran.end.reason, FinishReason::kLength);
  EXPECT_EQ(TextOf(ran.ids), "prstu");
  request.generate()->stop.max_new_tokens = 100;
  request.generate()->stop.ending_ids = EndingIds({kEos}, {'w' - 'a'});
  ran = RunAlone(request);
  EXPECT_EQ(ran.end.reason, FinishReason::kStopToken);
  EXPECT_EQ(ran.end.matched_token, 'w' - 'a');
  EXPECT_EQ(TextOf(ran.ids), "prstuvw");
  LoopSetup short_context = Patient();
  short_context.max_context = 24;
  ran = RunAlone(Constrained({"prstuvwxyzqlmnopk"}), short_context);
  EXPECT_EQ(ran.end.reason, FinishReason::kContextLength);
  EXPECT_EQ(TextOf(ran.ids), "prst");
}

}  // namespace
}  // namespace tlm
