// The tensors of a configuration, with their names and shapes.
#ifndef TLM_MODEL_WEIGHTS_NAME_MAP_H_
#define TLM_MODEL_WEIGHTS_NAME_MAP_H_

#include <string>
#include <string_view>
#include <vector>

#include "model/config/model_config.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// The role of a tensor in the model; all but the first five are per layer. Matrices are stored
// [outputs, inputs], y = x W^T; those of a layer under TensorNaming::kGpt2 [inputs, outputs]. There
// and under kGgufGpt2, kQkv stands for kQ, kK and kV.
enum class TensorRole {
  kTokenEmbedding,     // [vocab_size, d_model]
  kPositionEmbedding,  // [context_length, d_model]
  kFinalNorm,          // [d_model]
  kFinalNormBias,      // [d_model]
  kLmHead,             // [vocab_size, d_model]
  kAttnNorm,           // [d_model]
  kAttnNormBias,       // [d_model]
  kQkv,                // [q_size + 2 kv_size, d_model]; kGpt2: [d_model, q_size + 2 kv_size]
  kQkvBias,            // [q_size + 2 kv_size]
  kQ,                  // [q_size, d_model]
  kK,                  // [kv_size, d_model]
  kV,                  // [kv_size, d_model]
  kQBias,              // [q_size]
  kKBias,              // [kv_size]
  kVBias,              // [kv_size]
  kO,                  // [d_model, q_size]
  kOBias,              // [d_model]
  kQNorm,              // [head_dim]
  kKNorm,              // [head_dim]
  kFfnNorm,            // [d_model]
  kFfnNormBias,        // [d_model]
  kGate,               // [d_ff, d_model]
  kGateBias,           // [d_ff]
  kUp,                 // [d_ff, d_model]
  kUpBias,             // [d_ff]
  kDown,               // [d_model, d_ff]
  kDownBias,           // [d_model]
};

// The tensor's outputs lie in its second dimension: a matrix of a layer under kGpt2.
bool IsInputsFirst(TensorNaming naming, TensorRole role);

struct TensorSpec {
  TensorRole role;
  int layer;  // -1 for a role that is not per layer
  std::string name;
  Shape shape;
};

// Every parameter of the model, once, in the order of the forward pass, and only those it has: no
// LM head where it is tied, no gate where there is none, and so on. `config` has passed Validate().
std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config);

// The checkpoint's name of one tensor, which the naming must have: kQkv and its bias are of kGpt2
// and kGgufGpt2 alone, which in turn have no kQ, kK, kV and kGate. `layer` counts only for roles
// that are per layer; `ffn` only under kCs336, where the matrices of the feed-forward network are
// named w1, w2, w3.
std::string TensorName(TensorNaming naming, TensorRole role, int layer, const FfnNames& ffn = {});

// The name under which other checkpoints keep the same tensor, or "" where there is only one. Those
// of kHuggingFace lack the prefix "model." when only the inner model was saved; those of kGpt2, as
// published, have no prefix and get "transformer." when they are saved again.
std::string OtherTensorName(TensorNaming naming, std::string_view name);

// Whether this name and rank are those of a known buffer, which is no parameter and is computed by
// this program or part of the configuration: tables of rotary positions
// ("model.layers.0.self_attn.rotary_emb.inv_freq", "rope_freqs.weight") and attention masks
// ("h.0.attn.bias", of rank 4; "h.0.attn.masked_bias"; "layers.0.attn.causal_mask").
bool IsKnownBuffer(std::string_view name, int rank);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_NAME_MAP_H_
