// Which logits every prefix of tokens was seen to give.
#ifndef TLM_TESTS_GOLDEN_LOGITS_BOOK_H_
#define TLM_TESTS_GOLDEN_LOGITS_BOOK_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "model/ops/ops.h"
#include "model/transformer_lm/language_model.h"

namespace tlm {

// Logits hash by token prefix, over all schedules; counts the entries seen with two hashes.
struct LogitsBook {
  std::map<std::vector<int32_t>, uint64_t> hashes;
  int64_t contradictions = 0;
  int64_t repeated = 0;
};

inline uint64_t Hash(const void* data, size_t bytes) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (size_t i = 0; i < bytes; ++i) {
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
  }
  return hash;
}

// Keeps the book of what passes through. It knows the tokens behind every row because it notes
// which token was written to which slot of the cache.
class RecordingModel : public LanguageModel {
 public:
  // Both outlive this object.
  RecordingModel(LanguageModel& model, LogitsBook& book)
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

  absl::Status CopyKvBlock(int32_t from, int32_t to) override {
    std::copy_n(slots_.begin() + from * kBlockTokens, kBlockTokens,
                slots_.begin() + to * kBlockTokens);
    ++copies_;
    return model_.CopyKvBlock(from, to);
  }
  int64_t copies() const { return copies_; }

 private:
  static size_t Slot(const Batch& batch, int64_t token, int64_t position) {
    const int64_t block =
        batch.block_tables[batch.sequence_of[token] * batch.max_blocks + position / kBlockTokens];
    return static_cast<size_t>(block * kBlockTokens + position % kBlockTokens);
  }

  LanguageModel& model_;
  LogitsBook& book_;
  std::vector<int32_t> slots_;
  int64_t copies_ = 0;
};

}  // namespace tlm

#endif  // TLM_TESTS_GOLDEN_LOGITS_BOOK_H_
