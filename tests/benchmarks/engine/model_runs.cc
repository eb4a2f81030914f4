#include "tests/benchmarks/engine/model_runs.h"

#include <algorithm>
#include <deque>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "model/base/errors.h"
#include "model/ops/ops.h"

namespace tlm::bench {

ModelRuns::ModelRuns(LanguageModel& model, int64_t sequences, int64_t context)
    : model_(model),
      sequences_(sequences),
      max_blocks_((context + kBlockTokens - 1) / kBlockTokens),
      next_(static_cast<size_t>(sequences), 0) {
  TLM_CHECK(sequences * max_blocks_ <= model.num_kv_blocks());
  greedy_.temperature = 0.0f;
}

void ModelRuns::StartBatch(Batch* batch) const {
  batch->Clear();
  batch->max_blocks = max_blocks_;
}

void ModelRuns::AddTable(int64_t sequence, Batch* batch) const {
  for (int64_t block = 0; block < max_blocks_; ++block) {
    batch->block_tables.push_back(static_cast<int32_t>(sequence * max_blocks_ + block));
  }
  ++batch->sequences;
}

absl::StatusOr<BatchResult> ModelRuns::Compute(int64_t first, int64_t count, bool last) {
  Batch batch;
  StartBatch(&batch);
  AddTable(0, &batch);
  for (int64_t i = 0; i < count; ++i) {
    batch.token_ids.push_back(
        static_cast<int32_t>(random_() % static_cast<uint64_t>(model_.vocab_size())));
    batch.positions.push_back(static_cast<int32_t>(first + i));
    batch.sequence_of.push_back(0);
  }
  if (last) {
    batch.logits_rows.push_back(static_cast<int32_t>(count - 1));
    batch.jobs.push_back({.params = &greedy_, .history = &history_});
  }
  return model_.Forward(batch);
}

absl::StatusOr<double> ModelRuns::Prefill(int64_t tokens, int64_t chunk) {
  const absl::Time begin = absl::Now();
  for (int64_t done = 0; done < tokens; done += chunk) {
    const int64_t count = std::min(chunk, tokens - done);
    TLM_ASSIGN_OR_RETURN(const BatchResult result, Compute(done, count, done + count == tokens));
    for (const absl::StatusOr<SampledToken>& token : result.tokens) {
      TLM_RETURN_IF_ERROR(token.status());
    }
  }
  depth_ = tokens;
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

absl::Status ModelRuns::Fill(int64_t depth, int64_t chunk) {
  if (depth > 0) TLM_RETURN_IF_ERROR(Prefill(depth, chunk).status());
  const int64_t blocks = (depth + kBlockTokens - 1) / kBlockTokens;
  for (int64_t sequence = 1; sequence < sequences_; ++sequence) {
    for (int64_t block = 0; block < blocks; ++block) {
      TLM_RETURN_IF_ERROR(model_.CopyKvBlock(static_cast<int32_t>(block),
                                             static_cast<int32_t>(sequence * max_blocks_ + block)));
    }
  }
  depth_ = depth;
  for (int32_t& id : next_) {
    id = static_cast<int32_t>(random_() % static_cast<uint64_t>(model_.vocab_size()));
  }
  return absl::OkStatus();
}

void ModelRuns::Rewind(int64_t depth) {
  TLM_CHECK(depth <= depth_);
  depth_ = depth;
}

void ModelRuns::FillDecode(const std::vector<int32_t>* ids, int64_t position, Batch* batch) const {
  StartBatch(batch);
  for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
    AddTable(sequence, batch);
    const auto index = static_cast<int32_t>(sequence);
    batch->token_ids.push_back(ids != nullptr ? (*ids)[static_cast<size_t>(sequence)]
                                              : PendingToken(sequence));
    batch->positions.push_back(static_cast<int32_t>(position));
    batch->sequence_of.push_back(index);
    batch->logits_rows.push_back(index);
    batch->jobs.push_back({.row = index,
                           .params = &greedy_,
                           .history = &history_,
                           .key = {.position = static_cast<uint64_t>(position) + 1}});
  }
}

absl::StatusOr<std::vector<double>> ModelRuns::Decode(int64_t steps) {
  std::deque<Batch> launched;
  std::vector<double> seconds;
  absl::Time last = absl::Now();
  int64_t begun = 0;
  for (int64_t done = 0; done < steps; ++done) {
    while (begun < steps && static_cast<int>(launched.size()) < model_.max_launched()) {
      const bool known = launched.empty();
      launched.emplace_back();
      FillDecode(known ? &next_ : nullptr, depth_ + begun++, &launched.back());
      model_.Launch(launched.back());
    }
    TLM_ASSIGN_OR_RETURN(const BatchResult result, model_.Wait());
    launched.pop_front();
    for (size_t i = 0; i < result.tokens.size(); ++i) {
      TLM_RETURN_IF_ERROR(result.tokens[i].status());
      next_[i] = result.tokens[i]->id;
    }
    const absl::Time now = absl::Now();
    seconds.push_back(absl::ToDoubleSeconds(now - last));
    last = now;
  }
  depth_ += steps;
  return seconds;
}

}  // namespace tlm::bench
