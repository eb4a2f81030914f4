// The hyper-parameters of a decoder-only transformer, of every family, as one plain struct.
#ifndef TLM_MODEL_CONFIG_MODEL_CONFIG_H_
#define TLM_MODEL_CONFIG_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tlm {

enum class NormKind { kRms };
// Which two elements of a head RoPE rotates together (Su et al. 2021, section 3.4.2).
enum class RopeLayout {
  kInterleaved,  // (2i, 2i + 1)
  kHalf,         // (i, i + head_dim / 2)
};
enum class FfnKind { kSwiGlu };  // down(silu(gate x) * up x)

// How the checkpoint's tensors are named; see model/weights/name_map.h.
enum class TensorNaming { kCs336, kHuggingFace };

struct ModelConfig {
  std::string model_type;    // as config.json says it: "cs336", "llama", "qwen3"
  std::string architecture;  // for people: "Qwen3ForCausalLM"
  TensorNaming naming = TensorNaming::kHuggingFace;

  int64_t vocab_size = 0;
  int64_t context_length = 0;  // tokens, prompt and output together
  int64_t d_model = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads; equal to it without grouped-query attention
  int64_t head_dim = 0;      // even; not always d_model / num_heads
  int64_t d_ff = 0;

  NormKind norm_kind = NormKind::kRms;
  double norm_eps = 1e-5;
  std::optional<double> rope_theta;  // none: no positions at all
  RopeLayout rope_layout = RopeLayout::kHalf;
  bool qk_norm = false;  // RMSNorm over head_dim of every query and key head, before RoPE
  FfnKind ffn_kind = FfnKind::kSwiGlu;
  bool tie_word_embeddings = false;  // the LM head is the embedding matrix

  // Token ids that end a sequence, in the order the files name them; may be empty.
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id;

  // Rows of the fused query, key and value projection.
  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
};

// Upper limits of every dimension: far above any published model, and small enough that no product
// of them that this program computes overflows 64 bits.
struct ConfigLimits {
  static constexpr int64_t kVocabSize = int64_t{1} << 24;
  static constexpr int64_t kContextLength = int64_t{1} << 24;
  static constexpr int64_t kDModel = int64_t{1} << 17;
  static constexpr int64_t kNumLayers = 4096;
  static constexpr int64_t kNumHeads = 4096;
  static constexpr int64_t kHeadDim = 1024;
  static constexpr int64_t kDFf = int64_t{1} << 20;
  static constexpr int64_t kEosTokens = 1024;
};

// The single gate: OK only if the rest of the program can run this configuration as it is.
// INVALID_ARGUMENT names the field, its value and the limit.
absl::Status Validate(const ModelConfig& config);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_MODEL_CONFIG_H_
