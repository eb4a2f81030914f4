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

// Its logits are a pure function of all tokens up to the row's position. They are read back through
// a cache that is addressed by block table and slot like a real one: a wrong table, position or
// chunk border, or a block that two sequences write, changes them. It CHECKs the batch like
// TransformerLM, and also that no sequence uses a block that another sequence of the batch writes,
// and that the caller waits for a launched batch and does not change it until then.
//
// A model that takes two batches computes as late as it may: it waits for nothing of a batch before
// the oldest, does copies between batches in their turn, takes tokens that are not known yet from
// the jobs of the batch before, and computes garbage for batches that were launched after a fault.
// It does jobs with a logit bias as if on the host: the next batch does not take their tokens.
class ScriptedModel : public LanguageModel {
 public:
  static constexpr int64_t kVocabSize = 61;

  ScriptedModel(const BatchLimits& limits, int64_t num_kv_blocks, int max_launched = 1);

  // Returns the logits after `tokens`, computed without any cache; in [-4, 4).
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

  // Returns the blocks copied so far. Call it between two calls of the engine.
  int64_t copies() const { return copies_; }
  // Return the number of batches so far, of batches launched before the results of the batch
  // before, and of their tokens that were not known at the launch. Call them like copies().
  int64_t launches() const { return launches_; }
  int64_t launches_ahead() const { return launches_ahead_; }
  int64_t unknown_tokens() const { return unknown_tokens_; }
  // From now on each launched batch is computed on its own thread, as by a device. Only with one
  // batch at a time.
  void ComputeOnOwnThread();
  // Calls `hook` before every batch is computed, on the thread that computes it; all tokens are
  // then known. Set it before the model is used.
  void set_on_forward(std::function<void(const Batch&)> hook) { on_forward_ = std::move(hook); }
  // Calls `hook` at the end of every Launch or at the beginning of every Wait, on the caller's
  // thread.
  void set_on_launch(std::function<void()> hook) { on_launch_ = std::move(hook); }
  void set_on_wait(std::function<void()> hook) { on_wait_ = std::move(hook); }
  // The next batch to be computed spoils its blocks and fails with `status`. Call it between two
  // batches, or from a hook.
  void FailOnce(absl::Status status) { failure_ = std::move(status); }
  // The next copy spoils its block and returns `status`. Call it like FailOnce.
  void FailNextCopy(absl::Status status) { copy_failure_ = std::move(status); }
  // Rows at positions where their sequence has `token` become NaN. Set it before the model is used.
  void set_nan_token(int32_t token) { nan_token_ = token; }

 private:
  using BlockPair = std::pair<int32_t, int32_t>;  // from, to
  // A batch whose results were not taken yet.
  struct Launched {
    const Batch* batch;
    Batch as_launched;
    std::unique_ptr<HeldJobs> jobs;  // null if the caller's jobs are used directly
    std::vector<BlockPair> copies;   // requested after its launch
    bool undefined = false;          // a batch before it failed
  };

  void CheckBatch(const Batch& batch) const;
  void CheckRows(const Batch& batch) const;
  void CheckBlocks(const Batch& batch) const;
  absl::StatusOr<BatchResult> Compute(Launched& launched);
  // Returns the batch with all its tokens.
  Batch Resolve(const Launched& launched) const;
  // Returns the cell of `position` in the cache, through the table of row `sequence`.
  uint64_t& Cell(const Batch& batch, int64_t sequence, int64_t position);
  void Write(const Batch& batch);
  void Spoil(const Batch& batch);
  void AppendLogits(const Batch& batch, int64_t token, std::vector<float>* logits);
  void Copy(const BlockPair& blocks);

  const BatchLimits limits_;
  const int64_t num_kv_blocks_;
  const int max_launched_;
  std::vector<uint64_t> cells_;   // [num_kv_blocks, kBlockTokens]
  std::vector<float> logits_;     // logits of the last result
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
