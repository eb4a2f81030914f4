// Several outputs and scores from a real transformer: shared and copied blocks, continuations
// written over one another, and every schedule give what separate requests give, bit for bit.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "model/ops/cpu/cpu_ops.h"
#include "model/transformer_lm/transformer_lm.h"
#include "server/batching/engine_loop.h"
#include "server/batching/request_queue.h"
#include "tests/support/collecting_reader.h"
#include "tests/support/fake_clock.h"
#include "tests/support/random_model.h"
#include "tests/support/small_config.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using Collected = CollectingReader::Collected;

constexpr int64_t kContext = 256;

struct Schedule {
  int64_t blocks = 64;
  int64_t max_batch_tokens = 256;
  int64_t max_logits_rows = 32;
};

class EngineTransformerTest : public ::testing::TestWithParam<Schedule> {
 protected:
  // Computes the request on a fresh engine, behind others; what each of its outputs received.
  // `before`: computed to its end before, if given, so that its blocks are found.
  std::vector<Collected> Run(const Request& request, int64_t outputs, const Schedule& schedule,
                             int64_t others = 0, const Request* before = nullptr) {
    auto ops = CpuOps::Create(1);
    EXPECT_THAT(ops, IsOk());
    const EngineOptions options{.max_batch_tokens = schedule.max_batch_tokens,
                                .max_prefill_tokens = schedule.max_batch_tokens,
                                .max_running_requests = 8};
    auto model = TransformerLM::Load(random_.config(), random_.weights(), **ops,
                                     {.max_tokens = options.max_batch_tokens,
                                      .max_sequences = options.max_running_requests,
                                      .max_logits_rows = schedule.max_logits_rows,
                                      .max_context = kContext},
                                     {.num_blocks = schedule.blocks});
    EXPECT_THAT(model, IsOk());
    FakeClock clock;
    auto queue = std::make_shared<RequestQueue>(QueueLoad{100, 100000});
    EngineLoop loop(**model, options, clock, queue);
    if (before != nullptr) {
      Request earlier = *before;
      earlier.stream = UnreadStream();
      EXPECT_THAT(queue->Push(std::move(earlier), clock.Now()), IsOk());
      while (loop.Step()) {
      }
      ++others;
    }
    for (int64_t i = before != nullptr ? 1 : 0; i < others; ++i) {
      Request other = GenerateRequest(Prompt(60, 77 + static_cast<uint32_t>(i)), 150);
      EXPECT_THAT(queue->Push(std::move(other), clock.Now()), IsOk());
    }
    std::vector<std::shared_ptr<CollectingReader>> readers;
    for (int64_t i = 0; i < outputs; ++i) readers.push_back(CollectingReader::Create(kContext));
    Request copy = request;
    copy.stream = readers[0]->stream();
    for (int64_t i = 1; i < outputs; ++i) copy.branch_streams.push_back(readers[i]->stream());
    EXPECT_THAT(queue->Push(std::move(copy), clock.Now()), IsOk());
    while (loop.TakeReport().stats.finished_requests <= others && loop.Step()) {
    }
    preemptions_ += loop.TakeReport().stats.preemptions;
    EXPECT_EQ(loop.TakeReport().stats.kv_blocks_used, 0);
    std::vector<Collected> collected;
    for (const auto& reader : readers) {
      reader->TakeNow();
      collected.push_back(reader->collected());
      EXPECT_EQ(collected.back().ends.size(), 1);
      EXPECT_THAT(collected.back().ends.at(0).status, IsOk());
    }
    return collected;
  }

  const RandomModel random_{SmallConfig("llama"), DType::kF32, 5};
  int64_t preemptions_ = 0;
};

TEST_P(EngineTransformerTest, OutputsAreThoseOfSeparateRequests) {
  for (const int64_t prompt : {70, 128}) {
    Request request = GenerateRequest(Prompt(prompt), 60);
    request.generate()->sampling.temperature = 1.5f;
    request.generate()->sampling.seed = 3;
    request.generate()->sampling.repetition_penalty = 1.1f;
    request.generate()->output_index = 2;
    request.generate()->score.logprob = true;
    const std::vector<Collected> together = Run(request, 4, GetParam(), /*others=*/2);
    for (uint32_t i = 0; i < 4; ++i) {
      const Collected alone = Run(OnlyOutput(request, i), 1, Schedule())[0];
      ExpectScores(together[i].tokens, alone.tokens);
    }
    for (uint32_t i = 1; i < 4; ++i) {
      EXPECT_NE(together[0].token_ids(), together[i].token_ids());
    }
  }
  EXPECT_EQ(preemptions_ > 0, GetParam().blocks < 10);
}

TEST_P(EngineTransformerTest, BlocksThatAreFoundGiveTheSameBits) {
  Request request = GenerateRequest(Prompt(150), 60);
  request.generate()->sampling.temperature = 1.5f;
  request.generate()->score = {.logprob = true, .top = 5};
  const Request before = GenerateRequest(Prompt(200), 1);  // begins alike
  for (const int64_t outputs : {1, 3}) {
    const std::vector<Collected> found = Run(request, outputs, GetParam(), 0, &before);
    const std::vector<Collected> computed = Run(request, outputs, Schedule());
    EXPECT_EQ(found[0].starts[0].cached_prompt_tokens, 128);
    EXPECT_EQ(computed[0].starts[0].cached_prompt_tokens, 0);
    for (size_t i = 0; i < found.size(); ++i) {
      ExpectScores(found[i].tokens, computed[i].tokens);
    }
  }
  const std::vector<int64_t> positions = {130, 140, 149};
  const Request forward = ForwardRequest(request.prompt, positions, nullptr);
  const Collected found = Run(forward, 1, GetParam(), 0, &before)[0];
  const Collected computed = Run(forward, 1, Schedule())[0];
  EXPECT_EQ(found.starts[0].cached_prompt_tokens, 128);
  for (size_t i = 0; i < positions.size(); ++i) {
    EXPECT_EQ(found.rows[i].logits, computed.rows[i].logits);
  }
}

// Of tokens[first] and all behind it.
std::vector<SampledToken> ScoresOfRows(const std::vector<LogitsRow>& rows,
                                       const std::vector<int32_t>& tokens, size_t first) {
  Sampler sampler;
  std::vector<SampledToken> scores;
  for (size_t i = first; i < tokens.size(); ++i) {
    const auto token = sampler.ScoreGiven(rows[i - 1].logits, tokens[i], 3);
    EXPECT_THAT(token, IsOk());
    scores.push_back(*token);
  }
  return scores;
}

TEST_P(EngineTransformerTest, ContinuationsAreScoredByTheRowsThatForwardGives) {
  Request request = ScoreRequestFor(Prompt(70), {20, 1, 100, 2, 60});
  request.score()->top = 3;
  const Collected collected = Run(request, 1, GetParam(), /*others=*/2)[0];
  for (size_t i = 0; i < request.score()->continuations.size(); ++i) {
    std::vector<int32_t> tokens = request.prompt;
    const std::vector<int32_t>& ids = request.score()->continuations[i];
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    const Request forward =
        ForwardRequest(tokens, AllPositions(static_cast<int64_t>(tokens.size())), nullptr);
    const Collected rows = Run(forward, 1, Schedule())[0];
    ExpectScores(EntriesOf(collected.scored, static_cast<int64_t>(i)),
                 ScoresOfRows(rows.rows, tokens, request.prompt.size()));
  }
}

TEST_P(EngineTransformerTest, PromptTokensAreScoredByTheRowsThatForwardGives) {
  Request request = GenerateRequest(Prompt(150), 5);
  request.generate()->score_prompt = true;
  request.generate()->score.top = 3;
  const Collected collected = Run(request, 2, GetParam(), /*others=*/2)[0];
  const Collected rows = Run(ForwardRequest(request.prompt, AllPositions(150), nullptr), 1, {})[0];
  std::vector<SampledToken> scored;
  for (const ScoredEntry& entry : collected.scored) scored.push_back(entry.token);
  ExpectScores(scored, ScoresOfRows(rows.rows, request.prompt, 1));
}

INSTANTIATE_TEST_SUITE_P(Schedules, EngineTransformerTest,
                         ::testing::Values(Schedule{},
                                           Schedule{.max_batch_tokens = 37, .max_logits_rows = 5},
                                           Schedule{.blocks = 7, .max_batch_tokens = 50}),
                         [](const auto& info) {
                           return info.index == 0   ? "Wide"
                                  : info.index == 1 ? "SmallChunks"
                                                    : "FewBlocks";
                         });

}  // namespace
}  // namespace tlm
