#include "tests/support/scripted_model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

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

}  // namespace

ScriptedModel::ScriptedModel(const BatchLimits& limits, int64_t num_kv_blocks)
    : limits_(limits),
      num_kv_blocks_(num_kv_blocks),
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

absl::StatusOr<std::span<const float>> ScriptedModel::Forward(const Batch& batch) {
  if (on_forward_) on_forward_(batch);
  CheckBatch(batch);
  if (!failure_.ok()) {
    Spoil(batch);
    return std::exchange(failure_, absl::OkStatus());
  }
  Write(batch);
  logits_.clear();
  for (const int32_t token : batch.logits_rows) AppendLogits(batch, token);
  return logits_;
}

void ScriptedModel::Launch(const Batch& batch) {
  TLM_CHECK(launched_ == nullptr);
  launched_ = &batch;
  launched_copy_ = batch;
  if (own_thread_) {
    computing_ = std::async(std::launch::async, [this] { return Forward(*launched_); });
  }
  if (on_launch_) on_launch_();
}

absl::StatusOr<std::span<const float>> ScriptedModel::Wait() {
  TLM_CHECK(launched_ != nullptr);
  if (on_wait_) on_wait_();
  const auto logits = own_thread_ ? computing_.get() : Forward(*launched_);
  TLM_CHECK(launched_->token_ids == launched_copy_.token_ids &&
            launched_->block_tables == launched_copy_.block_tables);
  launched_ = nullptr;
  return logits;
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
    TLM_CHECK(batch.token_ids[i] >= 0 && batch.token_ids[i] < kVocabSize);
    TLM_CHECK(batch.positions[i] >= 0 && batch.positions[i] < limits_.max_context);
    TLM_CHECK(batch.positions[i] < batch.max_blocks * kBlockTokens);
    TLM_CHECK(sequence >= 0 && sequence < batch.sequences);
    if (i > 0 && sequence == batch.sequence_of[i - 1]) {
      TLM_CHECK(batch.positions[i] == batch.positions[i - 1] + 1);
    }
  }
  CheckBlocks(batch);
  for (const int32_t row : batch.logits_rows) TLM_CHECK(row >= 0 && row < tokens);
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
  TLM_CHECK(launched_ == nullptr);
  TLM_CHECK(from >= 0 && from < num_kv_blocks_ && to >= 0 && to < num_kv_blocks_ && from != to);
  ++copies_;
  const auto source = cells_.begin() + from * kBlockTokens;
  const auto target = cells_.begin() + to * kBlockTokens;
  if (copy_failure_.ok()) {
    std::copy(source, source + kBlockTokens, target);
  } else {
    std::fill(target, target + kBlockTokens, Mix(0));
  }
  return std::exchange(copy_failure_, absl::OkStatus());
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

void ScriptedModel::AppendLogits(const Batch& batch, int64_t token) {
  uint64_t folded = 0;
  for (int64_t position = 0; position <= batch.positions[token]; ++position) {
    folded = Fold(folded, Cell(batch, batch.sequence_of[token], position));
  }
  const bool nan = nan_token_ == batch.token_ids[token];
  for (int64_t id = 0; id < kVocabSize; ++id) {
    logits_.push_back(nan ? std::numeric_limits<float>::quiet_NaN() : Logit(folded, id));
  }
}

}  // namespace tlm
