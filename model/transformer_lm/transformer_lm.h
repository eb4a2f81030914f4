// A decoder-only transformer language model in a device's memory, with its paged KV cache: the
// whole architecture as one chain of op calls, written once for every family and backend.
#ifndef TLM_MODEL_TRANSFORMER_LM_TRANSFORMER_LM_H_
#define TLM_MODEL_TRANSFORMER_LM_TRANSFORMER_LM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/kv_cache/kv_storage.h"
#include "model/ops/batch.h"
#include "model/ops/ops.h"
#include "model/transformer_lm/language_model.h"
#include "model/transformer_lm/packed_weights.h"
#include "model/weights/model_weights.h"

namespace tlm {

// Size and element type of the KV cache. 16-bit elements halve the memory and round every key
// and value once: bfloat16 to 8 bits, float16 to 11.
struct KvPlan {
  int64_t num_blocks = 0;
  DType dtype = DType::kF32;  // or kBF16, kF16
};

class TransformerLM : public LanguageModel {
 public:
  // Packs `weights` (which may be freed afterwards) onto the device, as planned, and allocates all
  // memory that the model will ever use; PackWeights describes `importance`. INVALID_ARGUMENT names
  // a tensor with a non-finite value, RESOURCE_EXHAUSTED the allocation that failed; UNIMPLEMENTED
  // means a format that the backend does not support. `ops` outlives the model.
  static absl::StatusOr<std::unique_ptr<TransformerLM>> Load(
      const ModelConfig& config, const ModelWeights& weights, Ops& ops, const BatchLimits& limits,
      const KvPlan& kv_plan, const PackingPlan& packing,
      const InputImportance* importance = nullptr);
  // Plans the packing, too.
  static absl::StatusOr<std::unique_ptr<TransformerLM>> Load(
      const ModelConfig& config, const ModelWeights& weights, Ops& ops, const BatchLimits& limits,
      const KvPlan& kv_plan, WeightFormat format = WeightFormat::kAsGiven,
      const InputImportance* importance = nullptr) {
    return Load(config, weights, ops, limits, kv_plan, PlanPacking(config, weights, format, ops),
                importance);
  }

  ~TransformerLM() override;

  int64_t vocab_size() const override { return config_.vocab_size; }
  const BatchLimits& limits() const override { return limits_; }
  int64_t num_kv_blocks() const override { return kv_->num_blocks(); }
  int max_launched() const override { return ops_.max_batches(); }
  bool TakesPendingTokens() const override { return ops_.TakesPendingTokens(); }
  void Launch(const Batch& batch) override;
  absl::StatusOr<BatchResult> Wait() override;
  absl::Status CopyKvBlock(int32_t from, int32_t to) override;
  RunCounts run_counts() const override { return ops_.device().run_counts(); }

  const ModelConfig& config() const { return config_; }
  const PackedWeights& weights() const { return weights_; }
  const KvShape& kv_shape() const { return kv_->shape(); }
  // Bytes of the weights by stored element type; their sum is MemoryPurpose::kWeights.
  std::map<DType, uint64_t> WeightBytes() const { return BytesByType(weights_); }

  // The shape of the KV cache that Load makes.
  static KvShape KvShapeFor(const ModelConfig& config, DType dtype);
  // Bytes on the device for intermediate results, logits and rotary positions: everything except
  // the weights and the KV cache. `weights` is the PackingPlan::matrix_type.
  static size_t WorkspaceBytes(const ModelConfig& config, const BatchLimits& limits, DType weights,
                               const Ops& ops);

 private:
  // Rows of intermediate results; see LayOutScratch.
  struct Scratch {
    Rows x, delta, normed, qkv, attention, hidden, gathered, logits;
  };

  TransformerLM(const ModelConfig& config, Ops& ops, const BatchLimits& limits);

  // `weights` is the PackingPlan::matrix_type.
  static ModelShape ShapeOf(const ModelConfig& config, DType weights);
  // The numbers of token rows and of logits rows in a batch.
  struct BatchRows {
    int64_t tokens = 0;
    int64_t logits = 0;
  };
  static BatchRows LargestBatch(const BatchLimits& limits) {
    return {limits.max_tokens, limits.max_logits_rows};
  }
  // Lays out the rows of a batch from `base`, which may be null; returns their bytes.
  static size_t LayOutScratch(const ModelConfig& config, const BatchRows& rows, DType activations,
                              const Ops& ops, std::byte* base, Scratch* scratch);
  static size_t LogitsBytes(const ModelConfig& config, const BatchLimits& limits, const Ops& ops);
  static size_t RopeTableBytes(const ModelConfig& config, const BatchLimits& limits);

  absl::Status LoadRopeTable();
  // Fills at least `positions` positions, at most max_context.
  absl::Status FillRopeTable(int64_t positions);
  absl::Status AllocateWorkspace(DType matrix_type, DType kv);
  absl::Status WarmUp();
  absl::Status RunDummy(int64_t tokens);
  absl::Status RecordCommonSteps();
  absl::Status Run(const Batch& batch);
  absl::Status RunLayers(const DeviceBatch& batch);
  absl::Status RunEmbedding(const DeviceBatch& batch);
  absl::Status RunAttention(const PackedLayer& layer, int64_t index, const Rows& delta,
                            const DeviceBatch& batch);
  absl::Status RunFfn(const PackedLayer& layer, int64_t tokens);
  absl::Status RunHead(const DeviceBatch& batch);
  Norm NormOf(const PackedNorm& norm) const;
  HeadTransform HeadTransformOf(const PackedLayer& layer) const;
  absl::Status Linear(const Rows& in, const PackedLinear& linear,
                      std::optional<Activation> activation, const Rows& out);
  void CheckBatch(const Batch& batch) const;

  const ModelConfig config_;
  Ops& ops_;
  const BatchLimits limits_;
  PackedWeights weights_;
  Buffer rope_table_;  // [max_context, head_dim / 2] (cos, sin); empty without rotary positions
  int64_t rope_positions_ = 0;  // filled positions of rope_table_
  Buffer activations_;
  Buffer logits_;
  Scratch scratch_;
  std::optional<KvStorage> kv_;  // set by Load
  struct Launched {
    const Batch* batch;
    absl::Status status;  // result of the launch
  };
  std::deque<Launched> launched_;  // batches in flight
};

}  // namespace tlm

#endif  // TLM_MODEL_TRANSFORMER_LM_TRANSFORMER_LM_H_
