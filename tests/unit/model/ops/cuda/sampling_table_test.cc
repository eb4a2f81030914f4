#include "model/ops/cuda/batch/sampling_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "model/ops/cuda/kernels/sampling/sampling_record.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr int64_t kVocab = 100000;
constexpr BatchLimits kLimits = {
    .max_tokens = 4, .max_sequences = 4, .max_logits_rows = 4, .max_context = 4096};

std::vector<int32_t> FirstIds(int32_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// Packs one job of each of the given ones.
class SamplingTableTest : public ::testing::Test {
 protected:
  void Pack(const std::vector<SamplingJob>& jobs) {
    batch_.Clear();
    for (size_t i = 0; i < jobs.size(); ++i) {
      batch_.token_ids.push_back(5);
      batch_.logits_rows.push_back(static_cast<int32_t>(i));
    }
    batch_.jobs = jobs;
    bytes_.assign(MaxSamplingTableBytes(kLimits, kVocab).table, std::byte{0});
    table_.Pack(batch_, bytes_, &packed_);
  }
  SamplingTableHeader Header() const {
    SamplingTableHeader header;
    std::memcpy(&header, bytes_.data(), sizeof(header));
    return header;
  }
  SamplingRecord Record(size_t i) const {
    SamplingRecord record;
    std::memcpy(&record, bytes_.data() + sizeof(SamplingTableHeader) + i * sizeof(record),
                sizeof(record));
    return record;
  }
  static SamplingJob MakeJob(const SamplingParams& params, LogprobOptions score = {}) {
    static const TokenHistory no_history;
    return {.params = &params, .history = &no_history, .score = score};
  }

  Batch batch_;
  std::vector<std::byte> bytes_;
  SamplingTable table_{kVocab};
  PackedJobs packed_;
};

TEST_F(SamplingTableTest, AsksForNoMoreKernelsThanJobsNeed) {
  const SamplingParams greedy{.temperature = 0.0f, .top_k = 5};
  const SamplingParams plain;
  const SamplingParams truncated{.top_p = 0.5f};
  Pack({MakeJob(greedy)});
  EXPECT_FALSE(packed_.noise || packed_.finish);
  EXPECT_EQ(packed_.outcome_bytes, sizeof(SamplingOutcome));
  Pack({MakeJob(greedy), MakeJob(plain)});
  EXPECT_TRUE(packed_.noise && !packed_.finish);
  Pack({MakeJob(truncated)});
  EXPECT_TRUE(!packed_.noise && packed_.finish);
  Pack({MakeJob(greedy, {.logprob = true})});
  EXPECT_TRUE(!packed_.noise && packed_.finish);
  EXPECT_EQ(packed_.outcome_bytes, sizeof(SamplingOutcome));
  Pack({MakeJob(greedy, {.top = 1}), MakeJob(greedy)});
  EXPECT_EQ(packed_.outcome_bytes,
            2 * (sizeof(SamplingOutcome) + kMaxTopTokens * sizeof(TopToken)));
}

TEST_F(SamplingTableTest, SwapsTheArraysOfSampledTokensWithEveryBatch) {
  const SamplingParams params;
  Pack({MakeJob(params)});
  const uint32_t first = Header().parity;
  Pack({MakeJob(params)});
  EXPECT_EQ(Header().parity, 1 - first);
  Pack({MakeJob(params)});
  EXPECT_EQ(Header().parity, first);
}

TEST_F(SamplingTableTest, SendsFewRemovalsAsIdsAndManyAsBits) {
  SamplingParams params{.banned_token_ids = FirstIds(10)};
  Pack({MakeJob(params)});
  EXPECT_EQ(Record(0).banned.words, 10u);
  EXPECT_EQ(Record(0).removed.words, 0u);
  params.allowed_token_ids = FirstIds(65536);
  Pack({MakeJob(params)});
  EXPECT_EQ(Record(0).removed.words, kVocab / 32);
  EXPECT_EQ(Record(0).allowed.words + Record(0).banned.words, 0u);
  std::vector<uint32_t> words(packed_.table_bytes / 4);
  std::memcpy(words.data(), bytes_.data(), packed_.table_bytes);
  const uint32_t* removed = words.data() + Record(0).removed.begin;
  EXPECT_EQ(removed[0], 0x3ffu);
  EXPECT_EQ(removed[1], 0u);
  EXPECT_EQ(removed[65536 / 32], 0xffffffffu);
}

TEST_F(SamplingTableTest, JoinsBothKindsOfBannedIds) {
  const SamplingParams params{.banned_token_ids = {3, 9}};
  const std::vector<int32_t> ending = {2, 9};
  SamplingJob job = MakeJob(params);
  job.banned = ending;
  Pack({job});
  EXPECT_EQ(Record(0).banned.words, 3u);
  EXPECT_EQ(Record(0).adjusts, 1u);
}

TEST_F(SamplingTableTest, AsManyListsAsAJobMayHaveFit) {
  SamplingParams params{.repetition_penalty = 2.0f, .allowed_token_ids = FirstIds(65536)};
  std::vector<TokenHistory> histories(4);
  for (TokenHistory& history : histories) history.AddPrompt(FirstIds(4090));
  const std::vector<int32_t> draft = {0, 1, 5000, 0, 5001, 5000};
  const size_t free_words = 16384 - 2 * 4096 - kVocab / 32;
  for (size_t i = 0; i < free_words / 2; ++i) {
    params.logit_bias.emplace_back(static_cast<int32_t>(i), 1.0f);
  }
  SamplingJob job = MakeJob(params);
  job.draft = draft;
  std::vector<SamplingJob> jobs(4, job);
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].history = &histories[i];
  job = jobs[0];
  EXPECT_FALSE(NeedsHost(job, kVocab));
  Pack(jobs);
  EXPECT_TRUE(packed_.host.empty());
  EXPECT_EQ(Record(0).draft.words, 2u * 4);
  EXPECT_LE(packed_.table_bytes, MaxSamplingTableBytes(kLimits, kVocab).table);

  SamplingParams more = params;
  more.logit_bias.emplace_back(99999, 1.0f);
  SamplingJob too_much = job;
  too_much.params = &more;
  EXPECT_TRUE(NeedsHost(too_much, kVocab));
  Pack({job, too_much});
  EXPECT_EQ(packed_.host, std::vector<int32_t>{1});
  EXPECT_EQ(Record(1).kind, SamplingKind::kHost);
}

TEST_F(SamplingTableTest, TheHistoryBeforeADraftIsSentOnce) {
  const SamplingParams params{.presence_penalty = 1.0f};
  TokenHistory history;
  history.AddPrompt(FirstIds(1000));
  const std::vector<int32_t> draft = FirstIds(3);
  SamplingJob job = MakeJob(params);
  job.history = &history;
  Pack({job});
  const size_t one = packed_.table_bytes;
  EXPECT_EQ(Record(0).history.words, 2000u);
  EXPECT_EQ(Record(0).draft.words, 0u);
  std::vector<SamplingJob> jobs;
  for (size_t i = 0; i <= draft.size(); ++i) {
    jobs.push_back(job);
    jobs.back().draft = std::span(draft).first(i);
  }
  Pack(jobs);
  EXPECT_EQ(packed_.table_bytes, one + 3 * sizeof(SamplingRecord) + 4 * 2 * (1 + 2 + 3));
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(Record(i).history.begin, Record(0).history.begin);
    EXPECT_EQ(Record(i).draft.words, 2 * i);
  }
}

TEST_F(SamplingTableTest, HistoryIsNotSentWithoutPenalties) {
  const SamplingParams params;
  TokenHistory history;
  history.AddPrompt(FirstIds(50000));
  SamplingJob job = MakeJob(params);
  job.history = &history;
  const std::vector<int32_t> draft = FirstIds(50000);
  job.draft = draft;
  EXPECT_FALSE(NeedsHost(job, kVocab));
  Pack({job});
  EXPECT_EQ(Record(0).history.words + Record(0).draft.words, 0u);
  EXPECT_EQ(Record(0).adjusts, 0u);
}

TEST_F(SamplingTableTest, ErrorsAreTellableWhenWhatJobsPointedAtIsGone) {
  {
    const SamplingParams params{.allowed_token_ids = {1, 2}, .banned_token_ids = {1}};
    const std::vector<int32_t> ending = {2};
    SamplingJob job = MakeJob(params);
    job.banned = ending;
    Pack({job, job, job});
    for (SamplingJob& gone : batch_.jobs) gone = {.row = gone.row, .score = gone.score};
  }
  const std::vector<SamplingOutcome> outcomes = {
      {.status = SamplingStatus::kNoneLeft},
      {.status = SamplingStatus::kNotADistribution, .id = 7, .detail_bits = 0x7f800000},
      {.status = SamplingStatus::kAllExcluded}};
  const auto tokens = UnpackJobs(batch_, packed_, kVocab, std::as_bytes(std::span(outcomes)));
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_THAT(tokens[0], IsInvalidArgument("2 allowed, 1 banned and 1 ending"));
  EXPECT_THAT(tokens[1], IsDataLoss("token 7 is inf"));
  EXPECT_THAT(tokens[2], IsDataLoss("all 100000"));
}

}  // namespace
}  // namespace tlm
