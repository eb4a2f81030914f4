// A language model made of hashes, for tests of code that drives a LanguageModel.
#ifndef TLM_TESTS_SUPPORT_SCRIPTED_MODEL_H_
#define TLM_TESTS_SUPPORT_SCRIPTED_MODEL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/transformer_lm/language_model.h"
#include "tests/support/host_sampling.h"

namespace tlm {

// Its logits are a pure function of all tokens up to the row's position, read back through a cache
// that is addressed by block table and slot as a real one: a wrong table, position, chunk border or
// a block written by two sequences changes them. CHECKs the batch as TransformerLM does, that no
// sequence uses a block that another one of the batch writes, and that a launched batch is waited
// for and stays as it is until then.
//
// One that takes two batches computes as late as it may: nothing of a batch before it is waited
// for, copies in between in their turn, tokens that are not known yet from the jobs of the batch
// before, and what was launched behind a fault into garbage. It does jobs with a logit bias as if
// on the host: the next batch does not take their tokens.
class ScriptedModel : public LanguageModel {
 public:
  static constexpr int64_t kVocabSize = 61;

  ScriptedModel(const BatchLimits& limits, int64_t num_kv_blocks, int max_launched = 1);

  // The logits after `tokens`, computed without any cache; in [-4, 4).
  static std::vector<float> LogitsAfter(std::span<const int32_t> tokens);

  int64_t vocab_size() const override { return kVocabSize; }
  const BatchLimits& limits() const override { return limits_; }
  int64_t num_kv_blocks() const override { return num_kv_blocks_; }
  int max_launched() const override { return max_launched_; }
  bool TakesPendingTokens() const override;
  void Launch(const Batch& batch) override;
  absl::StatusOr<BatchResult> Wait() override;
  absl::Status CopyKvBlock(int32_t from, int32_t to) override;
  RunCounts run_counts() const override { return {.direct = launches_}; }

  // Blocks copied so far. Between two calls of the engine.
  int64_t copies() const { return copies_; }
  // Batches so far, and those of them that were launched before the results of the one before, and
  // tokens in them that were not known. As copies.
  int64_t launches() const { return launches_; }
  int64_t launches_ahead() const { return launches_ahead_; }
  int64_t unknown_tokens() const { return unknown_tokens_; }
  // From now on a launched batch is computed on a thread of its own, as by a device. Only with one
  // batch at a time.
  void ComputeOnOwnThread();
  // Called before every batch is computed, on the thread that does it; tokens that were not known
  // are. Set before it is used.
  void set_on_forward(std::function<void(const Batch&)> hook) { on_forward_ = std::move(hook); }
  // Called at the end of every Launch and at the beginning of every Wait, on the caller's thread.
  void set_on_launch(std::function<void()> hook) { on_launch_ = std::move(hook); }
  void set_on_wait(std::function<void()> hook) { on_wait_ = std::move(hook); }
  // The next batch to be computed spoils its blocks and fails with this. Between two batches, or
  // from a hook.
  void FailOnce(absl::Status status) { failure_ = std::move(status); }
  // The next copy spoils its block and returns this. As FailOnce.
  void FailNextCopy(absl::Status status) { copy_failure_ = std::move(status); }
  // Rows whose sequence's token at that position is `token` are NaN. Set before it is used.
  void set_nan_token(int32_t token) { nan_token_ = token; }

 private:
  using BlockPair = std::pair<int32_t, int32_t>;  // from, to
  // A batch that was not waited for.
  struct Launched {
    const Batch* batch;
    Batch as_launched;
    std::unique_ptr<HeldJobs> jobs;  // null where they stay as they are
    std::vector<BlockPair> copies;   // asked for behind it
    bool undefined = false;          // one before it failed
  };

  void CheckBatch(const Batch& batch) const;
  void CheckRows(const Batch& batch) const;
  void CheckBlocks(const Batch& batch) const;
  absl::StatusOr<BatchResult> Compute(Launched& launched);
  // The batch with all its tokens.
  Batch Resolve(const Launched& launched) const;
  // The cell of `position` in the cache, through the table of row `sequence`.
  uint64_t& Cell(const Batch& batch, int64_t sequence, int64_t position);
  void Write(const Batch& batch);
  void Spoil(const Batch& batch);
  void AppendLogits(const Batch& batch, int64_t token, std::vector<float>* logits);
  void Copy(const BlockPair& blocks);

  const BatchLimits limits_;
  const int64_t num_kv_blocks_;
  const int max_launched_;
  std::vector<uint64_t> cells_;   // [num_kv_blocks, kBlockTokens]
  std::vector<float> logits_;     // of the last result
  std::vector<int32_t> sampled_;  // by the last batch computed
  std::function<void(const Batch&)> on_forward_;
  std::function<void()> on_launch_;
  std::function<void()> on_wait_;
  bool own_thread_ = false;
  std::deque<Launched> launched_;  // oldest first
  std::future<absl::StatusOr<BatchResult>> computing_;
  absl::Status failure_;
  absl::Status copy_failure_;
  int64_t copies_ = 0;
  int64_t launches_ = 0;
  int64_t launches_ahead_ = 0;
  int64_t unknown_tokens_ = 0;
  std::optional<int32_t> nan_token_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_SCRIPTED_MODEL_H_
