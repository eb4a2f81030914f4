// Lists the tensors of a configuration, with their names and shapes.
#ifndef TLM_MODEL_WEIGHTS_NAME_MAP_H_
#define TLM_MODEL_WEIGHTS_NAME_MAP_H_

#include <string>
#include <string_view>
#include <vector>

#include "model/config/model_config.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// The role of a tensor in the model; all but the first five are per layer. Matrices are stored
// [outputs, inputs], y = x W^T; a layer's matrices under TensorNaming::kGpt2 are stored [inputs,
// outputs]. Under kGpt2 and kGgufGpt2, kQkv replaces kQ, kK and kV.
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

// Whether the tensor's outputs are its second dimension: true for a layer's matrices under kGpt2.
bool IsInputsFirst(TensorNaming naming, TensorRole role);

struct TensorSpec {
  TensorRole role;
  int layer;  // -1 for a role that is not per layer
  std::string name;
  Shape shape;
};

// Returns every parameter of the model, once, in the order of the forward pass: no LM head if it is
// tied, no gate if there is none, and so on. `config` has passed Validate().
std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config);

// Returns the checkpoint's name of one tensor, which the naming must have: only kGpt2 and kGgufGpt2
// have kQkv and its bias, and these have no kQ, kK, kV and kGate. `layer` matters only for
// per-layer roles; `ffn` matters only under kCs336, which names the matrices of the feed-forward
// network w1, w2, w3.
std::string TensorName(TensorNaming naming, TensorRole role, int layer, const FfnNames& ffn = {});

// Returns the name under which other checkpoints store the same tensor, or "" if there is no such
// name. Names of kHuggingFace lack the prefix "model." if only the inner model was saved; names of
// kGpt2, as published, have no prefix and get "transformer." when they are saved again.
std::string OtherTensorName(TensorNaming naming, std::string_view name);

// Whether a tensor of this name and rank is a known buffer. A buffer is no parameter; this program
// computes it or reads it from the configuration: tables of rotary positions
// ("model.layers.0.self_attn.rotary_emb.inv_freq", "rope_freqs.weight") and attention masks
// ("h.0.attn.bias", of rank 4; "h.0.attn.masked_bias"; "layers.0.attn.causal_mask").
bool IsKnownBuffer(std::string_view name, int rank);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_NAME_MAP_H_
