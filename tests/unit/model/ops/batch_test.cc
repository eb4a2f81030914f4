// Batches through a backend: jobs, results and their order.
#include <algorithm>
#include <cmath>
#include <limits>

#include "model/sampling/sampler.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

constexpr int64_t kVocab = 300;

class BatchTest : public OpsTest {
 protected:
  void SetUp() override {
    OpsTest::SetUp();
    if (ops_ == nullptr) return;
    Reserve({.vocab_size = kVocab,
             .num_heads = 2,
             .num_kv_heads = 1,
             .head_dim = 16,
             .gated_outputs = 0,
             .inputs = 64},
            {.max_tokens = 40, .max_sequences = 6, .max_logits_rows = 6, .max_context = 128});
  }

  // Sequences of one token, each with its logits.
  static Batch Decode(int64_t sequences) {
    std::vector<Piece> pieces;
    for (int64_t i = 0; i < sequences; ++i) {
      pieces.push_back({.begin = 5 + i, .tokens = 1, .blocks = {static_cast<int32_t>(i)}});
    }
    Batch batch = BatchOf(pieces);
    for (int64_t i = 0; i < sequences; ++i) batch.logits_rows.push_back(static_cast<int32_t>(i));
    return batch;
  }
  void AddJob(int32_t row, const SamplingParams& params, LogprobOptions score, Batch* batch) const {
    batch->jobs.push_back({.row = row,
                           .params = &params,
                           .history = &history_,
                           .key = {.output_index = 0, .position = 6 + static_cast<uint64_t>(row)},
                           .score = score});
  }
  // Runs a batch that only samples from these logits, [rows, kVocab].
  BatchResult SampleFrom(const Batch& batch, const std::vector<float>& logits) {
    Launch(batch, logits);
    auto result = ops_->AwaitBatch();
    EXPECT_THAT(result, IsOk());
    return *std::move(result);
  }
  void Launch(const Batch& batch, const std::vector<float>& logits) {
    logits_.push_back(UploadPadded(logits, kVocab, DType::kF32));
    const auto on_device = ops_->BeginBatch(batch);
    ASSERT_THAT(on_device, IsOk());
    const Rows rows = logits_.back().rows.First(on_device->rows);
    ASSERT_THAT(ops_->Sample(rows), IsOk());
    ASSERT_THAT(ops_->EndBatch(rows), IsOk());
  }

  TokenHistory history_;
  std::vector<DeviceRows> logits_;  // of batches under way
};

void ExpectSame(const SampledToken& actual, const SampledToken& expected) {
  EXPECT_EQ(actual.id, expected.id);
  ASSERT_EQ(actual.score.has_value(), expected.score.has_value());
  if (expected.score.has_value()) {
    EXPECT_EQ(actual.score->id, expected.score->id);
    EXPECT_EQ(actual.score->logprob, expected.score->logprob);
    EXPECT_EQ(actual.score->rank, expected.score->rank);
  }
  ASSERT_EQ(actual.top.size(), expected.top.size());
  for (size_t i = 0; i < actual.top.size(); ++i) {
    EXPECT_EQ(actual.top[i].id, expected.top[i].id);
    EXPECT_EQ(actual.top[i].logprob, expected.top[i].logprob);
    EXPECT_EQ(actual.top[i].rank, expected.top[i].rank);
  }
}

// Every job's result against Sampler's, from the same logits.
void ExpectSamplersTokens(const BatchResult& result, const Batch& batch,
                          const std::vector<float>& logits) {
  ASSERT_EQ(result.tokens.size(), batch.jobs.size());
  Sampler sampler;
  for (size_t i = 0; i < batch.jobs.size(); ++i) {
    const SamplingJob& job = batch.jobs[i];
    TokenHistory history = *job.history;
    for (const int32_t id : job.draft) history.AddOutput(id);
    const auto expected = sampler.Sample({logits.data() + job.row * kVocab, kVocab}, *job.params,
                                         history, job.key, job.score);
    ASSERT_THAT(expected, IsOk());
    ASSERT_THAT(result.tokens[i], IsOk());
    ExpectSame(*result.tokens[i], *expected);
  }
}

TEST_P(BatchTest, TokensAreThoseOfTheSampler) {
  const std::vector<float> logits = RandomFloats(5 * kVocab, 1, 3.0f);
  const std::vector<int32_t> seen = {3, 17, 290};
  history_.AddPrompt(seen);
  history_.AddOutput(17);
  const SamplingParams params[] = {
      {.temperature = 0.0f},
      {.seed = 7},
      {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f, .min_p = 0.01f, .seed = 8},
      {.repetition_penalty = 1.3f, .presence_penalty = 0.5f, .frequency_penalty = 0.2f, .seed = 9},
      {.seed = 10, .logit_bias = {{4, 2.5f}}, .banned_token_ids = {1, 2}}};
  Batch batch = Decode(5);
  for (int32_t row = 0; row < 5; ++row) {
    AddJob(row, params[row], {.logprob = row % 2 == 0, .top = row == 2 ? 3u : 0u}, &batch);
  }
  const BatchResult result = SampleFrom(batch, logits);
  EXPECT_TRUE(result.logits.empty());
  ExpectSamplersTokens(result, batch, logits);
}

TEST_P(BatchTest, AFailedJobFailsItsOwnSequenceOnly) {
  std::vector<float> logits = RandomFloats(3 * kVocab, 2);
  logits[kVocab + 40] = std::numeric_limits<float>::quiet_NaN();
  const SamplingParams greedy{.temperature = 0.0f};
  Batch batch = Decode(3);
  for (int32_t row = 0; row < 3; ++row) AddJob(row, greedy, {}, &batch);
  const BatchResult result = SampleFrom(batch, logits);
  ASSERT_EQ(result.tokens.size(), 3u);
  EXPECT_THAT(result.tokens[0], IsOk());
  EXPECT_THAT(result.tokens[1], IsDataLoss("40"));
  EXPECT_THAT(result.tokens[2], IsOk());
}

TEST_P(BatchTest, RowsForTheHostComeBackAsTheyAre) {
  const std::vector<float> logits = RandomFloats(4 * kVocab, 3);
  const SamplingParams biased{.temperature = 0.0f, .logit_bias = {{7, 100.0f}}};
  Batch batch = Decode(4);
  batch.host_rows = {1, 3};
  AddJob(1, biased, {}, &batch);
  const BatchResult result = SampleFrom(batch, logits);
  ASSERT_THAT(result.tokens.at(0), IsOk());
  EXPECT_EQ(result.tokens[0]->id, 7);
  ASSERT_EQ(result.logits.size(), 2u * kVocab);
  EXPECT_TRUE(
      std::equal(result.logits.begin(), result.logits.begin() + kVocab, logits.begin() + kVocab));
  EXPECT_TRUE(
      std::equal(result.logits.begin() + kVocab, result.logits.end(), logits.begin() + 3 * kVocab));
}

TEST_P(BatchTest, MoreLikelyTokensThanADeviceTellsOfAreToldAllTheSame) {
  const std::vector<float> logits = RandomFloats(2 * kVocab, 4);
  const SamplingParams params{.seed = 3};
  Batch batch = Decode(2);
  AddJob(0, params, {}, &batch);
  AddJob(1, params, {.logprob = true, .top = 200}, &batch);
  batch.host_rows = {0};
  const BatchResult result = SampleFrom(batch, logits);
  ExpectSamplersTokens(result, batch, logits);
  ASSERT_EQ(result.logits.size(), static_cast<size_t>(kVocab));
  EXPECT_TRUE(std::equal(result.logits.begin(), result.logits.end(), logits.begin()));
}

TEST_P(BatchTest, ADraftIsPenalisedAsOutput) {
  const std::vector<float> logits = RandomFloats(6 * kVocab, 6);
  const SamplingParams params{
      .temperature = 0.0f, .repetition_penalty = 1.3f, .frequency_penalty = 0.5f};
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
  history_.AddPrompt(prompt);
  history_.AddOutput(4);
  std::vector<int32_t> draft;
  for (int32_t i = 0; i < 25; ++i) draft.push_back(i * i % 40);
  Batch batch = Decode(6);
  for (int32_t row = 0; row < 6; ++row) {
    // Every other one is more than a device tells of.
    const LogprobOptions score{
        .logprob = true, .top = row % 2 == 0 ? 20u : 200u, .processed = true};
    AddJob(row, params, score, &batch);
    batch.jobs.back().draft = std::span(draft).first(5 * row);
  }
  ExpectSamplersTokens(SampleFrom(batch, logits), batch, logits);
}

TEST_P(BatchTest, ABatchMayStandOnTokensThatAreNotKnownYet) {
  if (ops_->max_batches() < 2) return;
  const HostMatrix table(kVocab, 24, weights(), 5);
  const auto packed = Pack(table);
  const SamplingParams greedy{.temperature = 0.0f};
  std::vector<float> logits(3 * kVocab, 0.0f);
  const std::vector<int32_t> best = {299, 0, 41};
  for (size_t row = 0; row < 3; ++row) logits[row * kVocab + static_cast<size_t>(best[row])] = 1.0f;
  Batch first = Decode(3);
  for (int32_t row = 0; row < 3; ++row) AddJob(row, greedy, {}, &first);
  Batch second = Decode(3);
  second.token_ids = {PendingToken(2), 11, PendingToken(0)};
  for (int32_t row = 0; row < 3; ++row) AddJob(row, greedy, {}, &second);
  Launch(first, logits);
  const DeviceRows out = Poisoned(ops_->PaddedRows(3), 24, DType::kF32);
  const auto on_device = ops_->BeginBatch(second);
  ASSERT_THAT(on_device, IsOk());
  ASSERT_THAT(ops_->Embed(*packed, nullptr, *on_device, out.rows.First(on_device->layout.tokens)),
              IsOk());
  std::rotate(logits.begin(), logits.begin() + kVocab, logits.end());
  const DeviceRows more = UploadPadded(logits, kVocab, DType::kF32);
  ASSERT_THAT(ops_->Sample(more.rows.First(on_device->rows)), IsOk());
  ASSERT_THAT(ops_->EndBatch(more.rows.First(on_device->rows)), IsOk());

  for (const std::vector<int32_t>& ids : {best, std::vector<int32_t>{0, 41, 299}}) {
    const auto result = ops_->AwaitBatch();
    ASSERT_THAT(result, IsOk());
    for (size_t row = 0; row < 3; ++row) {
      ASSERT_THAT(result->tokens.at(row), IsOk());
      EXPECT_EQ(result->tokens[row]->id, ids[row]);
    }
  }
  const std::vector<float> embedded = Download(out, 3);
  const std::vector<int32_t> ids = {41, 11, 299};
  for (size_t t = 0; t < 3; ++t) {
    for (int64_t j = 0; j < 24; ++j) {
      ASSERT_EQ(embedded[t * 24 + static_cast<size_t>(j)], table.at(ids[t], j)) << t;
    }
  }
}

TEST_P(BatchTest, AJobForTheHostCountsATokenThatWasNotKnownYet) {
  if (ops_->max_batches() < 2) return;
  // The first batch samples 17; the second one, launched before that is known, penalises it. It
  // asks for more top tokens than the device reports.
  std::vector<float> logits(kVocab, 0.0f);
  logits[17] = 1.0f;
  const SamplingParams greedy{.temperature = 0.0f};
  const SamplingParams penalised{.temperature = 0.0f, .presence_penalty = 2.0f};
  Batch first = Decode(1);
  AddJob(0, greedy, {}, &first);
  Batch second = Decode(1);
  second.token_ids = {PendingToken(0)};
  const LogprobOptions processed{.logprob = true, .top = 200, .processed = true};
  AddJob(0, penalised, processed, &second);
  Launch(first, logits);
  Launch(second, logits);
  const auto sampled = ops_->AwaitBatch();
  ASSERT_THAT(sampled, IsOk());
  EXPECT_EQ(sampled->tokens.at(0)->id, 17);
  const auto result = ops_->AwaitBatch();
  ASSERT_THAT(result, IsOk());
  ASSERT_THAT(result->tokens.at(0), IsOk());
  TokenHistory history;
  history.AddOutput(17);
  const auto expected = Sampler().Sample(logits, penalised, history, second.jobs[0].key, processed);
  ASSERT_THAT(expected, IsOk());
  EXPECT_NE(expected->id, 17);
  ExpectSame(*result->tokens[0], *expected);
}

TEST_P(BatchTest, WhatIsReservedIsWhatWasForetold) {
  const ModelShape shape{.vocab_size = kVocab,
                         .num_heads = 4,
                         .num_kv_heads = 2,
                         .head_dim = 64,
                         .gated_outputs = 128,
                         .inputs = 300};
  const BatchLimits limits{
      .max_tokens = 200, .max_sequences = 20, .max_logits_rows = 30, .max_context = 1000};
  const auto total = [this] {
    size_t bytes = 0;
    for (const size_t part : ops_->device().AllocatedBytes()) bytes += part;
    return bytes;
  };
  const auto gated = Pack(HostMatrix(128, 32, weights(), 1), MatrixUse::kGated);
  ops_->Release();
  const size_t before = total();
  const size_t foretold = ops_->ReserveBytes(limits, shape, activations());
  Reserve(shape, limits);
  EXPECT_EQ(total() - before, foretold);
  ops_->Release();
  EXPECT_EQ(total(), before);
}

INSTANTIATE_TEST_SUITE_P(Backends, BatchTest, ::testing::ValuesIn(OpsCases()), OpsCaseName);

}  // namespace
}  // namespace tlm
