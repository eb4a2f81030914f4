// A decoder-only transformer language model in a device's memory, with its paged KV cache: the
// whole architecture as one chain of op calls, written once for every family and backend.
#ifndef TLM_MODEL_TRANSFORMER_LM_TRANSFORMER_LM_H_
#define TLM_MODEL_TRANSFORMER_LM_TRANSFORMER_LM_H_

#include <cstdint>
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

  const ModelConfig& config() const { return config_; }
  const KvShape& kv_shape() const { return kv_.shape(); }

  // The shape of the KV cache that Load makes.
  static KvShape KvShapeFor(const ModelConfig& config, DType dtype);

 private:
  struct Layer {
    Buffer attention_norm;            // [d_model]
    std::unique_ptr<Matrix> qkv;      // [q_size + 2 kv_size, d_model]
    Buffer q_norm;                    // [head_dim], with qk_norm
    Buffer k_norm;                    // [head_dim], with qk_norm
    std::unique_ptr<Matrix> output;   // [d_model, q_size]
    Buffer ffn_norm;                  // [d_model]
    std::unique_ptr<Matrix> gate_up;  // [2 d_ff, d_model]
    std::unique_ptr<Matrix> down;     // [d_model, d_ff]
  };

  TransformerLM(const ModelConfig& config, Ops& ops, const BatchLimits& limits, KvStorage kv);

  absl::Status LoadWeights(const ModelWeights& weights);
  absl::Status LoadLayer(const LayerWeights& weights, Layer* layer);
  absl::Status AllocateWorkspace();
  absl::Status UploadBatch(const Batch& batch);
  absl::Status RunAttention(const Layer& layer, int64_t index, int64_t tokens);
  absl::Status RunFfn(const Layer& layer, int64_t tokens);
  absl::StatusOr<std::span<const float>> RunHead(int64_t rows, int64_t tokens);
  void CheckBatch(const Batch& batch) const;

  const ModelConfig config_;
  Ops& ops_;
  const BatchLimits limits_;
  KvStorage kv_;
  std::unique_ptr<Matrix> token_embedding_;  // [vocab_size, d_model]; also the head when tied
  std::unique_ptr<Matrix> lm_head_;          // [vocab_size, d_model]; null when tied
  std::vector<Layer> layers_;
  Buffer final_norm_;  // [d_model]
  Buffer rope_table_;  // [max_context, head_dim / 2] (cos, sin); empty without positions
  struct Scratch {
    Buffer activations;  // float32 rows of the layers
    Buffer logits;       // [max_logits_rows, vocab_size]
    Buffer integers;     // token ids, positions, sequence_of, logits rows, block tables
    Rows x, normed, qkv, attention, projected, gate_up, gated, gathered, logits_rows;
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
