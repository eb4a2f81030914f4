// A language model made of hashes, for testing whoever feeds a LanguageModel.
#ifndef TLM_TESTS_SUPPORT_SCRIPTED_MODEL_H_
#define TLM_TESTS_SUPPORT_SCRIPTED_MODEL_H_

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/transformer_lm/batch.h"
#include "model/transformer_lm/language_model.h"

namespace tlm {

// Its logits are a pure function of all tokens up to the row's position, read back through a cache
// that is addressed by block table and slot as a real one: a wrong table, position, chunk border or
// a block written by two sequences changes them. CHECKs the batch as TransformerLM does, that no
// sequence uses a block that another one of the batch writes, and that a launched batch is waited
// for and stays as it is until then.
class ScriptedModel : public LanguageModel {
 public:
  static constexpr int64_t kVocabSize = 61;

  ScriptedModel(const BatchLimits& limits, int64_t num_kv_blocks);

  // The logits after `tokens`, computed without any cache; in [-4, 4).
  static std::vector<float> LogitsAfter(std::span<const int32_t> tokens);

  int64_t vocab_size() const override { return kVocabSize; }
  const BatchLimits& limits() const override { return limits_; }
  int64_t num_kv_blocks() const override { return num_kv_blocks_; }
  absl::StatusOr<std::span<const float>> Forward(const Batch& batch) override;
  void Launch(const Batch& batch) override;
  absl::StatusOr<std::span<const float>> Wait() override;
  absl::Status CopyKvBlock(int32_t from, int32_t to) override;

  // Blocks copied so far. Between two calls of the engine.
  int64_t copies() const { return copies_; }
  // From now on a launched batch is computed on a thread of its own, as by a device.
  void ComputeOnOwnThread() { own_thread_ = true; }
  // Called at the beginning of every Forward, on its thread. Set before it is used.
  void set_on_forward(std::function<void(const Batch&)> hook) { on_forward_ = std::move(hook); }
  // Called at the end of every Launch and at the beginning of every Wait, on the caller's thread.
  void set_on_launch(std::function<void()> hook) { on_launch_ = std::move(hook); }
  void set_on_wait(std::function<void()> hook) { on_wait_ = std::move(hook); }
  // The next Forward spoils the blocks of its batch and returns this. Between two calls of Forward,
  // or from the hook.
  void FailOnce(absl::Status status) { failure_ = std::move(status); }
  // The next copy spoils its block and returns this. As FailOnce.
  void FailNextCopy(absl::Status status) { copy_failure_ = std::move(status); }
  // Rows whose sequence's token at that position is `token` are NaN. Set before it is used.
  void set_nan_token(int32_t token) { nan_token_ = token; }

 private:
  void CheckBatch(const Batch& batch) const;
  void CheckBlocks(const Batch& batch) const;
  // The cell of `position` in the cache, through the table of row `sequence`.
  uint64_t& Cell(const Batch& batch, int64_t sequence, int64_t position);
  void Write(const Batch& batch);
  void Spoil(const Batch& batch);
  void AppendLogits(const Batch& batch, int64_t token);

  const BatchLimits limits_;
  const int64_t num_kv_blocks_;
  std::vector<uint64_t> cells_;  // [num_kv_blocks, kBlockTokens]
  std::vector<float> logits_;
  std::function<void(const Batch&)> on_forward_;
  std::function<void()> on_launch_;
  std::function<void()> on_wait_;
  bool own_thread_ = false;
  const Batch* launched_ = nullptr;  // and not waited for
  Batch launched_copy_;
  std::future<absl::StatusOr<std::span<const float>>> computing_;
  absl::Status failure_;
  absl::Status copy_failure_;
  int64_t copies_ = 0;
  std::optional<int32_t> nan_token_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_SCRIPTED_MODEL_H_
