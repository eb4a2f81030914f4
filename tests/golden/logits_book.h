// Records the logits that follow each prefix of tokens.
#ifndef TLM_TESTS_GOLDEN_LOGITS_BOOK_H_
#define TLM_TESTS_GOLDEN_LOGITS_BOOK_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "model/ops/ops.h"
#include "model/transformer_lm/language_model.h"
#include "tests/support/host_sampling.h"

namespace tlm {

// Hashes of logits by token prefix, over all schedules; counts the prefixes with two different
// hashes.
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

// Records all rows of logits of the calls that it forwards; it has them brought to the host. It
// knows the tokens before every row because it notes which token was written to which slot of the
// cache, in the order of the device: when results come, not when work is launched.
class RecordingModel : public LanguageModel {
 public:
  // `model` and `book` must outlive this object; `stop_ids` end every output that may have them.
  RecordingModel(LanguageModel& model, LogitsBook& book, std::vector<int32_t> stop_ids = {})
      : model_(model),
        book_(book),
        stop_ids_(std::move(stop_ids)),
        slots_(model.num_kv_blocks() * kBlockTokens) {}

  int64_t vocab_size() const override { return model_.vocab_size(); }
  const BatchLimits& limits() const override { return model_.limits(); }
  int64_t num_kv_blocks() const override { return model_.num_kv_blocks(); }
  int max_launched() const override { return model_.max_launched(); }
  bool TakesPendingTokens() const override { return model_.TakesPendingTokens(); }

  void Launch(const Batch& batch) override {
    if (!launched_.empty()) ++launches_ahead_;
    Launched& launched = launched_.emplace_back(Launched{batch, batch.host_rows, {}});
    std::vector<int32_t>& rows = launched.batch.host_rows;
    rows.resize(batch.logits_rows.size());
    std::iota(rows.begin(), rows.end(), 0);
    model_.Launch(launched.batch);
  }

  absl::StatusOr<BatchResult> Wait() override {
    absl::StatusOr<BatchResult> result = model_.Wait();
    Launched& oldest = launched_.front();
    if (result.ok()) {
      Write(oldest.batch);
      Record(oldest.batch, result->logits);
      CountEnds(oldest.batch, result->tokens);
      sampled_ = SampledIds(result->tokens);
      logits_ = SelectRows(result->logits, oldest.wanted_rows, vocab_size());
      result->logits = logits_;
    }
    for (const auto& [from, to] : oldest.copies) CopySlots(from, to);
    launched_.pop_front();
    return result;
  }

  absl::Status CopyKvBlock(int32_t from, int32_t to) override {
    if (launched_.empty()) {
      CopySlots(from, to);
    } else {
      launched_.back().copies.emplace_back(from, to);
    }
    ++copies_;
    return model_.CopyKvBlock(from, to);
  }
  int64_t copies() const { return copies_; }
  // Returns the number of batches launched before the results of the batch before.
  int64_t launches_ahead() const { return launches_ahead_; }
  // Returns the number of drafts and claims in which a token that was sampled as guessed ended the
  // output.
  int64_t ends_in_drafts() const { return ends_in_drafts_; }

 private:
  struct Launched {
    Batch batch;                                      // the batch with all rows
    std::vector<int32_t> wanted_rows;                 // the rows that the caller requested
    std::vector<std::pair<int32_t, int32_t>> copies;  // requested after its launch
  };

  static size_t Slot(const Batch& batch, int64_t token, int64_t position) {
    const int64_t block =
        batch.block_tables[batch.sequence_of[token] * batch.max_blocks + position / kBlockTokens];
    return static_cast<size_t>(block * kBlockTokens + position % kBlockTokens);
  }

  void Write(const Batch& batch) {
    for (int64_t token = 0; token < batch.tokens(); ++token) {
      const int32_t id = batch.token_ids[token];
      slots_[Slot(batch, token, batch.positions[token])] =
          id >= 0 ? id : sampled_.at(static_cast<size_t>(-1 - id));
    }
  }

  void Record(const Batch& batch, std::span<const float> logits) {
    for (size_t row = 0; row < batch.logits_rows.size(); ++row) {
      const int32_t token = batch.logits_rows[row];
      std::vector<int32_t> prefix;
      for (int32_t position = 0; position <= batch.positions[token]; ++position) {
        prefix.push_back(slots_[Slot(batch, token, position)]);
      }
      const uint64_t hash = Hash(logits.data() + row * vocab_size(), vocab_size() * sizeof(float));
      const auto [entry, is_new] = book_.hashes.emplace(std::move(prefix), hash);
      if (!is_new) ++book_.repeated;
      if (entry->second != hash) ++book_.contradictions;
    }
  }

  // The jobs of a sequence follow each other; each has one token more of its draft.
  void CountEnds(const Batch& batch, std::span<const absl::StatusOr<SampledToken>> tokens) {
    bool agrees = true;
    for (size_t i = 0; i + 1 < batch.jobs.size(); ++i) {
      const std::span<const int32_t> draft = batch.jobs[i + 1].draft;
      agrees &= tokens[i].ok() && !draft.empty() && tokens[i]->id == draft.back();
      if (agrees && batch.jobs[i].banned.empty() && EndsOutput(batch.jobs[i], draft.back())) {
        ++ends_in_drafts_;
      }
      if (draft.empty()) agrees = true;
    }
  }

  // The masks of constrained outputs allow the last id where the output may end.
  bool EndsOutput(const SamplingJob& job, int32_t id) const {
    return std::ranges::count(stop_ids_, id) > 0 || (job.mask != nullptr && id + 1 == vocab_size());
  }

  void CopySlots(int32_t from, int32_t to) {
    std::copy_n(slots_.begin() + from * kBlockTokens, kBlockTokens,
                slots_.begin() + to * kBlockTokens);
  }

  LanguageModel& model_;
  LogitsBook& book_;
  const std::vector<int32_t> stop_ids_;
  std::vector<int32_t> slots_;
  std::deque<Launched> launched_;  // oldest first
  std::vector<int32_t> sampled_;   // by the last batch with results
  std::vector<float> logits_;
  int64_t copies_ = 0;
  int64_t launches_ahead_ = 0;
  int64_t ends_in_drafts_ = 0;
};

}  // namespace tlm

#endif  // TLM_TESTS_GOLDEN_LOGITS_BOOK_H_
