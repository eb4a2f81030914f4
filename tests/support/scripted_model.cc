#include "tests/support/scripted_model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "model/base/errors.h"
#include "model/ops/ops.h"

namespace tlm {
namespace {

// SplitMix64's finaliser.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

uint64_t CellAfter(uint64_t previous, int32_t token, int64_t position) {
  return Mix(Mix(previous ^ static_cast<uint64_t>(token)) + static_cast<uint64_t>(position));
}

uint64_t Fold(uint64_t folded, uint64_t cell) { return Mix(folded ^ cell); }

float Logit(uint64_t folded, int64_t id) {
  const uint64_t bits = Mix(folded + static_cast<uint64_t>(id)) >> 40;  // 24 bits
  return static_cast<float>(bits) * 0x1p-21f - 4.0f;
}

bool Same(const SamplingJob& a, const SamplingJob& b) {
  return a.row == b.row && a.params == b.params && a.history == b.history &&
         a.key.output_index == b.key.output_index && a.key.position == b.key.position &&
         a.banned.data() == b.banned.data() && a.banned.size() == b.banned.size() &&
         a.mask == b.mask;
}

bool Same(const Batch& a, const Batch& b) {
  return a.token_ids == b.token_ids && a.positions == b.positions &&
         a.sequence_of == b.sequence_of && a.block_tables == b.block_tables &&
         a.logits_rows == b.logits_rows && a.host_rows == b.host_rows &&
         std::equal(a.jobs.begin(), a.jobs.end(), b.jobs.begin(), b.jobs.end(),
                    [](const SamplingJob& x, const SamplingJob& y) { return Same(x, y); });
}

bool IsUnknown(int32_t token) { return token < 0; }

}  // namespace

ScriptedModel::ScriptedModel(const BatchLimits& limits, int64_t num_kv_blocks, int max_launched)
    : limits_(limits),
      num_kv_blocks_(num_kv_blocks),
      max_launched_(max_launched),
      cells_(static_cast<size_t>(num_kv_blocks * kBlockTokens)) {}

std::vector<float> ScriptedModel::LogitsAfter(std::span<const int32_t> tokens) {
  uint64_t cell = 0;
  uint64_t folded = 0;
  int64_t position = 0;
  for (const int32_t token : tokens) {
    cell = CellAfter(cell, token, position++);
    folded = Fold(folded, cell);
  }
  std::vector<float> logits;
  for (int64_t id = 0; id < kVocabSize; ++id) logits.push_back(Logit(folded, id));
  return logits;
}

void ScriptedModel::ComputeOnOwnThread() {
  TLM_CHECK(max_launched_ == 1);
  own_thread_ = true;
}

void ScriptedModel::Launch(const Batch& batch) {
  TLM_CHECK(static_cast<int>(launched_.size()) < max_launched_);
  CheckBatch(batch);
  std::fill(logits_.begin(), logits_.end(), std::numeric_limits<float>::quiet_NaN());
  ++launches_;
  if (!launched_.empty()) ++launches_ahead_;
  for (const int32_t token : batch.token_ids) {
    if (!IsUnknown(token)) continue;
    // Tokens that are known already must be given.
    TLM_CHECK(TakesPendingTokens() && !launched_.empty() &&
              -1 - token < std::ssize(launched_.back().as_launched.jobs));
    ++unknown_tokens_;
  }
  // Only a model that computes at once may read the objects that the jobs point at.
  auto jobs = max_launched_ > 1 ? std::make_unique<HeldJobs>(batch.jobs) : nullptr;
  launched_.push_back(
      {.batch = &batch, .as_launched = batch, .jobs = std::move(jobs), .copies = {}});
  if (own_thread_) {
    computing_ = std::async(std::launch::async, [this] { return Compute(launched_.front()); });
  }
  if (on_launch_) on_launch_();
}

bool ScriptedModel::TakesPendingTokens() const {
  if (max_launched_ == 1) return false;
  return launched_.empty() ||
         std::all_of(launched_.back().jobs->jobs().begin(), launched_.back().jobs->jobs().end(),
                     [](const SamplingJob& job) { return job.params->logit_bias.empty(); });
}

absl::StatusOr<BatchResult> ScriptedModel::Wait() {
  TLM_CHECK(!launched_.empty());
  if (on_wait_) on_wait_();
  Launched& oldest = launched_.front();
  auto result = own_thread_ ? computing_.get() : Compute(oldest);
  TLM_CHECK(Same(*oldest.batch, oldest.as_launched));
  for (const BlockPair& blocks : oldest.copies) Copy(blocks);
  launched_.pop_front();
  return result;
}

absl::StatusOr<BatchResult> ScriptedModel::Compute(Launched& launched) {
  const Batch batch = Resolve(launched);
  if (on_forward_) on_forward_(batch);
  sampled_.assign(batch.jobs.size(), 0);
  if (launched.undefined || !failure_.ok()) Spoil(batch);
  if (!failure_.ok()) {
    for (Launched& behind : launched_) behind.undefined = true;
    return std::exchange(failure_, absl::OkStatus());
  }
  if (!launched.undefined) Write(batch);
  std::vector<float> logits;  // logits of all rows
  for (const int32_t token : batch.logits_rows) AppendLogits(batch, token, &logits);
  BatchResult result;
  result.tokens = SampleAll(launched.jobs ? launched.jobs->jobs() : batch.jobs, logits, kVocabSize);
  sampled_ = SampledIds(result.tokens);
  logits_ = SelectRows(logits, batch.host_rows, kVocabSize);
  result.logits = logits_;
  return result;
}

Batch ScriptedModel::Resolve(const Launched& launched) const {
  Batch batch = launched.as_launched;
  for (int32_t& token : batch.token_ids) {
    if (IsUnknown(token)) token = sampled_.at(static_cast<size_t>(-1 - token));
  }
  return batch;
}

void ScriptedModel::CheckBatch(const Batch& batch) const {
  const int64_t tokens = batch.tokens();
  TLM_CHECK(tokens > 0 && tokens <= limits_.max_tokens);
  TLM_CHECK(static_cast<int64_t>(batch.positions.size()) == tokens);
  TLM_CHECK(static_cast<int64_t>(batch.sequence_of.size()) == tokens);
  TLM_CHECK(batch.sequences > 0 && batch.sequences <= limits_.max_sequences);
  TLM_CHECK(batch.max_blocks * kBlockTokens < limits_.max_context + kBlockTokens);
  TLM_CHECK(static_cast<int64_t>(batch.block_tables.size()) == batch.sequences * batch.max_blocks);
  TLM_CHECK(static_cast<int64_t>(batch.logits_rows.size()) <= limits_.max_logits_rows);
  for (int64_t i = 0; i < tokens; ++i) {
    const int32_t sequence = batch.sequence_of[i];
    TLM_CHECK(batch.token_ids[i] < kVocabSize);
    TLM_CHECK(batch.token_ids[i] >= 0 || max_launched_ > 1);
    TLM_CHECK(batch.positions[i] >= 0 && batch.positions[i] < limits_.max_context);
    TLM_CHECK(batch.positions[i] < batch.max_blocks * kBlockTokens);
    TLM_CHECK(sequence >= 0 && sequence < batch.sequences);
    if (i > 0 && sequence == batch.sequence_of[i - 1]) {
      TLM_CHECK(batch.positions[i] == batch.positions[i - 1] + 1);
    }
  }
  CheckBlocks(batch);
  CheckRows(batch);
}

// Every row must have a job or go to the host.
void ScriptedModel::CheckRows(const Batch& batch) const {
  for (const int32_t row : batch.logits_rows) TLM_CHECK(row >= 0 && row < batch.tokens());
  TLM_CHECK(static_cast<int64_t>(batch.jobs.size()) <= limits_.max_jobs());
  std::set<int32_t> used;
  for (const SamplingJob& job : batch.jobs) used.insert(job.row);
  for (size_t i = 0; i < batch.host_rows.size(); ++i) {
    TLM_CHECK(i == 0 || batch.host_rows[i] > batch.host_rows[i - 1]);
    TLM_CHECK(used.insert(batch.host_rows[i]).second);
  }
  TLM_CHECK(static_cast<int64_t>(used.size()) == batch.rows());
  TLM_CHECK(used.empty() || (*used.begin() == 0 && *used.rbegin() == batch.rows() - 1));
}

void ScriptedModel::CheckBlocks(const Batch& batch) const {
  std::map<int32_t, int32_t> writers;              // block to sequence
  std::set<std::pair<int32_t, int32_t>> readings;  // block, sequence
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    const int32_t sequence = batch.sequence_of[i];
    const int64_t written = batch.positions[i] / kBlockTokens;
    for (int64_t index = 0; index <= written; ++index) {
      const int32_t block = batch.block_tables[sequence * batch.max_blocks + index];
      TLM_CHECK(block >= 0 && block < num_kv_blocks_);
      readings.emplace(block, sequence);
      if (index == written) TLM_CHECK(writers.emplace(block, sequence).first->second == sequence);
    }
  }
  for (const auto& [block, reader] : readings) {
    const auto writer = writers.find(block);
    TLM_CHECK(writer == writers.end() || writer->second == reader);
  }
}

absl::Status ScriptedModel::CopyKvBlock(int32_t from, int32_t to) {
  TLM_CHECK(!own_thread_ || launched_.empty());
  TLM_CHECK(from >= 0 && from < num_kv_blocks_ && to >= 0 && to < num_kv_blocks_ && from != to);
  ++copies_;
  if (!copy_failure_.ok()) {
    std::fill_n(cells_.begin() + to * kBlockTokens, kBlockTokens, Mix(0));
  } else if (launched_.empty()) {
    Copy({from, to});
  } else {
    launched_.back().copies.emplace_back(from, to);
  }
  return std::exchange(copy_failure_, absl::OkStatus());
}

void ScriptedModel::Copy(const BlockPair& blocks) {
  std::copy_n(cells_.begin() + blocks.first * kBlockTokens, kBlockTokens,
              cells_.begin() + blocks.second * kBlockTokens);
}

uint64_t& ScriptedModel::Cell(const Batch& batch, int64_t sequence, int64_t position) {
  const int64_t block = batch.block_tables[sequence * batch.max_blocks + position / kBlockTokens];
  return cells_[static_cast<size_t>(block * kBlockTokens + position % kBlockTokens)];
}

void ScriptedModel::Write(const Batch& batch) {
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    const int64_t sequence = batch.sequence_of[i];
    const int64_t position = batch.positions[i];
    const uint64_t previous = position == 0 ? 0 : Cell(batch, sequence, position - 1);
    Cell(batch, sequence, position) = CellAfter(previous, batch.token_ids[i], position);
  }
}

void ScriptedModel::Spoil(const Batch& batch) {
  for (int64_t i = 0; i < batch.tokens(); ++i) {
    for (int64_t position = 0; position <= batch.positions[i]; ++position) {
      Cell(batch, batch.sequence_of[i], position) = Mix(static_cast<uint64_t>(i));
    }
  }
}

void ScriptedModel::AppendLogits(const Batch& batch, int64_t token, std::vector<float>* logits) {
  uint64_t folded = 0;
  for (int64_t position = 0; position <= batch.positions[token]; ++position) {
    folded = Fold(folded, Cell(batch, batch.sequence_of[token], position));
  }
  const bool nan = nan_token_ == batch.token_ids[token];
  for (int64_t id = 0; id < kVocabSize; ++id) {
    logits->push_back(nan ? std::numeric_limits<float>::quiet_NaN() : Logit(folded, id));
  }
}

}  // namespace tlm
