// The hyper-parameters of a decoder-only transformer, for all families, as one plain struct.
#ifndef TLM_MODEL_CONFIG_MODEL_CONFIG_H_
#define TLM_MODEL_CONFIG_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tlm {

enum class NormKind {
  kRms,    // x / rms(x) * gain
  kLayer,  // (x - mean(x)) / deviation(x) * gain + bias
};
enum class NormEps {
  kInsideRoot,   // x / sqrt(mean(x^2) + eps)
  kOutsideRoot,  // x / (sqrt(mean(x^2)) + eps); for kLayer likewise with the variance
};
// The pairs of elements that RoPE rotates together (Su et al. 2021, section 3.4.2).
enum class RopeLayout {
  kInterleaved,  // (2i, 2i + 1)
  kHalf,         // (i, i + head_dim / 2)
};
// The feed-forward network; only kSwiGlu has a gate.
enum class FfnKind {
  kSwiGlu,    // down(silu(gate x) * up x)
  kSilu,      // down(silu(up x))
  kRelu,      // down(relu(up x))
  kGeluTanh,  // down(gelu(up x)), gelu by its tanh approximation
  kGelu,      // down(gelu(up x)), gelu(a) = a * Phi(a)
};

// The names and layout of the checkpoint's tensors; see model/weights/name_map.h. kGpt2 stores the
// matrices of the layers [inputs, outputs], with query, key and value in one. kGguf and kGgufGpt2
// have the names of GGUF files; kGgufGpt2 stores query, key and value in one matrix [outputs,
// inputs].
enum class TensorNaming { kCs336, kQwen3Mha, kHuggingFace, kGpt2, kGguf, kGgufGpt2 };

// Scaling of the frequencies of rotary positions; fields that the kind does not use keep their
// defaults. See model/ops/rope_table.h for the formulas.
struct RopeScaling {
  enum class Kind { kLinear, kLlama3, kYarn, kFactors };
  Kind kind = Kind::kLinear;
  double factor = 1.0;
  double low_freq_factor = 1.0;         // llama3
  double high_freq_factor = 4.0;        // llama3
  int64_t original_context_length = 0;  // llama3, yarn; >= 1
  double beta_fast = 32.0;              // yarn
  double beta_slow = 1.0;               // yarn
  double attention_factor = 1.0;        // yarn: multiplies cosines and sines
  bool truncate = true;                 // yarn: the ramp's ends are whole dimensions
  std::vector<double> factors = {};     // factors: one for each of head_dim / 2 frequencies

  bool operator==(const RopeScaling&) const = default;
};

// The quantisation of matrices of a checkpoint; see model/weights/quantised_matrix.h for the
// tensors.
struct QuantisationScheme {
  enum class Format {
    kAwq,            // AutoAWQ's "gemm"
    kGptq,           // AutoGPTQ's and GPTQModel's "gptq" and "gptq_v2"
    kPackQuantised,  // compressed-tensors' "pack-quantized"
    kIntQuantised,   // compressed-tensors' "int-quantized"
    kFloat8,         // compressed-tensors' "float-quantized", and "fp8" without blocks
    kFloat8Blocks,   // "fp8" with weight_block_size
  };
  Format format = Format::kAwq;
  int bits = 4;                 // 4 or 8; kIntQuantised stores bytes in either case
  int64_t group_size = 0;       // inputs that share a scale, a multiple of 32; 0: the whole row
  bool symmetric = false;       // without tensors of zeros, every zero is 2^(bits - 1)
  bool zeros_less_one = false;  // kGptq: "gptq" stores zeros minus one
  bool act_order = false;       // a tensor says which inputs share a scale
  int64_t group_outputs = 1;    // outputs that share a scale, for 8-bit floats; 0: all

  bool operator==(const QuantisationScheme&) const = default;
};

// The linear maps that add a bias. The LM head never does.
struct LinearBiases {
  bool qkv = false;
  bool attention_output = false;
  bool ffn = false;
};

// The roles of the matrices w1, w2 and w3, in checkpoints that name them so.
struct FfnNames {
  int gate = 1;
  int up = 3;
  int down = 2;
};

struct ModelConfig {
  std::string model_type;    // as in config.json: "cs336", "llama", "gpt2"
  std::string architecture;  // for display: "Qwen3ForCausalLM"
  TensorNaming naming = TensorNaming::kHuggingFace;
  // The type that config.json names for the weights: "bfloat16", "float16", or otherwise "float32"
  // (also for float64 and without a type). Loaded weights have the type of their files.
  std::string weights_dtype = "float32";

  int64_t vocab_size = 0;
  int64_t context_length = 0;  // tokens, prompt and output together
  int64_t d_model = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads; equal to it without grouped-query attention
  int64_t head_dim = 0;      // even with rotary positions; not always d_model / num_heads
  int64_t d_ff = 0;

  NormKind norm_kind = NormKind::kRms;
  double norm_eps = 1e-5;
  NormEps norm_eps_placement = NormEps::kInsideRoot;
  std::optional<double> rope_theta;  // nullopt: no rotary positions
  RopeLayout rope_layout = RopeLayout::kHalf;
  std::optional<RopeScaling> rope_scaling;
  bool learned_positions = false;  // a table [context_length, d_model] added to the embeddings
  bool qk_norm = false;            // RMSNorm over head_dim of every query and key head, before RoPE
  // Positions that a token attends to, including itself; nullopt: all before it. `full_attention`,
  // if not empty, says for each layer whether it ignores the window.
  std::optional<int64_t> sliding_window;
  std::vector<bool> full_attention;
  FfnKind ffn_kind = FfnKind::kSwiGlu;
  FfnNames ffn_names;  // for TensorNaming::kCs336 only
  LinearBiases biases;
  bool tie_word_embeddings = false;  // the LM head is the embedding matrix
  // The schemes of the checkpoint's quantised matrices; the tensors of a matrix show which of them
  // it has. For TensorNaming::kHuggingFace only.
  std::vector<QuantisationScheme> quantisation;

  // Token ids that end a sequence, in the order the files name them; may be empty.
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id;

  bool gated_ffn() const { return ffn_kind == FfnKind::kSwiGlu; }
  // Returns the positions that a token of this layer attends to, including itself; 0 means all
  // before it.
  int64_t WindowOf(int64_t layer) const {
    const bool full = !full_attention.empty() && full_attention[static_cast<size_t>(layer)];
    return full ? 0 : sliding_window.value_or(0);
  }

  // Rows of the query and of the key or value part in the fused projection.
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

// Checks everything: OK if the program can run this configuration. INVALID_ARGUMENT names the
// field, its value and the limit.
absl::Status Validate(const ModelConfig& config);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_MODEL_CONFIG_H_
