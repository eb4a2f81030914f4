// The promise: the same request gives the same tokens and the same logits, bit for bit, whatever
// else the engine computes at the time and however it cuts the work up.
//
// Every logits row that any schedule computes is hashed and filed under the tokens before it. Two
// hashes under one entry, or a request whose results differ from those it has alone, break the
// promise. The last test shows that a backend which sums by batch size is caught.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <string>

#include "model/ops/cpu/cpu_ops.h"
#include "model/transformer_lm/transformer_lm.h"
#include "server/batching/engine.h"
#include "tests/support/batch_dependent_ops.h"
#include "tests/support/collecting_reader.h"
#include "tests/support/random_model.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr int64_t kContext = 256;

uint64_t Hash(const void* data, size_t bytes) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
  }
  return hash;
}

// Logits hash by token prefix, over all schedules; counts the entries seen with two hashes.
struct LogitsBook {
  std::map<std::vector<int32_t>, uint64_t> hashes;
  int64_t contradictions = 0;
  int64_t repeated = 0;
};

// Keeps the book of what passes through. It knows the tokens behind every row because it notes
// which token was written to which slot of the cache.
class RecordingModel : public LanguageModel {
 public:
  RecordingModel(TransformerLM& model, LogitsBook& book)
      : model_(model), book_(book), slots_(model.num_kv_blocks() * kBlockTokens) {}

  int64_t vocab_size() const override { return model_.vocab_size(); }
  const BatchLimits& limits() const override { return model_.limits(); }
  int64_t num_kv_blocks() const override { return model_.num_kv_blocks(); }

  absl::StatusOr<std::span<const float>> Forward(const Batch& batch) override {
    for (int64_t token = 0; token < batch.tokens(); ++token) {
      slots_[Slot(batch, token, batch.positions[token])] = batch.token_ids[token];
    }
    const auto logits = model_.Forward(batch);
    if (!logits.ok()) return logits;
    for (size_t row = 0; row < batch.logits_rows.size(); ++row) {
      const int32_t token = batch.logits_rows[row];
      std::vector<int32_t> prefix;
      for (int32_t position = 0; position <= batch.positions[token]; ++position) {
        prefix.push_back(slots_[Slot(batch, token, position)]);
      }
      const uint64_t hash = Hash(logits->data() + row * vocab_size(), vocab_size() * sizeof(float));
      const auto [entry, is_new] = book_.hashes.emplace(std::move(prefix), hash);
      if (!is_new) ++book_.repeated;
      if (entry->second != hash) ++book_.contradictions;
    }
    return logits;
  }

 private:
  static size_t Slot(const Batch& batch, int64_t token, int64_t position) {
    const int64_t block =
        batch.block_tables[batch.sequence_of[token] * batch.max_blocks + position / kBlockTokens];
    return static_cast<size_t>(block * kBlockTokens + position % kBlockTokens);
  }

  TransformerLM& model_;
  LogitsBook& book_;
  std::vector<int32_t> slots_;
};

std::vector<int32_t> RandomPrompt(std::mt19937_64& random, int64_t vocab) {
  // Short ones and ones that end around a tile's edge; some begin alike.
  static constexpr int64_t kLengths[] = {1, 2, 5, 17, 31, 63, 64, 65, 100, 127, 128, 129, 150};
  std::vector<int32_t> prompt(kLengths[random() % std::size(kLengths)]);
  std::mt19937_64 content(random() % 4);
  for (int32_t& id : prompt) id = static_cast<int32_t>(content() % vocab);
  if (random() % 2 == 0) prompt.back() = static_cast<int32_t>(random() % vocab);
  return prompt;
}

Request RandomRequest(std::mt19937_64& random, int64_t vocab, int number) {
  Request request;
  request.id = std::to_string(number);
  request.prompt = RandomPrompt(random, vocab);
  request.priority = static_cast<int32_t>(random() % 3);
  if (random() % 4 == 0) {
    request.forward.emplace();
    for (size_t i = 0; i < request.prompt.size(); ++i) {
      if (random() % 3 == 0 || i + 1 == request.prompt.size()) {
        request.forward->positions.push_back(static_cast<int64_t>(i));
      }
    }
    return request;
  }
  GenerateWork work;
  work.sampling.temperature = random() % 3 == 0 ? 0.0f : 0.9f;
  work.sampling.top_k = random() % 2 == 0 ? 0 : 20;
  work.sampling.top_p = random() % 2 == 0 ? 1.0f : 0.9f;
  work.sampling.seed = random() % 5;
  work.stop.max_new_tokens = 1 + static_cast<int64_t>(random() % 40);
  work.score = {.logprob = true, .top = 3};
  request.generate = work;
  return request;
}

// Everything a caller can see of a finished request, as bytes.
std::string Outcome(const CollectingReader::Collected& collected) {
  std::string bytes;
  const auto add = [&bytes](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (const SampledToken& token : collected.tokens) {
    add(token.id);
    if (token.score.has_value()) add(token.score->logprob);
    for (const ScoredToken& top : token.top) {
      add(top.id);
      add(top.logprob);
    }
  }
  for (const LogitsRow& row : collected.rows) {
    add(row.position);
    bytes.append(reinterpret_cast<const char*>(row.logits.data()), row.logits.size() * 4);
  }
  EXPECT_EQ(collected.ends.size(), 1u);
  if (!collected.ends.empty()) {
    EXPECT_THAT(collected.ends[0].status, IsOk());
    add(collected.ends[0].reason);
  }
  return bytes;
}

struct Schedule {
  int threads = 1;
  int64_t kv_blocks = 64;
  EngineOptions options;
};

Schedule RandomSchedule(std::mt19937_64& random) {
  Schedule schedule;
  schedule.threads = 1 + static_cast<int>(random() % 3);
  // Few blocks force preemption; one sequence alone always fits.
  schedule.kv_blocks = random() % 2 == 0 ? 4 + static_cast<int64_t>(random() % 6) : 64;
  schedule.options.max_batch_tokens = 8 + static_cast<int64_t>(random() % 300);
  schedule.options.max_prefill_tokens = 1 + static_cast<int64_t>(random() % 200);
  schedule.options.max_running_requests = 1 + static_cast<int64_t>(random() % 8);
  return schedule;
}

class DeterminismTest : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr int kRequests = 14;

  // What a set of requests gives under a schedule; cancelled ones give nothing.
  struct Run {
    std::vector<std::string> outcomes;
    int64_t preemptions = 0;
  };

  Run RunTogether(const Schedule& schedule, uint64_t request_seed, std::mt19937_64* shuffle,
                  bool batch_dependent = false) {
    auto cpu = CpuOps::Create(schedule.threads);
    EXPECT_THAT(cpu, IsOk());
    BatchDependentOps wrong(**cpu);
    Ops& ops = batch_dependent ? static_cast<Ops&>(wrong) : **cpu;
    const BatchLimits limits{.max_tokens = schedule.options.max_batch_tokens,
                             .max_sequences = schedule.options.max_running_requests,
                             .max_logits_rows = 16,
                             .max_context = kContext};
    auto model = TransformerLM::Load(random_.config(), random_.weights(), ops, limits,
                                     {.num_blocks = schedule.kv_blocks, .dtype = GetParam()});
    EXPECT_THAT(model, IsOk());
    RecordingModel recording(**model, book_);
    auto engine = Engine::Start(recording, schedule.options, *Clock::Real());
    EXPECT_THAT(engine, IsOk());

    std::vector<Request> requests;
    std::mt19937_64 random(request_seed);
    for (int i = 0; i < kRequests; ++i) {
      requests.push_back(RandomRequest(random, random_.config().vocab_size, i));
    }
    std::vector<int> order(kRequests);
    for (int i = 0; i < kRequests; ++i) order[i] = i;
    if (shuffle != nullptr) std::shuffle(order.begin(), order.end(), *shuffle);

    std::vector<std::shared_ptr<CollectingReader>> readers(kRequests);
    std::vector<bool> cancelled(kRequests, false);
    for (const int i : order) {
      readers[i] = CollectingReader::Create(1 + static_cast<int64_t>(i % 5));
      requests[i].stream = readers[i]->stream();
      EXPECT_THAT((*engine)->Submit(std::move(requests[i])), IsOk());
      // Alone means alone: nothing else until it is done.
      if (shuffle == nullptr) readers[i]->WaitForEnd();
      if (shuffle != nullptr && (*shuffle)() % 6 == 0) {
        cancelled[i] = true;
        readers[i]->stream()->Detach();
      }
    }
    Run run;
    for (int i = 0; i < kRequests; ++i) {
      const auto collected = readers[i]->WaitForEnd();
      run.outcomes.push_back(cancelled[i] ? "" : Outcome(collected));
    }
    EXPECT_TRUE((*engine)->WaitUntilIdle(absl::Seconds(30)));
    EXPECT_EQ((*engine)->Stats().kv_blocks_used, 0);
    run.preemptions = (*engine)->Stats().preemptions;
    return run;
  }

  const RandomModel random_{SmallConfig("qwen3"), GetParam(), 42};
  LogitsBook book_;
};

TEST_P(DeterminismTest, EveryScheduleGivesWhatEachRequestGivesAlone) {
  std::mt19937_64 random(7);
  int64_t preemptions = 0;
  int64_t compared = 0;
  for (uint64_t round = 0; round < 8; ++round) {
    const Run alone = RunTogether(Schedule(), round, nullptr);
    for (int repeat = 0; repeat < 6; ++repeat) {
      const Schedule schedule = RandomSchedule(random);
      const Run together = RunTogether(schedule, round, &random);
      preemptions += together.preemptions;
      for (int i = 0; i < kRequests; ++i) {
        if (together.outcomes[i].empty()) continue;
        ++compared;
        ASSERT_EQ(together.outcomes[i], alone.outcomes[i])
            << "round " << round << ", request " << i << ", " << schedule.threads << " threads, "
            << schedule.kv_blocks << " blocks, " << schedule.options.max_batch_tokens
            << " tokens a step";
      }
    }
  }
  EXPECT_EQ(book_.contradictions, 0);
  // The schedules did what they are there for.
  EXPECT_GT(preemptions, 10);
  EXPECT_GT(compared, 400);
  EXPECT_GT(book_.repeated, 1000);
}

TEST_P(DeterminismTest, ABackendThatSumsByBatchSizeIsCaught) {
  std::mt19937_64 random(7);
  const Run alone = RunTogether(Schedule(), 1, nullptr, /*batch_dependent=*/true);
  int64_t different = 0;
  for (int repeat = 0; repeat < 4; ++repeat) {
    const Run together = RunTogether(RandomSchedule(random), 1, &random, /*batch_dependent=*/true);
    for (int i = 0; i < kRequests; ++i) {
      if (!together.outcomes[i].empty() && together.outcomes[i] != alone.outcomes[i]) ++different;
    }
  }
  EXPECT_GT(different, 0);
  EXPECT_GT(book_.contradictions, 0);
}

INSTANTIATE_TEST_SUITE_P(Types, DeterminismTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return DTypeName(info.param); });

}  // namespace
}  // namespace tlm
