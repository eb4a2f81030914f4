// Which tensors a configuration asks for, under which names and in which shapes.
#ifndef TLM_MODEL_WEIGHTS_NAME_MAP_H_
#define TLM_MODEL_WEIGHTS_NAME_MAP_H_

#include <string>
#include <string_view>
#include <vector>

#include "model/config/model_config.h"
#include "model/tensor/shape.h"

namespace tlm {

// What a tensor is to the model; all but the first three are per layer. Matrices are stored
// [outputs, inputs]: y = x W^T.
enum class TensorRole {
  kTokenEmbedding,  // [vocab_size, d_model]
  kFinalNorm,       // [d_model]
  kLmHead,          // [vocab_size, d_model]
  kAttnNorm,        // [d_model]
  kQ,               // [q_size, d_model]
  kK,               // [kv_size, d_model]
  kV,               // [kv_size, d_model]
  kO,               // [d_model, q_size]
  kQNorm,           // [head_dim]
  kKNorm,           // [head_dim]
  kFfnNorm,         // [d_model]
  kGate,            // [d_ff, d_model]
  kUp,              // [d_ff, d_model]
  kDown,            // [d_model, d_ff]
};

struct TensorSpec {
  TensorRole role;
  int layer;  // -1 for a role that is not per layer
  std::string name;
  Shape shape;
};

// Every parameter of the model, once, in the order of the forward pass: no LM head where it is
// tied, no query and key norms where there are none. `config` has passed Validate().
std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config);

// The checkpoint's name of one tensor. `layer` counts only for roles that are per layer.
std::string TensorName(TensorNaming naming, TensorRole role, int layer);

// Whether checkpoints are known to keep, under this name and of this rank, something that is no
// parameter and that this program computes for itself: the tables of rotary positions
// ("model.layers.0.self_attn.rotary_emb.inv_freq") and attention masks ("h.0.attn.bias", of rank
// 4; "h.0.attn.masked_bias").
bool IsKnownBuffer(std::string_view name, int rank);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_NAME_MAP_H_
