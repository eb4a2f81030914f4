// A decoder-only transformer language model in a device's memory, with its paged KV cache: the
// whole architecture as one chain of op calls, written once for every family and backend.
#ifndef TLM_MODEL_TRANSFORMER_LM_TRANSFORMER_LM_H_
#define TLM_MODEL_TRANSFORMER_LM_TRANSFORMER_LM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/kv_cache/kv_storage.h"
#include "model/ops/ops.h"
#include "model/transformer_lm/batch.h"
#include "model/transformer_lm/language_model.h"
#include "model/transformer_lm/packed_weights.h"
#include "model/weights/model_weights.h"

namespace tlm {

// How much KV cache, and in which elements. 16-bit elements halve the memory and round every key
// and value once: bfloat16 to 8 bits, float16 to 11.
struct KvPlan {
  int64_t num_blocks = 0;
  DType dtype = DType::kF32;  // or kBF16, kF16
};

class TransformerLM : public LanguageModel {
 public:
  // Packs `weights` (which may be dropped afterwards) onto the device and takes all memory the
  // model will ever use: nothing is allocated later. INVALID_ARGUMENT names a tensor with a
  // non-finite value, RESOURCE_EXHAUSTED what did not fit. `ops` outlives the model.
  static absl::StatusOr<std::unique_ptr<TransformerLM>> Load(const ModelConfig& config,
                                                             const ModelWeights& weights, Ops& ops,
                                                             const BatchLimits& limits,
                                                             const KvPlan& kv_plan);

  int64_t vocab_size() const override { return config_.vocab_size; }
  const BatchLimits& limits() const override { return limits_; }
  int64_t num_kv_blocks() const override { return kv_.num_blocks(); }
  absl::StatusOr<std::span<const float>> Forward(const Batch& batch) override;
  absl::Status CopyKvBlock(int32_t from, int32_t to) override;

  const ModelConfig& config() const { return config_; }
  const KvShape& kv_shape() const { return kv_.shape(); }
  // Bytes of the weights by stored element type; together all of MemoryPurpose::kWeights.
  std::map<DType, uint64_t> WeightBytes() const { return BytesByType(weights_); }

  // The shape of the KV cache that Load makes.
  static KvShape KvShapeFor(const ModelConfig& config, DType dtype);

 private:
  TransformerLM(const ModelConfig& config, Ops& ops, const BatchLimits& limits, KvStorage kv);

  absl::Status LoadRopeTable();
  absl::Status AllocateWorkspace();
  absl::Status UploadBatch(const Batch& batch);
  absl::Status RunEmbedding(int64_t tokens);
  absl::Status RunAttention(const PackedLayer& layer, int64_t index, int64_t tokens);
  absl::Status RunFfn(const PackedLayer& layer, int64_t tokens);
  absl::StatusOr<std::span<const float>> RunHead(int64_t rows, int64_t tokens);
  absl::Status Norm(const Rows& in, const PackedNorm& norm, const Rows& out);
  absl::Status HeadNorm(const Rows& heads, const Buffer& gain);
  absl::Status Linear(const Rows& in, const PackedLinear& linear, const Rows& out);
  void CheckBatch(const Batch& batch) const;

  const ModelConfig config_;
  Ops& ops_;
  const BatchLimits limits_;
  KvStorage kv_;
  PackedWeights weights_;
  Buffer rope_table_;  // [max_context, head_dim / 2] (cos, sin); empty without rotary positions
  struct Scratch {
    Buffer activations;  // float32 rows of the layers
    Buffer logits;       // [max_logits_rows, vocab_size]
    Buffer integers;     // token ids, positions, sequence_of, logits rows, block tables
    Rows x, normed, qkv, attention, projected, gate_up, hidden, gathered, logits_rows;
    int32_t* token_ids = nullptr;
    int32_t* positions = nullptr;
    int32_t* sequence_of = nullptr;
    int32_t* block_tables = nullptr;
    int32_t* row_indices = nullptr;
  } scratch_;
  TokenLayout layout_;              // of the running batch
  std::vector<float> host_logits_;  // used only when the device's memory is not the host's
};

}  // namespace tlm

#endif  // TLM_MODEL_TRANSFORMER_LM_TRANSFORMER_LM_H_
