#include "model/ops/cuda/batch/sampling_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>

#include "model/base/errors.h"
#include "model/ops/cuda/kernels/sampling/sampling_record.h"
#include "model/sampling/adjust_logits.h"
#include "model/sampling/sampling_errors.h"
#include "model/sampling/sampling_math.h"

namespace tlm {
namespace {

constexpr size_t kMaxJobWords = 16384;
constexpr size_t kRecordWords = sizeof(SamplingRecord) / 4;
constexpr size_t kHeaderWords = sizeof(SamplingTableHeader) / 4;

size_t BitmapWords(int64_t vocab_size) { return (static_cast<size_t>(vocab_size) + 31) / 32; }

size_t RemovalWords(const SamplingJob& job, int64_t vocab_size) {
  if (job.mask != nullptr) return BitmapWords(vocab_size);
  const SamplingParams& params = *job.params;
  const size_t ids =
      params.allowed_token_ids.size() + params.banned_token_ids.size() + job.banned.size();
  return std::min(ids, BitmapWords(vocab_size));
}

size_t ListWords(const SamplingJob& job, int64_t vocab_size) {
  const SamplingParams& params = *job.params;
  const size_t lists = 2 * params.logit_bias.size() + RemovalWords(job, vocab_size);
  if (!params.has_penalties()) return lists;
  const size_t draft = std::min(job.draft.size(), static_cast<size_t>(vocab_size));
  return lists + 2 * (job.history->seen().size() + draft);
}

// Appends words to a table; `size` counts them.
class WordWriter {
 public:
  WordWriter(std::span<std::byte> table, size_t size) : table_(table), size_(size) {}

  void Put(uint32_t word) {
    TLM_CHECK((size_ + 1) * 4 <= table_.size());
    std::memcpy(table_.data() + 4 * size_++, &word, 4);
  }
  // The range of words since Begin.
  void Begin() { begin_ = size_; }
  WordRange Range() const {
    return {static_cast<uint32_t>(begin_), static_cast<uint32_t>(size_ - begin_)};
  }
  size_t size() const { return size_; }

 private:
  std::span<std::byte> table_;
  size_t size_;
  size_t begin_ = 0;
};

void PutIds(std::span<const int32_t> ids, WordWriter* words, WordRange* range) {
  words->Begin();
  for (const int32_t id : ids) words->Put(static_cast<uint32_t>(id));
  *range = words->Range();
}

using Mask = std::optional<std::span<const uint64_t>>;

// Returns 32 bits of the mask, inverted.
uint32_t RemovedBy(const Mask& mask, size_t word) {
  if (!mask.has_value()) return 0;
  if (word / 2 >= mask->size()) return ~uint32_t{0};
  return ~static_cast<uint32_t>((*mask)[word / 2] >> (32 * (word % 2)));
}

// One bit per token, set if it is removed.
void PutBitmap(const SamplingParams& params, std::span<const int32_t> banned, const Mask& mask,
               int64_t vocab_size, WordWriter* words, WordRange* range) {
  auto next_allowed = params.allowed_token_ids.begin();
  auto next_banned = banned.begin();
  const bool all_allowed = params.allowed_token_ids.empty();
  words->Begin();
  for (size_t word = 0; word < BitmapWords(vocab_size); ++word) {
    const int64_t end = 32 * (static_cast<int64_t>(word) + 1);
    uint32_t removed = all_allowed ? 0 : ~uint32_t{0};
    for (; next_allowed != params.allowed_token_ids.end() && *next_allowed < end; ++next_allowed) {
      removed &= ~(uint32_t{1} << (*next_allowed % 32));
    }
    for (; next_banned != banned.end() && *next_banned < end; ++next_banned) {
      removed |= uint32_t{1} << (*next_banned % 32);
    }
    words->Put(removed | RemovedBy(mask, word));
  }
  *range = words->Range();
}

void PutRemovals(const SamplingParams& params, std::span<const int32_t> banned, const Mask& mask,
                 int64_t vocab_size, WordWriter* words, SamplingRecord* record) {
  if (mask.has_value() ||
      params.allowed_token_ids.size() + banned.size() > BitmapWords(vocab_size)) {
    PutBitmap(params, banned, mask, vocab_size, words, &record->removed);
    return;
  }
  PutIds(params.allowed_token_ids, words, &record->allowed);
  PutIds(banned, words, &record->banned);
}

void PutBias(const SamplingParams& params, WordWriter* words, SamplingRecord* record) {
  words->Begin();
  for (const auto& [id, bias] : params.logit_bias) {
    words->Put(static_cast<uint32_t>(id));
    words->Put(std::bit_cast<uint32_t>(bias));
  }
  record->bias = words->Range();
}

// `entries` has pairs of an id and its TokenHistory::Seen.
template <typename Entries>
WordRange PutSeen(const Entries& entries, WordWriter* words) {
  words->Begin();
  for (const auto& [id, seen] : entries) {
    words->Put(static_cast<uint32_t>(id));
    words->Put(seen.in_output * 2 + (seen.in_prompt ? 1 : 0));
  }
  return words->Range();
}

SamplingKind KindOf(const SamplingParams& params) {
  if (params.temperature == 0.0f) return SamplingKind::kGreedy;
  const bool truncated =
      params.top_k > 0 || params.typical_p < 1.0f || params.top_p < 1.0f || params.min_p > 0.0f;
  return truncated ? SamplingKind::kTruncated : SamplingKind::kPlain;
}

// Returns the record without the lists.
SamplingRecord MakeRecord(const SamplingJob& job) {
  const SamplingParams& params = *job.params;
  SamplingRecord record;
  record.kind = KindOf(params);
  record.row = job.row;
  record.seed = params.seed;
  record.position = job.key.position;
  record.output_index = job.key.output_index;
  record.top_k = params.top_k;
  if (record.kind != SamplingKind::kGreedy) {
    record.inverse_temperature = 1.0 / static_cast<double>(params.temperature);
  }
  record.top_p = params.top_p;
  record.typical_p = params.typical_p;
  record.min_p_floor = params.min_p > 0.0f ? Log(static_cast<double>(params.min_p))
                                           : -std::numeric_limits<double>::infinity();
  record.repetition_penalty = params.repetition_penalty;
  record.presence_penalty = params.presence_penalty;
  record.frequency_penalty = params.frequency_penalty;
  record.adjusts = NeedsAdjusting(params, {.banned = job.banned}) || job.mask != nullptr ? 1 : 0;
  record.penalises = params.has_penalties() ? 1 : 0;
  record.wants_logprob = job.score.logprob ? 1 : 0;
  record.processed = job.score.processed ? 1 : 0;
  record.top = job.score.top;
  return record;
}

int32_t PendingJob(const Batch& batch, const SamplingJob& job) {
  const int32_t token = batch.logits_rows[static_cast<size_t>(job.row)];
  const int32_t id = batch.token_ids[static_cast<size_t>(token)];
  return id < 0 ? -1 - id : kNoPendingJob;
}

absl::StatusOr<SampledToken> Unpack(const LogprobOptions& score, const RemovalCounts& removals,
                                    const SamplingOutcome& outcome, const std::byte* top,
                                    int64_t vocab_size) {
  if (outcome.status == SamplingStatus::kNotADistribution) {
    return NotADistribution(outcome.id, std::bit_cast<float>(outcome.detail_bits));
  }
  if (outcome.status == SamplingStatus::kAllExcluded) return AllExcluded(vocab_size);
  if (outcome.status == SamplingStatus::kNoneLeft) return NoneLeft(removals);
  SampledToken token;
  token.id = outcome.id;
  if (score.logprob) token.score = {outcome.id, outcome.logprob, outcome.rank};
  const int64_t count = std::min<int64_t>(score.top, vocab_size);
  token.top.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    TopToken one;
    std::memcpy(&one, top + static_cast<size_t>(i) * sizeof(one), sizeof(one));
    token.top.push_back({one.id, one.logprob, static_cast<uint32_t>(i + 1)});
  }
  return token;
}

}  // namespace

SamplingTableBytes MaxSamplingTableBytes(const BatchLimits& limits, int64_t vocab_size) {
  const size_t jobs = static_cast<size_t>(limits.max_jobs());
  // A token of the draft may also be in the history.
  const size_t history = 2 * static_cast<size_t>(std::min(limits.max_context, 2 * vocab_size));
  const size_t bias = 2 * static_cast<size_t>(vocab_size);
  const size_t lists = std::min(kMaxJobWords, history + bias + BitmapWords(vocab_size));
  return {.table = 4 * (kHeaderWords + jobs * (kRecordWords + lists)),
          .outcomes = jobs * (sizeof(SamplingOutcome) + kMaxTopTokens * sizeof(TopToken))};
}

bool NeedsHost(const SamplingJob& job, int64_t vocab_size) {
  return job.score.top > kMaxTopTokens || ListWords(job, vocab_size) > kMaxJobWords;
}

void SamplingTable::Pack(const Batch& batch, std::span<std::byte> table, PackedJobs* packed) {
  const size_t jobs = batch.jobs.size();
  packed->noise = packed->finish = false;
  packed->host.clear();
  packed->late.clear();
  packed->removals.clear();
  bool any_top = false;
  // The last written history: the jobs of a draft's tokens have the same one.
  const TokenHistory* history = nullptr;
  WordRange history_words;
  parity_ = 1 - parity_;
  const SamplingTableHeader header = {.jobs = static_cast<uint32_t>(jobs), .parity = parity_};
  TLM_CHECK(sizeof(header) + jobs * sizeof(SamplingRecord) <= table.size());
  std::memcpy(table.data(), &header, sizeof(header));
  WordWriter words(table, kHeaderWords + jobs * kRecordWords);
  for (size_t i = 0; i < jobs; ++i) {
    const SamplingJob& job = batch.jobs[i];
    SamplingRecord record;
    packed->removals.push_back({.allowed = job.params->allowed_token_ids.size(),
                                .banned = job.params->banned_token_ids.size(),
                                .ending = job.banned.size(),
                                .masked = job.mask != nullptr});
    const bool on_host = NeedsHost(job, vocab_size_);
    const Mask mask = on_host || job.mask == nullptr ? Mask() : job.mask->Await();
    if (on_host) {
      packed->host.push_back(static_cast<int32_t>(i));
    } else if (job.mask != nullptr && !mask.has_value()) {
      packed->late.push_back(static_cast<int32_t>(i));
    } else {
      record = MakeRecord(job);
      PutBias(*job.params, &words, &record);
      banned_.clear();
      std::set_union(job.params->banned_token_ids.begin(), job.params->banned_token_ids.end(),
                     job.banned.begin(), job.banned.end(), std::back_inserter(banned_));
      PutRemovals(*job.params, banned_, mask, vocab_size_, &words, &record);
      if (record.penalises != 0) {
        if (job.history != history) {
          history = job.history;
          history_words = PutSeen(history->seen(), &words);
        }
        record.history = history_words;
        job.history->SeenWith(job.draft, &drafted_);
        record.draft = PutSeen(drafted_, &words);
        record.pending_job = PendingJob(batch, job);
      }
      packed->noise |= record.kind == SamplingKind::kPlain;
      packed->finish |=
          record.kind == SamplingKind::kTruncated || job.score.logprob || record.top > 0;
      any_top |= record.top > 0;
    }
    std::memcpy(table.data() + sizeof(header) + i * sizeof(record), &record, sizeof(record));
  }
  packed->table_bytes = 4 * words.size();
  packed->outcome_bytes =
      jobs * (sizeof(SamplingOutcome) + (any_top ? kMaxTopTokens * sizeof(TopToken) : 0));
}

std::vector<absl::StatusOr<SampledToken>> UnpackJobs(const Batch& batch, const PackedJobs& packed,
                                                     int64_t vocab_size,
                                                     std::span<const std::byte> outcomes) {
  const size_t jobs = batch.jobs.size();
  std::vector<absl::StatusOr<SampledToken>> tokens;
  tokens.reserve(jobs);
  auto next_host = packed.host.begin();
  auto next_late = packed.late.begin();
  for (size_t i = 0; i < jobs; ++i) {
    if (next_host != packed.host.end() && *next_host == static_cast<int32_t>(i)) {
      ++next_host;
      tokens.push_back(SampledToken{});
      continue;
    }
    if (next_late != packed.late.end() && *next_late == static_cast<int32_t>(i)) {
      ++next_late;
      tokens.push_back(MaskIsLate());
      continue;
    }
    const size_t top = jobs * sizeof(SamplingOutcome) + i * kMaxTopTokens * sizeof(TopToken);
    TLM_CHECK(jobs * sizeof(SamplingOutcome) <= outcomes.size() &&
              (batch.jobs[i].score.top == 0 ||
               top + kMaxTopTokens * sizeof(TopToken) <= outcomes.size()));
    SamplingOutcome outcome;
    std::memcpy(&outcome, outcomes.data() + i * sizeof(outcome), sizeof(outcome));
    tokens.push_back(Unpack(batch.jobs[i].score, packed.removals[i], outcome, outcomes.data() + top,
                            vocab_size));
  }
  return tokens;
}

}  // namespace tlm
